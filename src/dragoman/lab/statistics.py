"""What several seeds say together. No torch needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 2000
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Band:
    """A mean and how far the seeds lie apart."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Band:
        """Returns the mean, the lowest and the highest of some numbers, at least one."""
        return cls(float(np.mean(values)), min(values), max(values))


@dataclass(frozen=True)
class Difference:
    """How much higher one variant scores than another."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out; if not, the difference is within noise."""
        return not self.low <= 0 <= self.high


def curve_band(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, Band]]:
    """Returns the band of several curves at each place that all of them have."""
    by_place = [dict(curve) for curve in curves]
    places = sorted(set.intersection(*map(set, by_place))) if by_place else []
    return [(place, Band.of([curve[place] for curve in by_place])) for place in places]


def bootstrap_difference(
    higher: Sequence[Sequence[float]], lower: Sequence[Sequence[float]]
) -> Difference:
    """Estimates a difference of mean scores, with an interval that holds it in 95 of 100 cases.

    Seeds are drawn with replacement, then test items. Both variants share their seeds and their
    items, so that what a seed or an item does to both cancels. One seed says nothing about other
    seeds: the interval then comes from the items alone and is too narrow.

    Args:
        higher: (seeds, items): scores of one variant.
        lower: (seeds, items): scores of the other, of the same seeds and items.
    """
    differences = np.asarray(higher, np.float64) - np.asarray(lower, np.float64)
    seeds, items = differences.shape
    random = np.random.default_rng(0)
    means = [
        differences[random.integers(seeds, size=seeds)][
            :, random.integers(items, size=items)
        ].mean()
        for _ in range(_RESAMPLES)
    ]
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Difference(float(differences.mean()), float(low), float(high))
