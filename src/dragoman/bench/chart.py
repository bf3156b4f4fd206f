"""A picture of a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.bench.report import Curves, Part, Table
from dragoman.view.figure import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS, _OTHERS = "tab:orange", "tab:gray"


def draw_report(parts: Sequence[Part], path: Path) -> None:
    """Draws each table as bars, whose lines reach from the lowest to the highest, and all curves.

    Args:
        parts: one or more.
        path: the PNG to write, whole or not at all.
    """
    from matplotlib.figure import Figure

    rows = [len(part.rows) if isinstance(part, Table) else 8 for part in parts]
    heights = [1.2 + 0.3 * count for count in rows]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    grid = figure.subplots(len(parts), 1, height_ratios=heights, squeeze=False)
    for axes, part in zip(grid[:, 0], parts, strict=True):
        axes.set_title(part.title, loc="left", fontsize="medium")
        if isinstance(part, Table):
            _draw_table(axes, part)
        else:
            _draw_curves(axes, part)
    save_figure(figure, path)


def _draw_table(axes: Axes, table: Table) -> None:
    rows = table.rows[::-1]  # the first one at the top
    medians = [row.summary.median for row in rows]
    below = [row.summary.median - row.summary.low for row in rows]
    above = [row.summary.high - row.summary.median for row in rows]
    colors = [_OURS if row.name.startswith("dragoman") else _OTHERS for row in rows]
    axes.barh([row.name for row in rows], medians, xerr=[below, above], color=colors, capsize=3)
    axes.set_xlabel(table.unit)
    axes.grid(axis="x", alpha=0.3)


def _draw_curves(axes: Axes, curves: Curves) -> None:
    for name, points in curves.series.items():
        axes.plot(list(points), list(points.values()), marker="o", markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(curves.x)
    axes.set_ylabel(curves.y)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
