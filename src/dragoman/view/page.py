"""One self-contained HTML page about what a model looks at.

The page is made of page.html, page.css and page.js, which stand beside this file; nothing of it is
loaded from elsewhere.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.config import InputError
from dragoman.data.atomic import write_text
from dragoman.view.inspection import Inspection

ROUNDED_TO = 0.001
"""The page's weights and effects are whole multiples of this; it says so."""


def write_page(inspection: Inspection, path: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        InputError: for a model without any attention.
    """
    content = json.dumps(_content(inspection), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "style": _read("page.css"),
        "script": _read("page.js"),
        "data": content.replace("<", "\\u003c"),  # else a text could end the element
    }
    # in one pass, for a text may hold what looks like a place of another part
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html")))


def _read(name: str) -> str:
    return files("dragoman.view").joinpath(name).read_text("utf-8")


def _content(inspection: Inspection) -> dict[str, Any]:
    reading, before = inspection.reading, inspection.before
    comparison = inspection.comparison
    kinds = {
        "encoder": (reading.encoder, "source", "source"),
        "decoder": (reading.decoder, "target_input", "target_input"),
        "cross": (reading.cross, "target", "source"),
    }
    if all(weights is None for weights, _, _ in kinds.values()):
        raise InputError(
            f"the text {reading.text[:20]!r} gives no attention to look at, accepted is a model "
            f"with attention"
        )
    return {
        "rounded_to": ROUNDED_TO,
        **reading.sentence(),
        "without": list(inspection.without),
        "before": None if before is None else before.sentence(),
        "tokens": {
            "source": reading.source.labels,
            "target": reading.target.labels,
            "target_input": reading.target_input.labels,
        },
        "kinds": {
            name: {"weights": _in_units(weights), "rows": rows, "columns": columns}
            for name, (weights, rows, columns) in kinds.items()
            if weights is not None
        },
        "comparison": comparison
        and {
            "measures": {
                name: _in_units(measure) for name, measure in comparison.measures().items()
            },
            "spearman": comparison.spearman(),
        },
    }


def _in_units(weights: npt.NDArray[np.floating]) -> Any:
    return np.rint(weights / ROUNDED_TO).astype(int).tolist()
