"""Curves as SVG, to stand in a page. No torch needed."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.lab.experiment import Text
from dragoman.lab.statistics import Band

Points = Sequence[tuple[float, Band]]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 280, 60, 44, 8
_LINE = 18
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255")
"""Told apart by people who see fewer colours, too (Okabe and Ito)."""
_TICKS = 5


@dataclass(frozen=True)
class _Scale:
    """From values to places on the page."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Returns round numbers between its ends."""
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def _scale(values: Sequence[float], start: float, stop: float) -> _Scale:
    low, high = min(values), max(values)
    return _Scale(low, high if high > low else low + 1, start, stop)


def bilingual(text: Text, tag: str = "span") -> str:
    """Returns both languages as HTML or SVG elements, one of which is shown."""
    return "".join(
        f'<{tag} lang="{lang}">{html.escape(words)}</{tag}>'
        for lang, words in (("en", text.en), ("zh-Hans", text.zh))
    )


def draw_curves(series: Mapping[str, Points], x: Text, y: Text) -> str:
    """Draws each series as a line in a band that reaches from the lowest to the highest seed.

    Args:
        series: by what the legend calls them; without a point there is no picture.
        x: what the points depend on, with the unit.
        y: what they show, with the unit.
    """
    points = [point for each in series.values() for point in each]
    if not points:
        return ""
    height = _HEIGHT + _LINE * len(series)
    across = _scale([place for place, _ in points], _LEFT, _WIDTH - 12)
    lows, highs = [band.low for _, band in points], [band.high for _, band in points]
    up = _scale([0.0, *lows, *highs], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">', *_axes(across, up)]
    for number, (name, each) in enumerate(series.items()):
        color = _COLORS[number % len(_COLORS)]
        parts += _curve(each, across, up, color)
        top = _HEIGHT + _LINE * number
        parts.append(f'<rect x="{_LEFT}" y="{top}" width="14" height="10" fill="{color}"/>')
        parts.append(f'<text x="{_LEFT + 20}" y="{top + 10}">{html.escape(name)}</text>')
    middle, foot = (_LEFT + _WIDTH) / 2, _HEIGHT - 8
    parts.append(
        f'<text x="{middle}" y="{foot}" text-anchor="middle">{bilingual(x, "tspan")}</text>'
    )
    side = f'transform="translate(14 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {side}>{bilingual(y, 'tspan')}</text></svg>")
    return "".join(parts)


def _axes(across: _Scale, up: _Scale) -> list[str]:
    parts = []
    for tick in up.ticks():
        y = up(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 12}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in across.ticks():
        place = f'x="{across(tick):.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{tick:g}</text>')
    return parts


def _curve(points: Points, across: _Scale, up: _Scale, color: str) -> list[str]:
    def path(places: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in places)

    upper = [(x, band.high) for x, band in points]
    lower = [(x, band.low) for x, band in reversed(points)]
    dots = [
        f'<circle cx="{across(x):.1f}" cy="{up(band.mean):.1f}" r="2.5" fill="{color}">'
        f"<title>{x:g}: {band.mean:.4g} ({band.low:.4g} - {band.high:.4g})</title></circle>"
        for x, band in points
    ]
    line = path([(x, band.mean) for x, band in points])
    return [
        f'<polygon points="{path([*upper, *lower])}" fill="{color}" opacity="0.18"/>',
        f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>',
        *dots,
    ]
