"""The pictures of an experiment in one PNG, for papers and slides; in English. No torch needed.

matplotlib is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.lab.picture import COLORS, Curves, HeatMaps, Picture
from dragoman.view.figure import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

_COLUMNS = 2
_SIZE = (6.4, 4.2)
"""Of a picture, inches."""
_STYLES = ("-", "--", ":", "-.")
"""Of lines whose colour has been used before."""


def draw_pictures(pictures: Sequence[Picture], path: Path) -> None:
    """Draws pictures beside and below each other; at least one.

    Args:
        pictures: what to draw.
        path: the file to write, whole or not at all.
    """
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    figure = Figure(figsize=(_SIZE[0] * columns, _SIZE[1] * rows), layout="constrained")
    places = figure.subfigures(rows, columns, squeeze=False).flat
    for picture, place in zip(pictures, places, strict=False):  # the last row may have room
        if isinstance(picture, Curves):
            _draw_curves(picture, place)
        else:
            _draw_heat_maps(picture, place)
    save_figure(figure, path)


def _draw_curves(curves: Curves, place: SubFigure) -> None:
    axes = place.subplots()
    for number, series in enumerate(curves.series):
        across = [x for x, _ in series.points]
        color = COLORS[number % len(COLORS)]
        style = _STYLES[number // len(COLORS) % len(_STYLES)]
        means = [band.mean for _, band in series.points]
        axes.plot(across, means, style, color=color, marker=".", label=series.name.en)
        lows, highs = zip(*((band.low, band.high) for _, band in series.points), strict=True)
        axes.fill_between(across, lows, highs, color=color, alpha=0.18, linewidth=0)
    if curves.log_x:
        axes.set_xscale("log")
    if curves.ticks:
        axes.set_xticks(curves.ticks, [f"{tick:g}" for tick in curves.ticks])
        axes.minorticks_off()
    if curves.log_y:
        axes.set_yscale("log")
    elif min(curves.up) >= 0:
        axes.set_ylim(bottom=0)
    axes.set_title(curves.label.en, fontsize="medium", loc="left")
    axes.set_xlabel(curves.x.en)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _draw_heat_maps(maps: HeatMaps, place: SubFigure) -> None:
    place.suptitle(maps.label.en, fontsize="medium")
    columns = math.ceil(math.sqrt(len(maps.grids)))
    rows = -(-len(maps.grids) // columns)
    every = list(place.subplots(rows, columns, squeeze=False).flat)
    low, colors = (-maps.largest, "RdBu") if maps.signed else (0.0, "Blues")
    for axes, (name, grid) in zip(every, maps.grids, strict=False):
        image = axes.imshow(grid, vmin=low, vmax=maps.largest, cmap=colors)
        axes.set_title(name.en, fontsize="small")
        axes.locator_params(integer=True)
    for axes in every[len(maps.grids) :]:
        axes.set_axis_off()
    place.supxlabel(maps.x.en, fontsize="small")
    place.supylabel(maps.y.en, fontsize="small")
    place.colorbar(image, ax=every, shrink=0.6)
