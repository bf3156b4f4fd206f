"""What there is to draw of an experiment: curves and grids, as numbers. No torch needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dragoman.lab.experiment import Chart, Experiment, Measure, Results, Text
from dragoman.lab.statistics import Band, curve_band

Points = Sequence[tuple[float, Band]]
Grid = Sequence[Sequence[float]]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#7f7f7f")
"""Told apart by people who see fewer colours, too (most of them by Okabe and Ito)."""
_STEPS, _NLL = Text("step", "步"), Text("training loss (nats per token)", "训练损失（nat/词元）")
_MOST_TICKS = 9
_WIDE_X, _WIDE_Y, _WIDE_BOTH = 30, 100, 10
"""From so many times the lowest value on, an axis is logarithmic: across, up, and up where across
is logarithmic already, for then a power of x is a straight line."""


@dataclass(frozen=True)
class Series:
    """One curve: a mean in a band that reaches from the lowest to the highest seed."""

    name: Text
    points: Points


@dataclass(frozen=True)
class Curves:
    """Curves over the same axes; each has points."""

    label: Text
    """What they show, with the unit."""
    x: Text
    """What they depend on, with the unit."""
    series: Sequence[Series]

    @property
    def across(self) -> list[float]:
        """All places that have a point, from the left to the right."""
        return sorted({x for each in self.series for x, _ in each.points})

    @property
    def up(self) -> list[float]:
        """The ends of all bands."""
        bands = [band for each in self.series for _, band in each.points]
        return [end for band in bands for end in (band.low, band.high)]

    @property
    def log_x(self) -> bool:
        """Whether the places span so much that even steps would crowd them."""
        return _spans(self.across, _WIDE_X)

    @property
    def ticks(self) -> list[float]:
        """The places, if the axis across is logarithmic and they are few, for a tick at each."""
        places = self.across
        return places if self.log_x and len(places) <= _MOST_TICKS else []

    @property
    def log_y(self) -> bool:
        """Whether the values do."""
        return _spans(self.up, _WIDE_BOTH if self.log_x else _WIDE_Y)


@dataclass(frozen=True)
class HeatMaps:
    """Grids over the same axes, on one scale."""

    label: Text
    """What they show, with the unit."""
    x: Text
    y: Text
    grids: Sequence[tuple[Text, Grid]]
    """Each with its variant's name."""

    @property
    def largest(self) -> float:
        """The largest magnitude of all."""
        cells = [abs(value) for _, grid in self.grids for row in grid for value in row]
        return max(filter(math.isfinite, cells), default=0.0)

    @property
    def signed(self) -> bool:
        """Whether there is a value below 0."""
        return any(value < 0 for _, grid in self.grids for row in grid for value in row)


Picture = Curves | HeatMaps


def pictures_of(experiment: Experiment, results: Results) -> list[Picture]:
    """Returns all that can be drawn: training, measures that depend on something, charts."""
    pictures: list[Picture] = [_training(experiment, results)]
    for measure in experiment.measures:
        if measure.y is not None:
            pictures.append(_heat_maps(experiment, results, measure))
        elif measure.x is not None:
            pictures.append(_measured(experiment, results, measure))
    pictures += [_observed(chart, results) for chart in experiment.charts]
    return [each for each in pictures if (each.series if isinstance(each, Curves) else each.grids)]


def _spans(values: Sequence[float], times: float) -> bool:
    return min(values) > 0 and max(values) >= times * min(values)


def _series(name: Text, curves: Iterable[Iterable[tuple[float, float]]]) -> list[Series]:
    """Returns the band of the curves as a series, none if they share no point."""
    finite = [[(x, y) for x, y in curve if math.isfinite(y)] for curve in curves]
    points = curve_band(finite)
    return [Series(name, points)] if points else []


def _training(experiment: Experiment, results: Results) -> Curves:
    """Draws the trials of a variant as one; those that broke off apart, for they are shorter."""
    series = []
    for variant in experiment.variants:
        trials, name = results.of(variant.name), variant.label
        whole = [trial.curve for trial in trials if not trial.failed]
        broken = [trial.curve for trial in trials if trial.failed]
        series += _series(name, whole)
        series += _series(Text(f"{name.en} (broke off)", f"{name.zh}（中断）"), broken)
    return Curves(_NLL, _STEPS, series)


def _measured(experiment: Experiment, results: Results, measure: Measure) -> Curves:
    assert measure.x is not None
    series = []
    for variant in experiment.variants:
        found = [trial.measures.get(measure.name) for trial in results.of(variant.name)]
        curves = [_numbered(each) for each in found if isinstance(each, dict)]
        series += _series(variant.label, curves)
    return Curves(measure.label, measure.x, series)


def _heat_maps(experiment: Experiment, results: Results, measure: Measure) -> HeatMaps:
    """Draws the first seed that has come to its end: seeds have no common order of heads."""
    assert measure.x is not None
    assert measure.y is not None
    grids: list[tuple[Text, Grid]] = []
    for variant in experiment.variants:
        found = [trial.measures.get(measure.name) for trial in results.of(variant.name)]
        if first := next((each for each in found if isinstance(each, list)), None):
            grids.append((variant.label, first))
    return HeatMaps(measure.label, measure.x, measure.y, grids)


def _observed(chart: Chart, results: Results) -> Curves:
    series = []
    for name, legend in chart.curves.items():
        if isinstance(found := results.observed.get(name), dict):
            series += _series(legend, [_numbered(found)])
    return Curves(chart.label, chart.x, series)


def _numbered(found: Mapping[str, float]) -> list[tuple[float, float]]:
    return [(float(x), y) for x, y in found.items()]
