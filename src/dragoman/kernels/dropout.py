"""Dropout from random words that are drawn four at a time.

Plain definition: `torch.nn.functional.dropout`. On a CPU torch draws one 64-bit number from its
generator for each element, which costs a quarter of a training step; here each number serves four
elements as four independent 16-bit words. Same generator, so the random state of a run stays one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_WORDS = 1 << 16


class _Dropout(torch.autograd.Function):
    """Keeps for the gradient one small integer an element, not the factor that it becomes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        dropped = min(round(p * _WORDS), _WORDS - 1)
        draws = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None)
        words = draws.view(torch.int16)[: x.numel()].view(x.shape)
        # in place and into the words' own type: many times faster than into bool
        keep = words.ge_(dropped - _WORDS // 2)
        ctx.save_for_backward(keep)
        ctx.scale = _WORDS / (_WORDS - dropped)
        return x * keep.to(x.dtype).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        [keep] = ctx.saved_tensors
        return grads[0] * keep.to(grads[0].dtype).mul_(ctx.scale), None


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
