"""The decoder's step as a search makes it: weights converted once, hypotheses that share slots.

Plain definition: `Transformer.start` and `step`, with a `DecoderCache`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.config import PAD
from dragoman.kernels.device import compute_in
from dragoman.kernels.prepacked import PrepackedLinear
from dragoman.model.attention import FusedMultiHeadAttention, KeysValues, MultiHeadAttention
from dragoman.model.cache import SharedCache
from dragoman.model.feed_forward import FeedForward, GatedFeedForward
from dragoman.model.layers import DecoderLayer
from dragoman.model.layout import PADDED, PackedLayout, supports_packing
from dragoman.model.transformer import Transformer

_POSITIONS = 64
"""Positions are computed so many at a time."""


def _attend(
    queries: Float[Tensor, "rows query d_k"],
    keys: Float[Tensor, "rows key d_k"],
    values: Float[Tensor, "rows key d_v"],
    bias: Float[Tensor, "rows #query key"],
) -> Float[Tensor, "rows query d_v"]:
    """Computes softmax(QK^T + bias) V; a row is a head of a sentence."""
    weights = (torch.bmm(queries, keys.transpose(1, 2)) + bias).softmax(-1)
    return torch.bmm(weights.to(values.dtype), values)


class _Heads:
    """An attention's projections, and the way between hypotheses and heads."""

    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype) -> None:
        self.num_heads, self.scale = attention.num_heads, attention.scale
        self.rotate = attention.positions.rotate
        self.out_proj = PrepackedLinear.of([attention.out_proj], dtype)

    def split(self, x: Float[Tensor, "rows d"]) -> Float[Tensor, "rows heads 1 d_k"]:
        """Cuts what stands for each hypothesis' newest token into heads."""
        return x.unflatten(1, (self.num_heads, 1, -1))

    def by_sentence(
        self, x: Float[Tensor, "rows heads 1 d_k"], width: int
    ) -> Float[Tensor, "batch heads width d_k"]:
        """Brings the hypotheses of a sentence together."""
        return x.view(-1, width, self.num_heads, x.shape[3]).transpose(1, 2)

    def join(
        self, context: Float[Tensor, "queries width d_v"], width: int
    ) -> Float[Tensor, "rows d_model"]:
        """Projects what the heads have found for each hypothesis."""
        by_head = context.unflatten(0, (-1, self.num_heads))
        return self.out_proj(by_head.transpose(1, 2).reshape(-1, self.num_heads * context.shape[2]))


class _SelfAttention(_Heads):
    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype) -> None:
        super().__init__(attention, dtype)
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.qkv_proj = PrepackedLinear.of(projections, dtype)
        self.sizes = [layer.out_features for layer in projections]

    def __call__(
        self, x: Float[Tensor, "rows d_model"], cache: SharedCache, layer: int, bias: Tensor
    ) -> Float[Tensor, "rows d_model"]:
        q, k, v = (self.split(part) for part in self.qkv_proj(x).split(self.sizes, dim=1))
        at = cache.length - 1
        queries = self.by_sentence(self.rotate(q * self.scale, at), cache.width).flatten(0, 1)
        keys = self.by_sentence(self.rotate(k, at), cache.width)
        past = cache.write(layer, keys, self.by_sentence(v, cache.width))
        return self.join(_attend(queries, *past, bias), cache.width)


class _CrossAttention(_Heads):
    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype) -> None:
        super().__init__(attention, dtype)
        self.q_proj = PrepackedLinear.of([attention.q_proj], dtype)

    def __call__(
        self, x: Float[Tensor, "rows d_model"], width: int, memory: KeysValues, bias: Tensor
    ) -> Float[Tensor, "rows d_model"]:
        queries = self.by_sentence(self.split(self.q_proj(x) * self.scale), width).flatten(0, 1)
        keys, values = (each.flatten(0, 1) for each in memory)
        return self.join(_attend(queries, keys, values, bias), width)


def _feed_forward(network: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    if isinstance(network, FeedForward):
        activation = network.activation
        inner = PrepackedLinear.of([network.in_proj], dtype)
        outer = PrepackedLinear.of([network.out_proj], dtype)
        return lambda x: outer(activation(inner(x)))
    if isinstance(network, GatedFeedForward):
        both = PrepackedLinear.of([network.gate_proj, network.in_proj], dtype)
        outer = PrepackedLinear.of([network.out_proj], dtype)

        def gated(x: Tensor) -> Tensor:
            gate, inner = both(x).chunk(2, dim=1)
            return outer(F.silu(gate) * inner)

        return gated
    return network


class _Layer:
    def __init__(self, layer: DecoderLayer, number: int, dtype: torch.dtype) -> None:
        self.layer, self.number = layer, number
        self.self_attention = _SelfAttention(layer.self_attention, dtype)
        self.feed_forward = _feed_forward(layer.feed_forward, dtype)
        if isinstance(layer.cross_attention, MultiHeadAttention):
            self.cross_attention = _CrossAttention(layer.cross_attention, dtype)

    def __call__(
        self, x: Tensor, cache: SharedCache, bias: Tensor, memory_bias: Tensor
    ) -> Float[Tensor, "rows d_model"]:
        width, memory = cache.width, cache.memory[self.number]
        x = self.layer.self_attention_connection(
            x, lambda y: self.self_attention(y, cache, self.number, bias)
        )
        x = self.layer.cross_attention_connection(
            x, lambda y: self.cross_attention(y, width, memory, memory_bias)
        )
        return self.layer.feed_forward_connection(x, self.feed_forward)


def _with_converted_encoder(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Returns the model with copies in `dtype` of the weights that sources are multiplied by.

    Otherwise autocast would convert them for every batch. All other parameters are the model's own.
    """
    converted = copy.deepcopy(model, {id(each): each for each in model.parameters()})
    layers = cast("list[DecoderLayer]", converted.decoder.layers)
    cross = [each for layer in layers for each in layer.cross_attention.named_children()]
    of_memory = [module for name, module in cross if name in ("k_proj", "v_proj")]
    for module in [*converted.encoder.modules(), *of_memory]:
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.to(dtype), requires_grad=False)
    return converted


class FastDecoder:
    """A Transformer's decoder and output projection, one position at a time.

    It holds converted copies of weights, so that it is of no use once the model has changed.
    Products, keys and values have its type, all else that of the parameters.
    """

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        """Converts the weights of a model that it `supports`, for products in `dtype`."""
        self._model = _with_converted_encoder(model, dtype)
        self._decoder = model.decoder
        self._num_heads = model.config.num_heads
        self._d_k, self._d_v = model.config.d_k, model.config.d_v
        self._dtype = dtype
        self._layers = [
            _Layer(layer, number, dtype)
            for number, layer in enumerate(cast("list[DecoderLayer]", model.decoder.layers))
        ]
        self._output = PrepackedLinear(model.output_weight, None, dtype)
        self._embedding, self._max_length = model.target_embedding, model.max_length
        self._table = model.output_weight.new_empty(0, model.config.d_model)

    @staticmethod
    def supports(model: Transformer) -> bool:
        """Says whether a model can be decoded so.

        Not a readable one, which shows its quantities, nor one with ALiBi, whose bias wants the
        keys in their order, nor one whose heads get each other's hypotheses.
        """
        fused = all(
            isinstance(layer.self_attention, FusedMultiHeadAttention)
            for layer in model.decoder.layers
        )
        sound = model.config.head_transpose == "both"
        return fused and sound and model.config.positions != "alibi"

    def start(self, source: Int[Tensor, "batch source"]) -> SharedCache:
        """Encodes sources, without work on padding if it can, and makes the cache for `step`.

        Args:
            source: ids (batch, source), as in `Transformer.forward`.
        """
        layout, real = PADDED, source != PAD
        if supports_packing(self._model.config) and not real.all():
            layout = PackedLayout(real)
        precision = "bfloat16" if self._dtype == torch.bfloat16 else "float32"
        with compute_in(precision, source.device):
            memory, mask = self._model.encode(source, layout)
            keys_values = self._model.decoder.memory_keys_values(memory, layout)
        converted = [
            (keys.to(self._dtype).contiguous(), values.to(self._dtype).contiguous())
            for keys, values in keys_values
        ]
        like = converted[0][0]
        shape = (len(like), self._num_heads, 0)
        past = [
            (like.new_empty(*shape, self._d_k), like.new_empty(*shape, self._d_v))
            for _ in converted
        ]
        return SharedCache(converted, mask.key_lengths, past)

    def step(
        self, tokens: Int[Tensor, "batch width"], cache: SharedCache
    ) -> Float[Tensor, "batch width vocab"]:
        """Reads one more token of each hypothesis, as `Transformer.step`."""
        with compute_in("float32", tokens.device):  # autocast would convert at every step
            x = self._embedding.token(tokens.flatten()) + self._position(cache.length)
            biases = cache.append(self._num_heads)
            for layer in self._layers:
                x = layer(x, cache, *biases)
            return self._output(self._decoder.final_norm(x)).view(*tokens.shape, -1)

    def _position(self, at: int) -> Float[Tensor, " d_model"]:
        """Returns what is added to the embedding of a token at this position."""
        first, d_model = self._table.shape
        if at >= first:
            end = max(at + 1, min(first + _POSITIONS, self._max_length or first + _POSITIONS))
            zeros = self._table.new_zeros(1, end - first, d_model)
            self._table = torch.cat([self._table, self._embedding.positions(zeros, first)[0]])
        return self._table[at]
