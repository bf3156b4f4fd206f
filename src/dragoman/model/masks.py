"""Who may attend to whom. Said once, here: bool, True = may attend."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dragoman.config import PAD
from dragoman.kernels.attention import is_long
from dragoman.kernels.blockwise import PartMaker


def sequence_lengths(ids: Int[Tensor, "batch length"]) -> Int[Tensor, " batch"]:
    """Returns how many tokens of each row stand before its padding.

    Args:
        ids: (batch, length), padded on the right with PAD.

    Returns:
        (batch,), int64.
    """
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return ((ids != PAD) * positions).amax(-1) if ids.shape[1] else ids.new_zeros(ids.shape[0])


@dataclass(frozen=True)
class AttentionMask:
    """What a batch lets its queries see: a value made from the input at each call.

    A kernel realises it, so that no matrix is made where none is needed.
    """

    key_lengths: Int[Tensor, " batch"] | None = None
    """(batch,): keys at and behind a row's length are padding; None: there is no padding."""
    causal: bool = False
    """Whether a query sees no key behind its own position (section 3.2.3)."""
    _realised: dict[tuple[int, int], Tensor | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def realise(
        self,
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
    ) -> Bool[Tensor, "#batch 1 #query key"] | None:
        """Makes the matrix, (batch or 1, 1, query, key), or None where all see all.

        The last query stands at the last key: with cached keys the queries are the newest tokens.

        Args:
            queries: (batch, heads, query, d_k).
            keys: (batch, heads, key, d_k).
        """
        shape = (queries.shape[2], keys.shape[2])
        if shape not in self._realised:
            self._realised[shape] = self._part(shape, keys.device, *[slice(None)] * 3)
        return self._realised[shape]

    def parts(
        self,
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
    ) -> Bool[Tensor, "#batch 1 #query key"] | PartMaker | None:
        """As `realise`, but of a large causal matrix only what makes the parts that are wanted.

        Args:
            queries: as in `realise`.
            keys: as in `realise`.
        """
        if self.causal and is_long(queries, keys):
            return partial(self._part, (queries.shape[2], keys.shape[2]), keys.device)
        return self.realise(queries, keys)

    def _part(
        self,
        shape: tuple[int, int],
        device: torch.device,
        sentences: slice,
        rows: slice,
        columns: slice,
    ) -> Tensor | None:
        queries, keys = range(shape[1] - shape[0], shape[1])[rows], range(shape[1])[columns]
        at_key = torch.arange(keys.start, keys.stop, device=device)
        mask = None
        if self.key_lengths is not None:
            lengths = self.key_lengths[sentences]
            if bool((lengths < keys.stop).any()):
                mask = (at_key < lengths[:, None])[:, None, None, :]
        if self.causal and queries.start < keys.stop - 1:
            at_query = torch.arange(queries.start, queries.stop, device=device)
            triangle = (at_key <= at_query[:, None])[None, None]
            mask = triangle if mask is None else mask & triangle
        return mask
