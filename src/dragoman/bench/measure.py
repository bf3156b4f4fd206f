"""What can be said of the times of several rounds. No torch needed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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
