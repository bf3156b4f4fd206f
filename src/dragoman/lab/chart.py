"""Curves and heat maps as SVG, each with its legend in HTML, to stand in a page. No torch needed.

What a mark says when it is pointed at is its `title`; the words around a picture are HTML, which
breaks lines and keeps its size where the picture shrinks.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.lab.experiment import Text
from dragoman.lab.picture import COLORS, Curves, Grid, HeatMaps, Picture, Points

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 420, 240, 46, 16, 22, 8
_TICKS = 5
_DASHES = ("solid", "dashed", "dotted", "double")
"""Of lines whose colour has been used before."""
_STROKES = {"solid": "", "dashed": "7 4", "dotted": "2 3", "double": "9 3 2 3"}
_CELL, _FEW_CELLS = 20, 12
"""A cell's side; rows and columns are all numbered if there are no more, else each fifth."""
_LOG = Text(" (logarithmic)", "（对数刻度）")


@dataclass(frozen=True)
class _Scale:
    """From values to places on the page."""

    low: float
    high: float
    start: float
    stop: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, stop: float, log: bool) -> _Scale:
        low, high = min(values), max(values)
        return cls(low, high if high > low else low + 1, start, stop, log)

    def __call__(self, value: float) -> float:
        low, value, high = (
            math.log10(each) if self.log else each for each in (self.low, value, self.high)
        )
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Returns round numbers between its ends."""
        if self.log:
            return self._log_ticks()
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        powers = range(first, last + 1, -(-(last - first) // (2 * _TICKS)) or 1)
        factors = (1,) if last - first > 3 else (1, 2, 5)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        return [tick for tick in ticks if self.low <= tick * (1 + 1e-9) and tick <= self.high]


def bilingual(text: Text, tag: str = "span") -> str:
    """Returns both languages as elements, one of which is shown."""
    return "".join(
        f'<{tag} lang="{lang}">{html.escape(words)}</{tag}>'
        for lang, words in (("en", text.en), ("zh-Hans", text.zh))
    )


def draw(picture: Picture) -> str:
    """Draws a picture with all that is said around it."""
    return draw_curves(picture) if isinstance(picture, Curves) else draw_heat_maps(picture)


def draw_curves(curves: Curves) -> str:
    """Draws each series as a line in a band that reaches from the lowest to the highest seed."""
    across = _Scale.over(curves.across, _LEFT, _WIDTH - _RIGHT, curves.log_x)
    ground = [] if curves.log_y else [0.0]
    up = _Scale.over([*ground, *curves.up], _HEIGHT - _BOTTOM, _TOP, curves.log_y)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">', *_axes(curves, across, up)]
    legend = []
    for number, series in enumerate(curves.series):
        color = COLORS[number % len(COLORS)]
        dash = _DASHES[number // len(COLORS) % len(_DASHES)]
        parts.append(f'<g data-series="{number}" stroke="{color}" fill="{color}">')
        parts += [*_curve(series.points, across, up, _STROKES[dash]), "</g>"]
        line = f'<i style="border-top: 4px {dash} {color}"></i>'
        legend.append(f"<li>{line} {bilingual(series.name)}</li>")
    parts.append("</svg>")
    return _figure(
        _marked(curves.label, curves.log_y),
        "".join(parts),
        f'<p class="x">{bilingual(_marked(curves.x, curves.log_x))} →</p>',
        f'<ul class="legend">{"".join(legend)}</ul>',
    )


def draw_heat_maps(maps: HeatMaps) -> str:
    """Draws each grid in squares, the darker the farther from 0; other colours are below 0."""
    largest = maps.largest
    drawn = [
        f'<div><span class="of">{bilingual(name)}</span>{_heat_map(grid, largest)}</div>'
        for name, grid in maps.grids
    ]
    low = f'{-largest:.3g}<i class="ramp minus"></i>' if maps.signed else ""
    axes = Text(f"↓ {maps.y.en}, → {maps.x.en}", f"↓ {maps.y.zh}，→ {maps.x.zh}")
    return _figure(
        maps.label,
        f'<div class="maps">{"".join(drawn)}</div>',
        f'<p class="x">{bilingual(axes)}</p>',
        f'<p class="legend">{low}0<i class="ramp"></i>{largest:.3g}</p>',
    )


def _figure(label: Text, picture: str, *below: str) -> str:
    caption = f"<figcaption>{bilingual(label)}</figcaption>"
    return f"<figure>{caption}{picture}{''.join(below)}</figure>"


def _marked(label: Text, log: bool) -> Text:
    return Text(label.en + _LOG.en, label.zh + _LOG.zh) if log else label


def _axes(curves: Curves, across: _Scale, up: _Scale) -> list[str]:
    parts = []
    for tick in up.ticks():
        y = up(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in curves.ticks or across.ticks():
        place = f'x="{across(tick):.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{tick:g}</text>')
    return parts


def _curve(points: Points, across: _Scale, up: _Scale, dashes: str) -> list[str]:
    def path(places: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in places)

    upper = [(x, band.high) for x, band in points]
    lower = [(x, band.low) for x, band in reversed(points)]
    dots = [
        f'<circle cx="{across(x):.1f}" cy="{up(band.mean):.1f}" r="2.5">'
        f"<title>{x:g}: {_said(band.mean, band.low, band.high)}</title></circle>"
        for x, band in points
    ]
    line = path([(x, band.mean) for x, band in points])
    return [
        f'<polygon points="{path([*upper, *lower])}" class="band"/>',
        f'<polyline points="{line}" fill="none" stroke-dasharray="{dashes}"/>',
        *dots,
    ]


def _said(mean: float, low: float, high: float) -> str:
    return f"{mean:.4g}" if low == high else f"{mean:.4g} ({low:.4g} - {high:.4g})"


def _heat_map(grid: Grid, largest: float) -> str:
    rows, columns = len(grid), max(map(len, grid), default=0)
    width, height = (columns + 1) * _CELL, (rows + 1) * _CELL
    parts = [f'<svg viewBox="0 0 {width} {height}" style="width: {width}px" role="img">']
    for column in _numbered(columns):
        parts.append(f'<text x="{(column + 1.5) * _CELL}" y="14">{column}</text>')
    for row in _numbered(rows):
        parts.append(f'<text x="{_CELL / 2}" y="{(row + 1.5) * _CELL + 4}">{row}</text>')
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            place = f'x="{(column + 1) * _CELL}" y="{(row + 1) * _CELL}"'
            share = abs(value) / largest if largest and math.isfinite(value) else 0.0
            kind = ' class="minus"' if value < 0 else ""
            parts.append(
                f'<rect {place} width="{_CELL}" height="{_CELL}"{kind} '
                f'fill-opacity="{share:.3g}"><title>{row}, {column}: {value:.4g}</title></rect>'
            )
    return "".join([*parts, "</svg>"])


def _numbered(count: int) -> range:
    return range(0, count, 1 if count <= _FEW_CELLS else 5)
