"""Curves of a training run: loss and scores over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.view.figure import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]


def draw_curves(metrics: Rows, path: Path) -> None:
    """Draws the loss and the scores of a training run, as a PNG.

    Args:
        metrics: The rows of a `metrics.jsonl`. Those with the event `log` have step and loss, those
            with `validation` step, loss, bleu and chrf; what is absent isn't drawn.
        path: The file to write, whole or not at all.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    losses, scores = figure.subplots(1, 2, sharex=True)
    _draw_series(losses, metrics, "log", "loss", "train")
    _draw_series(losses, metrics, "validation", "loss", "validation")
    losses.set_ylabel("loss (nats/token)")
    _draw_series(scores, metrics, "validation", "bleu", "BLEU, validation")
    _draw_series(scores, metrics, "validation", "chrf", "chrF, validation")
    scores.set_ylabel("score (0-100)")
    scores.set_ylim(0, 100)
    for axes in (losses, scores):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    save_figure(figure, path)


def _draw_series(axes: Axes, metrics: Rows, event: str, key: str, label: str) -> None:
    points = [
        (row["step"], row[key])
        for row in metrics
        if row["event"] == event and row.get(key) is not None
    ]
    if points:
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, label=label, marker="" if event == "log" else "o", markersize=4)
