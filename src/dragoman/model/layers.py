"""Layers and stacks (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dragoman.config import ModelConfig
from dragoman.kernels.dropout import Dropout
from dragoman.model.attention import KeysValues, MultiHeadAttention, NoAttention
from dragoman.model.cache import LayerCache
from dragoman.model.feed_forward import build_feed_forward
from dragoman.model.layout import PADDED, Layout
from dragoman.model.masks import AttentionMask
from dragoman.model.positions import RelativePositions, build_relative_positions

Sublayer = Callable[[Tensor], Tensor]


class BatchNorm(nn.Module):
    """Normalises each dimension over all positions of the batch, padding included.

    What layer normalisation is compared with: while it trains, a sentence depends on its
    neighbours.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(config.d_model, eps=config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, -2)).view_as(x)


def build_norm(config: ModelConfig) -> nn.Module:
    """Makes one normalisation over (..., d_model)."""
    if config.norm_place == "none" or config.norm == "none":
        return nn.Identity()
    if config.norm == "batch":
        return BatchNorm(config)
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_epsilon)


def _add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def _replace(x: Tensor, y: Tensor) -> Tensor:
    return y


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the paper's connection (sections 3.1 and 5.4)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.join = _add if config.residual else _replace

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(self.join(x, self.dropout(sublayer(x))))


class PreNorm(PostNorm):
    """x + Dropout(Sublayer(LayerNorm(x))): what many codes do and call the paper's."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.join(x, self.dropout(sublayer(self.norm(x))))


class Skip(nn.Module):
    """Stands where a sub-layer was taken away: x passes unchanged."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x


def build_connection(config: ModelConfig, present: bool = True) -> nn.Module:
    """Makes the residual connection around one sub-layer, or nothing where there is none."""
    if not present:
        return Skip()
    return PreNorm(config) if config.norm_place == "pre" else PostNorm(config)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig, attention: type[MultiHeadAttention]) -> None:
        super().__init__()
        self.self_attention = attention(config, build_relative_positions(config))
        self.feed_forward = build_feed_forward(config)
        self.self_attention_connection = build_connection(config)
        self.feed_forward_connection = build_connection(config, config.feed_forward != "none")

    def forward(
        self, x: Float[Tensor, "*tokens d_model"], mask: AttentionMask, layout: Layout = PADDED
    ) -> Float[Tensor, "*tokens d_model"]:
        """Maps (batch, source, d_model), or what `layout` makes of it, to the same shape."""

        def attend_to_self(y: Tensor) -> Tensor:
            keys_values = self.self_attention.keys_values(y, layout=layout)
            return self.self_attention(y, keys_values, mask, layout=layout)

        x = self.self_attention_connection(x, attend_to_self)
        return self.feed_forward_connection(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig, attention: type[MultiHeadAttention]) -> None:
        super().__init__()
        self.self_attention = attention(config, build_relative_positions(config))
        self.cross_attention = (
            attention(config, RelativePositions()) if config.cross_attention else NoAttention()
        )
        self.feed_forward = build_feed_forward(config)
        self.self_attention_connection = build_connection(config)
        self.cross_attention_connection = build_connection(config, config.cross_attention)
        self.feed_forward_connection = build_connection(config, config.feed_forward != "none")

    def forward(
        self,
        x: Float[Tensor, "*tokens d_model"],
        memory: KeysValues,
        mask: AttentionMask,
        memory_mask: AttentionMask,
        cache: LayerCache | None = None,
        first: int = 0,
        layout: Layout = PADDED,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Maps (batch, target, d_model), or what `layout` makes of it, to the same shape.

        Args:
            x: the target so far; with a cache only its newest positions, from `first` on.
            memory: the encoder's output as this layer's cross-attention keys and values.
            mask: for self-attention.
            memory_mask: for cross-attention.
            cache: keeps the self-attention keys and values of what went before.
            first: position of the first row of x.
            layout: how the tokens lie in x.
        """

        def attend_to_self(y: Tensor) -> Tensor:
            keys_values = self.self_attention.keys_values(y, first, layout)
            if cache is not None:
                keys_values = cache.extend(keys_values)
            return self.self_attention(y, keys_values, mask, first, layout)

        x = self.self_attention_connection(x, attend_to_self)
        x = self.cross_attention_connection(
            x, lambda y: self.cross_attention(y, memory, memory_mask, layout=layout)
        )
        return self.feed_forward_connection(x, self.feed_forward)


class Stack(nn.Module):
    """N layers one after the other; pre-norm has one more norm behind the last."""

    def __init__(self, layers: list[nn.Module], config: ModelConfig, recompute: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = build_norm(config) if config.norm_place == "pre" else nn.Identity()
        self.recompute = recompute

    def run(self, layer: nn.Module, x: Tensor, *rest: object) -> Tensor:
        """Calls a layer; with `recompute` its activations are made again for the backward pass."""
        if self.recompute and torch.is_grad_enabled():
            result: Tensor = checkpoint(layer, x, *rest, use_reentrant=False)
        else:
            result = layer(x, *rest)
        return result


class Encoder(Stack):
    """The encoder's stack."""

    def forward(
        self, x: Float[Tensor, "*tokens d_model"], mask: AttentionMask, layout: Layout = PADDED
    ) -> Float[Tensor, "*tokens d_model"]:
        """Maps embedded sources, (batch, source, d_model), to memory of the same shape."""
        for layer in self.layers:
            x = self.run(layer, x, mask, layout)
        return self.final_norm(x)


class Decoder(Stack):
    """The decoder's stack."""

    def memory_keys_values(
        self, memory: Float[Tensor, "*tokens d_model"], layout: Layout = PADDED
    ) -> list[KeysValues]:
        """Projects memory, (batch, source, d_model), once for each layer's cross-attention."""
        layers = cast("list[DecoderLayer]", self.layers)
        return [layer.cross_attention.keys_values(memory, layout=layout) for layer in layers]

    def forward(
        self,
        x: Float[Tensor, "*tokens d_model"],
        memory: list[KeysValues],
        mask: AttentionMask,
        memory_mask: AttentionMask,
        layout: Layout = PADDED,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Maps embedded targets, (batch, target, d_model), to the same shape, all at once.

        Args:
            x: the embedded targets.
            memory: from `memory_keys_values`.
            mask: for self-attention.
            memory_mask: for cross-attention.
            layout: how the tokens lie in x.
        """
        for layer, keys_values in zip(self.layers, memory, strict=True):
            x = self.run(layer, x, keys_values, mask, memory_mask, None, 0, layout)
        return self.final_norm(x)

    def step(
        self,
        x: Float[Tensor, "rows 1 d_model"],
        caches: list[LayerCache],
        memory_mask: AttentionMask,
        first: int,
    ) -> Float[Tensor, "rows 1 d_model"]:
        """Maps the newest embedded tokens, (batch * width, 1, d_model), to the same shape."""
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache.memory, AttentionMask(), memory_mask, cache, first)
        return self.final_norm(x)
