"""The Transformer (section 3): an encoder, a decoder, and what ties them to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.config import BOS, EOS, PAD, InputError, ModelConfig
from dragoman.model.attention import FusedMultiHeadAttention, MultiHeadAttention
from dragoman.model.cache import DecoderCache, LayerCache, SharedCache
from dragoman.model.embedding import InputEmbedding, TokenEmbedding, ZeroStartEmbedding
from dragoman.model.fast_decoder import FastDecoder
from dragoman.model.initialization import initialize
from dragoman.model.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from dragoman.model.layout import PADDED, Layout, PackedLayout, supports_packing
from dragoman.model.masks import AttentionMask, sequence_lengths

_START_TOKENS = {"bos": BOS, "eos": EOS, "pad": PAD, "zero": PAD}


class Transformer(nn.Module):
    """An encoder-decoder Transformer; with the default configuration the paper's base model.

    Attributes:
        config: the architecture.
        start_token: what the decoder reads first.
        max_length: how many tokens a side may have; None without learned positions.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        gradient_checkpointing: bool = False,
        attention: type[MultiHeadAttention] = FusedMultiHeadAttention,
    ) -> None:
        """Makes a model with fresh parameters.

        Args:
            config: the architecture.
            gradient_checkpointing: whether a layer's activations are made again for the backward
                pass instead of being kept.
            attention: the fast class, or the readable one, where hooks attach.
        """
        super().__init__()
        self.config = config
        self.start_token = _START_TOKENS[config.decoder_start]
        self.max_length = config.max_positions if config.positions == "learned" else None
        target_embedding = ZeroStartEmbedding if config.decoder_start == "zero" else TokenEmbedding
        source_token = TokenEmbedding(config.source_vocab_size, config)
        target_token = target_embedding(config.target_vocab_size, config)
        self.source_embedding = InputEmbedding(source_token, config)
        self.target_embedding = InputEmbedding(target_token, config)
        recompute = gradient_checkpointing
        encoder = [EncoderLayer(config, attention) for _ in range(config.num_encoder_layers)]
        decoder = [DecoderLayer(config, attention) for _ in range(config.num_decoder_layers)]
        self.encoder = Encoder(list(encoder), config, recompute)
        self.decoder = Decoder(list(decoder), config, recompute)
        self.output_embedding = TokenEmbedding(config.target_vocab_size, config)
        if config.tie != "none":
            self.output_embedding.weight = target_token.weight
        if config.tie == "source-target-output":
            source_token.weight = target_token.weight
        self.apply(partial(initialize, gain=config.projection_gain))

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax projection, (vocab, d_model): logits are hidden @ output_weight.T."""
        return self.output_embedding.weight

    def forward(
        self, source: Int[Tensor, "batch source"], target_input: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Returns logits, (batch, target, vocab), of each next token under teacher forcing.

        Args:
            source: ids (batch, source), ending in EOS, padded on the right with PAD.
            target_input: ids (batch, target), as `decoder_input` makes them.
        """
        return F.linear(self.hidden(source, target_input), self.output_weight)

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        target_input: Int[Tensor, "batch target"],
        source_layout: Layout = PADDED,
        target_layout: Layout = PADDED,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Returns the decoder's output before the projection.

        Args:
            source: as in `forward`.
            target_input: as in `forward`.
            source_layout: how to hold the source's tokens meanwhile.
            target_layout: how to hold the target's tokens, also in the result.

        Returns:
            (batch, target, d_model), or what `target_layout` makes of it.
        """
        memory, memory_mask = self.encode(source, source_layout)
        keys_values = self.decoder.memory_keys_values(memory, source_layout)
        x = self.target_embedding(target_input, layout=target_layout)
        mask = self._target_mask(target_input)
        return self.decoder(x, keys_values, mask, memory_mask, target_layout)

    def encode(
        self, source: Int[Tensor, "batch source"], layout: Layout = PADDED
    ) -> tuple[Float[Tensor, "*tokens d_model"], AttentionMask]:
        """Returns memory, (batch, source, d_model) or as `layout` has it, and who may see it."""
        lengths = sequence_lengths(source) if self.config.padding_mask else None
        mask = AttentionMask(lengths)
        x = self.source_embedding(source, layout=layout)
        return self.encoder(x, mask, layout), mask

    def decoder_input(self, target: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """Shifts target, (batch, target), one to the right, behind the start token.

        EOS is never read: where a shorter row would show it, there is padding.
        """
        start = target.new_full((target.shape[0], 1), self.start_token)
        shifted = target[:, :-1]
        return torch.cat([start, shifted.masked_fill(shifted == EOS, PAD)], dim=1)

    def start(
        self, source: Int[Tensor, "batch source"], fast: FastDecoder | None = None
    ) -> DecoderCache | SharedCache:
        """Encodes sources and makes the cache from which `step` decodes.

        Args:
            source: ids (batch, source), as in `forward`.
            fast: what `step` shall decode with instead of the modules.
        """
        layout, real = PADDED, source != PAD
        if fast is not None and supports_packing(self.config) and not real.all():
            layout = PackedLayout(real)
        memory, mask = self.encode(source, layout)
        keys_values = self.decoder.memory_keys_values(memory, layout)
        if fast is not None:
            return fast.start(keys_values, mask)
        return DecoderCache([LayerCache(each) for each in keys_values], mask.key_lengths)

    def step(
        self, tokens: Int[Tensor, "batch width"], cache: DecoderCache | SharedCache
    ) -> Float[Tensor, "batch width vocab"]:
        """Reads one more token of each hypothesis; the cache advances.

        Args:
            tokens: (batch, width), the newest tokens; at first the start token.
            cache: from `start`.

        Returns:
            logits of the next token, (batch, width, vocab).
        """
        if isinstance(cache, SharedCache):
            return cache.decoder.step(tokens, cache)
        x = self.target_embedding(tokens.reshape(-1, 1), cache.length)
        hidden = self.decoder.step(x, cache.layers, cache.memory_mask, cache.length)
        cache.length += 1
        return F.linear(hidden, self.output_weight).view(*tokens.shape, -1)

    def readable(self) -> Transformer:
        """Returns the twin that shows its quantities: reference modules, the same Parameters.

        What trains one trains the other. Hooks (`dragoman.model.hooks`) attach to the twin.
        """
        with torch.device("meta"):
            twin = Transformer(self.config, attention=MultiHeadAttention)
        for name, module in twin.named_modules():
            ours = self.get_submodule(name)
            for key in module._parameters:
                module._parameters[key] = ours._parameters[key]
            for key in module._buffers:
                module._buffers[key] = ours._buffers[key]
        return twin.train(self.training)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns a copy of parameters and buffers by name, tied ones once."""
        return {
            name: tensor.detach().to("cpu", copy=True).numpy()
            for name, tensor in self._named_tensors().items()
        }

    def load_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Takes parameters and buffers by name.

        Raises:
            InputError: if they don't fit the configuration.
        """
        ours = self._named_tensors()
        for name in sorted(ours.keys() ^ arrays.keys()):
            problem = "is missing" if name in ours else "has no place in the model"
            raise InputError(f"the weights don't fit the configuration: {name} {problem}")
        for name, tensor in ours.items():
            if tuple(tensor.shape) != arrays[name].shape:
                raise InputError(
                    f"the weights don't fit the configuration: {name} has the shape "
                    f"{arrays[name].shape}, accepted is {tuple(tensor.shape)}"
                )
        with torch.no_grad():
            for name, tensor in ours.items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))

    def _named_tensors(self) -> dict[str, Tensor]:
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def _target_mask(self, target_input: Tensor) -> AttentionMask:
        # Target padding stands behind every real token, where the causal mask hides it; it needs
        # a mask of its own only where the causal one is taken away.
        if self.config.causal_mask:
            return AttentionMask(causal=True)
        if self.config.padding_mask:
            return AttentionMask(sequence_lengths(target_input).clamp(min=1))
        return AttentionMask()
