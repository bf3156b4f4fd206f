"""What several seeds say together. No torch needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

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
        return self.low > 0 or self.high < 0


def curve_band(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, Band]]:
    """Returns the band of several curves at each place that all of them have."""
    by_place = [dict(curve) for curve in curves]
    places = sorted(set.intersection(*map(set, by_place))) if by_place else []
    return [(place, Band.of([curve[place] for curve in by_place])) for place in places]


def bootstrap_difference(
    higher: Sequence[Sequence[float]],
    lower: Sequence[Sequence[float]],
    confidence: float = _CONFIDENCE,
) -> Difference:
    """Estimates a difference of mean scores, with an interval that holds it in 95 of 100 cases.

    Seeds are drawn with replacement, then test items. Both variants share their seeds and their
    items, so that what a seed or an item does to both cancels. Few seeds lie closer together than
    many would, so the interval is stretched as Student's t is wider than a normal distribution:
    2.7 times where three seeds are all that varies. One seed says nothing about other seeds: the
    interval then comes from the items alone and is too narrow.

    Args:
        higher: (seeds, items): scores of one variant.
        lower: (seeds, items): scores of the other, of the same seeds and items.
        confidence: another share of cases than 0.95; higher where any of several differences
            decides.
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
    tail = (1 - confidence) / 2
    mean, factor = float(differences.mean()), _stretch(differences, confidence)
    low, high = mean + factor * (np.quantile(means, [tail, 1 - tail]) - mean)
    return Difference(mean, float(low), float(high))


def _stretch(differences: npt.NDArray[np.float64], confidence: float) -> float:
    """Returns how much wider than resampling says the interval of a mean is.

    Resampling takes the variance of n seeds for (n - 1) / n of what it is. What is left is known
    with so many degrees of freedom (Welch 1947, Satterthwaite 1946) as its two parts have, what
    seeds do and what items do.
    """
    seeds, items = differences.shape
    if seeds == 1:
        return 1.0
    of_seeds = differences.mean(axis=1).var(ddof=1) / seeds
    of_items = differences.mean(axis=0).var(ddof=1) / items if items > 1 else 0.0
    whole = of_seeds + of_items
    if whole <= 1e-12 * np.square(differences).mean():
        return 1.0
    freedom = whole**2 / (of_seeds**2 / (seeds - 1) + of_items**2 / max(1, items - 1))
    too_small = (of_seeds * (seeds - 1) / seeds + of_items) / whole
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    return student_quantile(freedom, confidence) / normal / math.sqrt(too_small)


def student_quantile(freedom: float, confidence: float = _CONFIDENCE) -> float:
    """Returns how far from 0 Student's t, with so many degrees of freedom, is in so many cases."""
    angle = np.linspace(0, math.pi / 2, 20_001)[:-1]  # t = tan(angle) x sqrt(freedom)
    density = np.cos(angle) ** (freedom - 1)
    area = np.cumsum((density[1:] + density[:-1]) / 2)
    place = np.interp(confidence * area[-1], area, angle[1:])
    return math.tan(place) * math.sqrt(freedom)
