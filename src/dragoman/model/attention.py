"""Attention (section 3.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dragoman.config import ModelConfig
from dragoman.kernels.attention import fused_attention
from dragoman.kernels.dropout import Dropout
from dragoman.model.layout import PADDED, Layout
from dragoman.model.masks import AttentionMask
from dragoman.model.positions import RelativePositions

KeysValues = tuple[Float[Tensor, "batch heads key d_k"], Float[Tensor, "batch heads key d_v"]]
"""Projected keys (batch, heads, key, d_k) and values (batch, heads, key, d_v)."""


def _unchanged(x: Tensor) -> Tensor:
    return x


def scaled_dot_product_attention(
    query: Float[Tensor, "... query d_k"],
    key: Float[Tensor, "... key d_k"],
    value: Float[Tensor, "... key d_v"],
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    on_scores: Callable[[Tensor], Tensor] = _unchanged,
    on_weights: Callable[[Tensor], Tensor] = _unchanged,
) -> tuple[Float[Tensor, "... query d_v"], Float[Tensor, "... query key"]]:
    """Computes Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V (equation 1).

    Args:
        query: (..., query, d_k).
        key: (..., key, d_k).
        value: (..., key, d_v).
        mask: bool or 0/1, broadcastable to (..., query, key), True = may attend; None = all may.
        scale: factor on the scores; 1/sqrt(d_k) if None.
        bias: added to the scaled scores, broadcastable like mask.
        on_scores: sees the scores before the mask and returns those to go on with.
        on_weights: sees the weights and returns those to go on with.

    Returns:
        context, (..., query, d_v), and weights, (..., query, key), whose rows sum to 1; a query
        that may attend to nothing has zeros in both.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + bias
    scores = on_scores(scores)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        # The lowest number, not -inf: a row with nothing but -inf would be NaN, and so would its
        # gradient. Behind the softmax the second mask makes such a row zeros.
        hidden = ~mask.to(torch.bool)
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        weights = weights.masked_fill(hidden, 0.0)
    weights = on_weights(weights)
    return weights @ value, weights


def _split(layout: Layout, x: Tensor, num_heads: int) -> Tensor:
    return layout.split_heads(x, num_heads)


def _split_untransposed(layout: Layout, x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(len(x), num_heads, x.shape[1], -1)


def _merge(layout: Layout, x: Tensor) -> Tensor:
    return layout.merge_heads(x)


def _merge_untransposed(layout: Layout, x: Tensor) -> Tensor:
    return x.reshape(len(x), x.shape[2], -1)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    The readable definition: `queries`, `scores`, `weights` and `context` are named places where
    hooks see and replace what passes.
    """

    def __init__(self, config: ModelConfig, positions: RelativePositions) -> None:
        super().__init__()
        d_model, heads, bias = config.d_model, config.num_heads, config.attention_bias
        self.num_heads = heads
        self.split = _split if config.head_transpose == "both" else _split_untransposed
        self.merge = _merge_untransposed if config.head_transpose == "none" else _merge
        self.scale = config.d_k**-0.5 if config.scale_scores else 1.0
        self.q_proj = nn.Linear(d_model, heads * config.d_k, bias)
        self.k_proj = nn.Linear(d_model, heads * config.d_k, bias)
        self.v_proj = nn.Linear(d_model, heads * config.d_v, bias)
        self.out_proj = nn.Linear(heads * config.d_v, d_model, bias)
        self.weight_dropout = Dropout(config.attention_dropout)
        self.positions = positions
        self.queries = nn.Identity()
        self.scores = nn.Identity()
        self.weights = nn.Identity()
        self.context = nn.Identity()

    def keys_values(
        self, x: Float[Tensor, "*tokens d_model"], first: int = 0, layout: Layout = PADDED
    ) -> KeysValues:
        """Projects x, (batch, key, d_model) or as `layout` says, from position `first` on."""
        keys = self.split(layout, self.k_proj(x), self.num_heads)
        values = self.split(layout, self.v_proj(x), self.num_heads)
        return self.positions.rotate(keys, first), values

    def forward(
        self,
        x: Float[Tensor, "*tokens d_model"],
        keys_values: KeysValues,
        mask: AttentionMask,
        first: int = 0,
        layout: Layout = PADDED,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Lets each position of x look into the keys and fetch from the values.

        Args:
            x: (batch * width, query, d_model). Where the keys have fewer rows, the `width`
                hypotheses of a sentence share its row: they are folded into the query axis.
            keys_values: (batch, heads, key, d_k) and (batch, heads, key, d_v).
            mask: which keys each query may attend to.
            first: position of the first query.
            layout: how the tokens lie in x.

        Returns:
            As x.
        """
        keys, values = keys_values
        queries = self.q_proj(layout.fold(x, keys.shape[0]))
        queries = self.positions.rotate(self.split(layout, queries, self.num_heads), first)
        context = self.context(self.attend(self.queries(queries), keys, values, mask))
        return self.out_proj(self.merge(layout, context)).view_as(x)

    def attend(
        self,
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: AttentionMask,
    ) -> Float[Tensor, "batch heads query d_v"]:
        """Returns the context, (batch, heads, query, d_v)."""
        context, _ = scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask.realise(queries, keys),
            scale=self.scale,
            bias=self.positions.bias(queries.shape[2], keys),
            on_scores=self.scores,
            on_weights=lambda weights: self.weight_dropout(self.weights(weights)),
        )
        return context


class NoAttention(nn.Module):
    """Has no parameters: stands where a layer leaves its cross-attention out."""

    def keys_values(self, x: Tensor, first: int = 0, layout: Layout = PADDED) -> KeysValues:
        """Returns x twice, as of one head, for there is nothing to project."""
        alone = layout.split_heads(x, 1)
        return alone, alone


class FusedMultiHeadAttention(MultiHeadAttention):
    """The same through the kernel, which shows nobody its weights."""

    def attend(
        self,
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: AttentionMask,
    ) -> Float[Tensor, "batch heads query d_v"]:
        return fused_attention(
            queries,
            keys,
            values,
            mask.parts(queries, keys),
            scale=self.scale,
            bias=self.positions.bias_parts(queries.shape[2], keys),
            dropout=self.weight_dropout.p if self.training else 0.0,
        )
