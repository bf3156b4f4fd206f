"""One translation seen from all sides: attention, other measures, the whole model beside a cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.model.seq2seq import Seq2Seq
from dragoman.view.attribution import Comparison, compare
from dragoman.view.reading import Reading

_DECIMALS = 8
"""To so many the numbers of a JSON file are rounded."""


@dataclass(frozen=True)
class Inspection:
    """What `dragoman attend` shows of a text and its translation."""

    model: Seq2Seq
    reading: Reading
    without: tuple[str, ...] = ()
    """The parts that were taken away from the model."""
    before: Reading | None = None
    """The whole model's reading, where parts were taken away."""

    @cached_property
    def comparison(self) -> Comparison | None:
        """Measures to compare attention with; None for a model without cross-attention."""
        return compare(self.model, self.reading)

    def to_json(self) -> dict[str, Any]:
        """Returns all of it under the keys that `dragoman attend --help` lists."""
        reading, comparison = self.reading, self.comparison
        content = {
            **reading.sentence(),
            "source": reading.source.pieces,
            "source_ids": reading.source.ids,
            "target": reading.target.pieces,
            "target_ids": reading.target.ids,
            "target_input": reading.target_input.pieces,
            "encoder": _rounded(reading.encoder),
            "decoder": _rounded(reading.decoder),
            "cross": _rounded(reading.cross),
            "comparison": None,
            "without": list(self.without),
            "before": None if self.before is None else self.before.sentence(),
        }
        if comparison is not None:
            measures = {name: _rounded(each) for name, each in comparison.measures().items()}
            content["comparison"] = {**measures, "spearman": comparison.spearman()}
        return content


def _rounded(numbers: npt.NDArray[np.floating] | None) -> Any:
    return None if numbers is None else numbers.astype(np.float64).round(_DECIMALS).tolist()
