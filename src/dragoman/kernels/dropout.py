"""Dropout from random words that are drawn four at a time.

Plain definition: `torch.nn.functional.dropout`. On a CPU torch draws one 64-bit number from its
generator for each element, which costs a quarter of a training step; here each number serves four
elements as four independent 16-bit words. Same generator, so the random state of a run stays one.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int16
from torch import Tensor, nn

_WORDS = 1 << 16


def draw_kept(
    shape: torch.Size, p: float, generator: torch.Generator | None = None
) -> Int16[Tensor, "*shape"]:
    """Draws which elements of a tensor stay: 1, with probability 1 - p, or 0.

    Args:
        shape: of the tensor.
        p: probability, 0 <= p < 1; rounded to a multiple of 1/65536.
        generator: of random numbers, on the CPU; torch's own if None.
    """
    count = math.prod(shape)
    draws = torch.empty(count // 4 + 1, dtype=torch.int64)
    words = draws.random_(-(2**63), None, generator=generator).view(torch.int16)
    # in place and into the words' own type: many times faster than into bool
    return words[:count].view(shape).ge_(_dropped(p) - _WORDS // 2)


def kept_scale(p: float) -> float:
    """Returns what the elements that `draw_kept` keeps are multiplied by."""
    return _WORDS / (_WORDS - _dropped(p))


def _dropped(p: float) -> int:
    return min(round(p * _WORDS), _WORDS - 1)


class _Dropout(torch.autograd.Function):
    """Keeps for the gradient one small integer an element, not the factor that it becomes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        kept = draw_kept(x.shape, p)
        ctx.save_for_backward(kept)
        ctx.scale = kept_scale(p)
        return x * kept.to(x.dtype).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        [kept] = ctx.saved_tensors
        return grads[0] * kept.to(grads[0].dtype).mul_(ctx.scale), None


def dropout(x: Tensor, p: float) -> Tensor:
    """Sets elements of x to 0 with probability p and divides the others by what is kept.

    Args:
        x: any shape, floating point.
        p: probability, 0 <= p < 1; on a CPU rounded to a multiple of 1/65536.
    """
    if x.device.type != "cpu":
        return F.dropout(x, p)
    kept: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
    return kept


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training and self.p > 0 else x

    def extra_repr(self) -> str:
        return f"p={self.p}"
