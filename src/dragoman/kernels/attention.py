"""Attention without weights to look at.

Plain definition: `dragoman.model.attention.scaled_dot_product_attention`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from dragoman.kernels.blockwise import PartMaker, blockwise_attention
from dragoman.kernels.dropout import dropout as drop

_LONG, _LONG_NARROW = 1 << 16, 1 << 18
"""Pairs of a query and a key of a sentence from which a CPU keeps no weights, in float32 and in
bfloat16. Measured beside two whole products, 4 heads of 64, forward and backward: blockwise at
256 x 256 takes 0.8 to 1.0 of the time, at 1024 x 1024 0.5 (causal) to 0.8, with dropout or without;
torch's function, which has no dropout, 0.5 to 0.8 and 0.4 to 0.7. At 128 x 128 there is little to
spare. What bfloat16 takes was not measured where its products are fast: there the limit is set for
the memory alone."""
_ALL = (slice(None), slice(None), slice(None))


def longest_with_weights(precision: str) -> int:
    """Returns the tokens of the longest sentence of whose attention a CPU keeps the weights."""
    return math.isqrt((_LONG_NARROW if precision == "bfloat16" else _LONG) - 1)


def is_long(query: Tensor, key: Tensor) -> bool:
    """Says whether `fused_attention` keeps no weights on a CPU, whose memory would be n x n.

    Args:
        query: (batch, heads, query, d_k).
        key: (batch, heads, key, d_k).
    """
    limit = _LONG_NARROW if query.dtype == torch.bfloat16 else _LONG
    return query.shape[2] * key.shape[2] >= limit


def fused_attention(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    mask: Tensor | PartMaker | None,
    *,
    scale: float,
    bias: Tensor | PartMaker | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads query d_v"]:
    """Computes softmax(scale QK^T + bias) V where mask allows.

    A GPU takes torch's fused function. So does a CPU for long sentences, where the function's own
    memory does not grow with the square of the length; where it does, the blockwise kernel takes
    its place. Short sentences take two batched products around an in-place mask: on a CPU several
    times faster than the fused function can be.

    Args:
        query: (batch, heads, query, d_k).
        key: (batch, heads, key, d_k).
        value: (batch, heads, key, d_v).
        mask: bool, broadcastable to (batch, heads, query, key), True = may attend, or what makes
            parts of it, so that the whole of it need not be; None = all may.
        scale: factor on the scores.
        bias: added to the scores, given like mask.
        dropout: probability of losing an attention weight.

    Returns:
        context, (batch, heads, query, d_v); zeros where a query may attend to nothing.
    """
    mask, bias = _in_four_dimensions(mask), _in_four_dimensions(bias)
    if query.device.type != "cpu":
        return _torch_attention(query, key, value, _whole(mask), scale, _whole(bias), dropout)
    if not is_long(query, key) or (isinstance(bias, Tensor) and bias.requires_grad):
        return _two_products(query, key, value, _whole(mask), scale, _whole(bias), dropout)
    if _torch_is_linear(query, mask, bias, dropout):
        return _torch_attention(query, key, value, _whole(mask), scale, None, 0.0)
    return blockwise_attention(
        query, key, value, _parts(mask), scale=scale, bias=_parts(bias), dropout=dropout
    )


def _in_four_dimensions(matrix: Tensor | PartMaker | None) -> Tensor | PartMaker | None:
    return matrix[(None,) * (4 - matrix.dim())] if isinstance(matrix, Tensor) else matrix


def _torch_is_linear(
    query: Tensor, mask: Tensor | PartMaker | None, bias: Tensor | PartMaker | None, dropout: float
) -> bool:
    """Says whether torch's function makes no n x n matrix on a CPU, and is known to be fast."""
    of_keys = mask is None or (isinstance(mask, Tensor) and mask.shape[-2] == 1)
    return of_keys and bias is None and not dropout and query.dtype != torch.bfloat16


def _whole(matrix: Tensor | PartMaker | None) -> Tensor | None:
    return matrix if matrix is None or isinstance(matrix, Tensor) else matrix(*_ALL)


def _parts(matrix: Tensor | PartMaker | None) -> PartMaker | None:
    if not isinstance(matrix, Tensor):
        return matrix

    def part(sentences: slice, rows: slice, columns: slice) -> Tensor:
        wanted = zip(matrix.shape, (sentences, slice(None), rows, columns), strict=True)
        return matrix[tuple(slice(None) if size == 1 else wish for size, wish in wanted)]

    return part


def _two_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    scores = (query * scale) @ key.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill_(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    if dropout > 0:
        weights = drop(weights, dropout)
    context = weights @ value
    return context if mask is None else _zero_where_blind(context, mask)


def _torch_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    additive = mask
    if bias is not None:
        additive = bias.to(query.dtype)
        if mask is not None:
            additive = additive.masked_fill(~mask, torch.finfo(query.dtype).min)
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask=additive, dropout_p=dropout, scale=scale
    )
    return context if mask is None else _zero_where_blind(context, mask)


def _zero_where_blind(context: Tensor, mask: Tensor) -> Tensor:
    sighted = mask.any(-1, keepdim=True)
    return context.masked_fill(~sighted, 0.0)
