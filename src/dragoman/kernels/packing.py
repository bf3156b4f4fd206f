"""Batches without work on padding.

Plain definition: `x[real]`, and its inverse. Here both are selections of whole rows, which on a CPU
cost less than the transposition of heads and positions that they take the place of.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class _Select(torch.autograd.Function):
    """Takes rows of x; the gradient takes them back and sets what came from nowhere to zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, back: Tensor, empty: Tensor) -> Tensor:
        ctx.save_for_backward(back, empty)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        back, empty = ctx.saved_tensors
        return grads[0].index_select(0, back).index_fill_(0, empty, 0.0), None, None, None


def _select(x: Tensor, rows: Tensor, back: Tensor, empty: Tensor) -> Tensor:
    selected: Tensor = _Select.apply(x, rows, back, empty)  # type: ignore[no-untyped-call]
    return selected


class PackingIndex:
    """Where each row of a packed batch stands in the padded one, and the other way round.

    A token has `parts` rows, one a head; in the padded batch the rows of a part stand together.
    """

    def __init__(self, real: Bool[Tensor, "batch length"], parts: int = 1) -> None:
        """Looks for the real tokens.

        Args:
            real: (batch, length), True where a token is real; one at least.
            parts: rows of each token.
        """
        batch, length = real.shape
        self._shape = (batch, parts, length)
        part = torch.arange(parts, device=real.device)
        rows = real.flatten().nonzero()
        self._in_padded = ((rows // length * parts + part) * length + rows % length).flatten()
        # A padded place shows the first token: any number will do that isn't NaN.
        place = (real.flatten().cumsum(0) - 1).clamp(min=0).view(batch, 1, length)
        self._in_packed = (place * parts + part[:, None]).flatten()
        self._padding = (~real)[:, None].expand(self._shape).flatten().nonzero().flatten()
        self._nothing = self._padding[:0]

    def pad(self, x: Float[Tensor, "rows d"]) -> Float[Tensor, "batch parts length d"]:
        """Spreads (tokens * parts, d) out to (batch, parts, length, d).

        What stands at padding is arbitrary and finite, and its gradient is taken for zero: nobody
        may look at it, which masks and `pack` see to.
        """
        return _select(x, self._in_packed, self._in_padded, self._nothing).view(*self._shape, -1)

    def pack(self, x: Float[Tensor, "batch parts length d"]) -> Float[Tensor, "rows d"]:
        """Brings the real ones of (batch, parts, length, d) together, (tokens * parts, d)."""
        return _select(x.flatten(0, 2), self._in_padded, self._in_packed, self._padding)
