"""Curves of a training run: loss, scores and learning rate over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.config import TrainingConfig
from dragoman.training.schedule import learning_rate
from dragoman.view.figure import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]

_POINTS = 1000
"""About so many steps of a schedule are drawn."""


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


@dataclass(frozen=True)
class Schedule:
    """The learning rate over the steps of a run."""

    name: str
    warmup_steps: int
    steps: list[int]
    learning_rates: list[float]


def read_schedule(config: TrainingConfig, d_model: int) -> Schedule:
    """Returns the schedule of a run, by the function that its optimizer asks.

    Up to the run's last step, or four times the warm-up where that is later; the warm-up's end is
    among the steps.
    """
    last, warmup = max(config.max_steps, 4 * config.warmup_steps), config.warmup_steps
    steps = sorted({*range(1, last + 1, max(1, last // _POINTS)), max(1, warmup), last})
    rates = [learning_rate(step, config, d_model) for step in steps]
    return Schedule(config.schedule, warmup, steps, rates)


def draw_schedule(schedule: Schedule, path: Path) -> None:
    """Draws the learning rate over the steps, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    peak = max(schedule.learning_rates)
    axes.plot(schedule.steps, schedule.learning_rates, label=f"{schedule.name}, peak {peak:.3g}")
    if schedule.warmup_steps:
        label = f"end of the warm-up, step {schedule.warmup_steps:,}"
        axes.axvline(schedule.warmup_steps, color="grey", linestyle="--", label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate (Adam's step size)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
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
