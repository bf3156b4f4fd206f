"""Puts sentences of like length together, so that a batch holds much text and little padding."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.config import InputError

Indices = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.integer[Any]]
Parts = Sequence[tuple[int, float]]
"""Pairs and weight of each corpus, one after the other: how often an epoch reads each pair."""


def _cut(order: Indices, longest: Lengths, batch_tokens: int) -> list[Indices]:
    """Cuts an order into batches of as many sentences as the budget holds, at least one.

    Args:
        order: (sentences): what to cut.
        longest: (sentences): the longest side of each, in that order.
        batch_tokens: The most that sentences x longest side of a batch may be.
    """
    batches = []
    start = 0
    while start < len(order):
        most = max(1, batch_tokens // int(longest[start]))
        widths = np.maximum.accumulate(longest[start : start + most])
        costs = widths.astype(np.int64) * np.arange(1, len(widths) + 1)
        size = max(1, int(np.searchsorted(costs, batch_tokens, side="right")))
        batches.append(order[start : start + size])
        start += size
    return batches


_POOL_PAIRS = 1 << 19
"""Pairs that are put in order of length together; of the others planning keeps the order alone."""


def _sort_by_length(
    order: Indices, lengths: Lengths, batch_tokens: int, random: np.random.Generator
) -> list[Indices]:
    """Cuts shuffled pairs into batches of like length, and shuffles the batches.

    Args:
        order: (chosen): indices of pairs in random order.
        lengths: (chosen, 2): their tokens of source and target.
        batch_tokens: The most that pairs x longest side of a batch may be.
        random: decides the rest.
    """
    # Among pairs of one longest side the other sides grow and, at the next longest side, shrink
    # again, so that no batch holds both ends. The noise mixes near neighbours: on Multi30k at
    # 4,096 tokens padding is 4.3 % of both sides and batchmates meet again with a chance of 0.48.
    # Without noise it is 3.3 % and 0.66, by the longest side alone 7.0 % and 0.21.
    widest = lengths.max(axis=1)
    lean = lengths[:, 0] - lengths[:, 1] + random.uniform(-1, 1, len(order))
    by_length = np.lexsort((np.where(widest % 2, lean, -lean), widest))
    batches = _cut(order[by_length], widest[by_length], batch_tokens)
    return [batches[i] for i in random.permutation(len(batches))]


def _read_in_epoch(size: int, weight: float, seed: int, epoch: int) -> Indices:
    """Returns which of the pairs of a corpus an epoch reads: weight x size of them.

    The corpus is read round and round in one shuffled order, so that with a weight of a quarter
    four epochs read every pair once.
    """
    if weight == 1:
        return np.arange(size)
    start, stop = (int(weight * size * end) for end in (epoch, epoch + 1))
    return np.random.default_rng(seed).permutation(size)[np.arange(start, stop) % size]


_NEARLY_FULL = 0.9
"""Of the most tokens that a batch can have, what is as good as all of them."""


class EpochPlan:
    """The batches of an epoch, made a pool of pairs at a time.

    The pairs are shuffled and cut into pools. Those of a pool are sorted by length, so that pairs
    of one length fall into other batches each epoch; then its batches are shuffled.

    Attributes:
        pools: how many there are; the last one may be a part of one.
    """

    def __init__(
        self,
        lengths: Lengths,
        batch_tokens: int,
        seed: int,
        epoch: int,
        parts: Parts | None = None,
    ) -> None:
        """Shuffles the pairs of an epoch.

        Args:
            lengths: (pairs, 2): tokens of source and target, EOS included.
            batch_tokens: The most that pairs x longest side of a batch may be.
            seed: With `epoch`, decides the whole plan.
            epoch: Counts from 0.
            parts: What the pairs are of; all are read once if None.
        """
        self._lengths, self._batch_tokens = lengths, batch_tokens
        self._bits = np.random.PCG64((seed, epoch))
        random = np.random.Generator(self._bits)
        parts = [(len(lengths), 1.0)] if parts is None else parts
        starts = np.cumsum([0, *(size for size, _ in parts)])
        chosen = np.concatenate(
            [
                start + _read_in_epoch(size, weight, seed, epoch)
                for start, (size, weight) in zip(starts, parts, strict=False)
            ]
        )
        self._order = chosen[random.permutation(len(chosen))].astype(np.uint32)
        self.pools = len(chosen) / _POOL_PAIRS

    def pool(self, number: int) -> list[Indices]:
        """Returns the batches of a pool, the indices of the pairs of each.

        Raises:
            InputError: if a pair doesn't fit into a batch of its own.
        """
        order = self._order[number * _POOL_PAIRS :][:_POOL_PAIRS].astype(np.int64)
        lengths = np.asarray(self._lengths[order])
        require_fit(int(lengths.max(initial=0)), self._batch_tokens)
        # each pool has a stretch of the random numbers of its own, so that any can be made alone
        bits = self._bits.jumped(number) if number else copy.deepcopy(self._bits)
        return _sort_by_length(order, lengths, self._batch_tokens, np.random.Generator(bits))


def largest_batches(
    lengths: Lengths, batch_tokens: int, bounds: Sequence[int] = (), parts: Parts | None = None
) -> list[tuple[int, int]]:
    """Returns pairs and tokens of each side of some batches; one takes as much memory as any can.

    They have the longest sentences; as many tokens as can be, where the longest leave much of a
    batch empty; and the longest sentences within each bound, behind which memory falls.

    Args:
        lengths: (pairs, 2): tokens of source and target, EOS included.
        batch_tokens: The most that pairs x longest side of a batch may be.
        bounds: Tokens of a side.
        parts: As for an `EpochPlan`; no batch has more pairs than an epoch.
    """
    parts = [(len(lengths), 1.0)] if parts is None else parts
    in_epoch = math.ceil(sum(size * weight for size, weight in parts))
    widths: list[int] = np.unique(lengths.max(axis=1)).tolist()
    pairs = {w: max(1, min(batch_tokens // w, in_epoch, _POOL_PAIRS)) for w in widths}
    most = max(w * count for w, count in pairs.items())
    full = [w for w, count in pairs.items() if w * count >= _NEARLY_FULL * most]
    within = ([w for w in widths if w <= bound] for bound in bounds)
    chosen = (each[-1] for each in (widths, full, *within) if each)
    return [(pairs[w], w) for w in dict.fromkeys(chosen)]


def require_fit(longest: int, batch_tokens: int) -> None:
    """Checks that the longest sentence fits into a batch.

    Raises:
        InputError: if it doesn't.
    """
    if longest > batch_tokens:
        raise InputError(
            f"the longest sentence has {longest} tokens, training.batch_tokens is {batch_tokens}, "
            f"accepted is at least {longest}",
            "or leave long sentences out with data.max_length",
        )


def plan_in_order(lengths: Lengths, batch_tokens: int) -> list[Indices]:
    """Returns batches for decoding, shortest first; a sentence above the budget gets its own.

    Args:
        lengths: (sentences): tokens of each, EOS included.
        batch_tokens: The most that sentences x longest of a batch may be.
    """
    order = np.argsort(lengths, kind="stable")
    return _cut(order, lengths[order], batch_tokens)
