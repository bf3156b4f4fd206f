"""Attention whose memory grows with the length, not with its square.

Plain definition: `dragoman.model.attention.scaled_dot_product_attention`. The scores are made a
block of queries and keys at a time. The softmax is a running one (Milakov and Gimelshein 2018,
Online normalizer calculation for softmax): what a row has gathered is corrected when a block holds
a higher score. Of a row only its context and the logarithm of its sum are kept; from them the
backward pass makes the blocks again (Dao et al. 2022, FlashAttention).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from dragoman.kernels.dropout import draw_kept, kept_scale

_ROWS = 256
"""Queries of a block: with fewer the products are slower, with more a causal mask spares less."""
_BLOCK_ELEMENTS = 1 << 18
"""Scores of all heads held at once, 1 MiB in float32: what stays in a CPU's second cache. Twice or
half as many, and 128 or 512 rows, were within a tenth or slower."""
_LOG2_E = 1 / math.log(2)

PartMaker = Callable[[slice, slice, slice], Tensor | None]
"""Makes a part of a (batch, heads, query, key) matrix from slices of sentences, queries and keys:
(sentences or 1, heads or 1, queries or 1, keys or 1), or None where it would change nothing."""


class _Block(NamedTuple):
    """What some queries of a sentence have to do with some of its keys."""

    columns: slice
    """Which keys."""
    scores: Tensor
    """(heads, query, key), at least float32, in units of log 2; -inf where nothing may be seen."""
    kept: Tensor | None
    """As scores, 1 where dropout leaves a weight, else 0; None without dropout."""


@dataclass(frozen=True)
class _BlockMaker:
    """Makes the blocks: the same ones in the same order in both passes."""

    mask: PartMaker | None
    bias: PartMaker | None
    scale: float
    dropout: float

    @property
    def kept_scale(self) -> float:
        """Factor on the weights that dropout leaves."""
        return kept_scale(self.dropout) if self.dropout else 1.0

    @property
    def query_scale(self) -> float:
        """Factor on the queries; the power of 2 is cheaper than that of e."""
        return self.scale * _LOG2_E

    def blocks(
        self, sentence: int, rows: slice, query: Tensor, key: Tensor, generator: torch.Generator
    ) -> Iterator[_Block]:
        """Yields the blocks of some rows, but for those where nothing may be seen.

        Args:
            sentence: which of the batch.
            rows: which of its queries.
            query: (heads, rows, d_k), times `query_scale`.
            key: (heads, key, d_k), all of the sentence.
            generator: where the random numbers of dropout come from.
        """
        width = max(1, _BLOCK_ELEMENTS // (query.shape[0] * query.shape[1]))
        for columns in _slices(key.shape[1], width):
            visible = self._part(self.mask, sentence, rows, columns)
            if visible is not None and not visible.any():
                continue
            scores = _widen(query @ key[:, columns].transpose(1, 2))
            bias = self._part(self.bias, sentence, rows, columns)
            if bias is not None:
                scores.add_(bias, alpha=_LOG2_E)
            if visible is not None:
                # adding is faster than filling: what is filled is smaller by the heads
                scores += scores.new_zeros(visible.shape).masked_fill_(~visible, -torch.inf)
            kept = None
            if self.dropout:
                kept = draw_kept(scores.shape, self.dropout, generator).to(scores.dtype)
            yield _Block(columns, scores, kept)

    def _part(
        self, make: PartMaker | None, sentence: int, rows: slice, columns: slice
    ) -> Tensor | None:
        part = make(slice(sentence, sentence + 1), rows, columns) if make else None
        return None if part is None else part[0]


def _slices(length: int, size: int) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def _places(query: Tensor) -> Iterator[tuple[int, slice]]:
    """Yields the sentences of query, (batch, heads, query, d_k), with some rows of each."""
    for sentence in range(query.shape[0]):
        for rows in _slices(query.shape[2], _ROWS):
            yield sentence, rows


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _widen(x: Tensor) -> Tensor:
    return x.to(_wide(x.dtype))


def _empty_like(query: Tensor, d_v: int) -> Tensor:
    """Returns (batch, heads, query, d_v), which is joined without a copy if query was split so."""
    batch, heads, queries, _ = query.shape
    if query.is_contiguous():
        return query.new_empty(batch, heads, queries, d_v)
    return query.new_empty(batch, queries, heads, d_v).transpose(1, 2)


class _BlockwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, maker: _BlockMaker) -> Tensor:
        ctx.maker = maker
        # From this state the backward pass draws the same numbers again.
        ctx.random_state = torch.default_generator.get_state() if maker.dropout else None
        context = _empty_like(query, value.shape[3])
        log_sums = query.new_empty(*query.shape[:3], 1, dtype=_wide(query.dtype))
        with torch.autocast("cpu", enabled=False):
            for sentence, rows in _places(query):
                at = (sentence, slice(None), rows)
                scaled = query[at] * maker.query_scale
                blocks = maker.blocks(
                    sentence, rows, scaled, key[sentence], torch.default_generator
                )
                found, log_sums[at] = _gather(blocks, log_sums[at].shape, value[sentence])
                context[at] = found.mul_(maker.kept_scale)
        ctx.save_for_backward(query, key, value, context, log_sums)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, context, log_sums = ctx.saved_tensors
        maker: _BlockMaker = ctx.maker
        generator = torch.Generator()
        if ctx.random_state is not None:
            generator.set_state(ctx.random_state)
        query_grad = torch.empty_like(query)
        key_grad, value_grad = (_widen(torch.zeros_like(each)) for each in (key, value))
        for sentence, rows in _places(query):
            at = (sentence, slice(None), rows)
            scaled, arriving = query[at] * maker.query_scale, upstream[at] * maker.kept_scale
            # What softmax takes off: the sum over a row of weight times the weight's gradient.
            mean_grad = (_widen(upstream[at]) * context[at]).sum(-1, keepdim=True)
            row_grad = torch.zeros_like(scaled, dtype=mean_grad.dtype)
            for columns, scores, kept in maker.blocks(
                sentence, rows, scaled, key[sentence], generator
            ):
                here = (sentence, slice(None), columns)
                weights = scores.sub_(log_sums[at]).exp2_()
                weights_grad = _widen(arriving @ value[here].transpose(1, 2))
                if kept is not None:
                    weights_grad *= kept
                scores_grad = weights_grad.sub_(mean_grad).mul_(weights).to(query.dtype)
                seen = weights if kept is None else kept.mul_(weights)
                value_grad[here] += seen.to(value.dtype).transpose(1, 2) @ arriving
                key_grad[here] += scores_grad.transpose(1, 2) @ scaled
                row_grad += scores_grad @ key[here]
            query_grad[at] = row_grad.mul_(maker.scale)
        key_grad /= _LOG2_E  # which the scaled queries hold
        return query_grad, key_grad.to(key.dtype), value_grad.to(value.dtype), None


def _gather(blocks: Iterator[_Block], shape: torch.Size, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the context of some rows and the logarithm of the sum under each row's softmax.

    Args:
        blocks: all of these rows.
        shape: (heads, rows, 1).
        value: (heads, key, d_v).

    Returns:
        (heads, rows, d_v), zeros where a row sees nothing; and (heads, rows, 1), to base 2, there
        inf, so that its weights made again are 0.
    """
    wide = _wide(value.dtype)
    # The lowest number, not -inf: -inf minus itself would be NaN.
    highest = torch.full(shape, torch.finfo(wide).min, dtype=wide)
    total = torch.zeros_like(highest)
    context = torch.zeros(*shape[:2], value.shape[2], dtype=wide)
    for columns, scores, kept in blocks:
        before, highest = highest, torch.maximum(highest, scores.amax(-1, keepdim=True))
        fade = before.sub_(highest).exp2_()
        weights = scores.sub_(highest).exp2_()
        total.mul_(fade).add_(weights.sum(-1, keepdim=True))
        if kept is not None:
            weights *= kept
        context.mul_(fade).add_(weights.to(value.dtype) @ value[:, columns])
    blind = total == 0
    log_sums = (total.log2() + highest).masked_fill_(blind, torch.inf)
    return context.div_(total.masked_fill_(blind, 1)), log_sums


def blockwise_attention(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    mask: PartMaker | None,
    *,
    scale: float,
    bias: PartMaker | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads query d_v"]:
    """Computes softmax(scale QK^T + bias) V where mask allows, on a CPU.

    Under autocast the products are made in its type; sums are float32 at least. What the forward
    pass keeps is query, key, value, the context and one number for each row of weights.

    Args:
        query: (batch, heads, query, d_k).
        key: (batch, heads, key, d_k).
        value: (batch, heads, key, d_v).
        mask: makes parts of the mask, bool, True = may attend; None = all may.
        scale: factor on the scores.
        bias: makes parts of what is added to the scores, which gets no gradient.
        dropout: probability of losing an attention weight, 0 <= dropout < 1; rounded to a multiple
            of 1/65536. The random numbers come from torch's default generator.

    Returns:
        context, (batch, heads, query, d_v); zeros where a query may attend to nothing.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = (each.to(dtype) for each in (query, key, value))
    maker = _BlockMaker(mask, bias, scale, dropout)
    context: Tensor = _BlockwiseAttention.apply(query, key, value, maker)  # type: ignore[no-untyped-call]
    return context
