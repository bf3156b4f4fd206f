"""Rounds in turn, and what can be said of their times. No torch needed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Summary:
    """Some measured values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarises one value or more."""
        return cls(statistics.median(values), min(values), max(values))

    @property
    def spread(self) -> float:
        """The distance of the highest from the lowest, as a share of the median."""
        return (self.high - self.low) / self.median


def interleave(
    measures: Mapping[str, Callable[[], Answer]], rounds: int
) -> Iterator[tuple[int, str, Answer]]:
    """Yields round, name and answer of each measure in turn: A B C, A B C and so on.

    What slows the machine down for a while so meets all of them, and not one alone.
    """
    for number in range(rounds):
        for name, measure in measures.items():
            yield number, name, measure()
