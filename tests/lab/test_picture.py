"""What is drawn of an experiment, as numbers and as SVG and PNG."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from dragoman.lab.chart import draw
from dragoman.lab.experiment import Text
from dragoman.lab.figure import draw_pictures
from dragoman.lab.picture import COLORS, Curves, HeatMaps, Series
from dragoman.lab.statistics import Band

X, Y = Text("x", "横"), Text("y", "纵")
A, B = Text("a", "甲"), Text("b", "乙")


def curves(*rows: dict[float, float]) -> Curves:
    """Makes a series of each row."""
    return Curves(
        Y,
        X,
        [
            Series(Text(f"row {n}", f"行 {n}"), [(x, Band(y, y, y)) for x, y in row.items()])
            for n, row in enumerate(rows)
        ],
    )


@pytest.mark.parametrize(
    ("row", "log_x", "log_y"),
    [
        ({25.0: 5.0, 500.0: 0.1}, False, False),  # a training run
        ({25.0: 5.0, 500.0: 0.01}, False, True),
        ({128.0: 1.0, 4096.0: 32.0}, True, True),  # so that what grows as n is straight
        ({128.0: 1.0, 4096.0: 3.0}, True, False),
        ({0.0: 1.0, 4096.0: 0.0}, False, False),
        ({1.0: -5.0, 2.0: 5000.0}, False, False),
        ({7.0: 3.0}, False, False),
    ],
)
def test_an_axis_is_logarithmic_where_it_spans_much(
    row: dict[float, float], log_x: bool, log_y: bool
) -> None:
    found = curves(row)
    assert (found.log_x, found.log_y) == (log_x, log_y)
    assert ("logarithmic" in draw(found)) == (log_x or log_y)


def test_equal_factors_are_equal_ways_on_a_logarithmic_axis() -> None:
    drawn = draw(curves({2.0**n: 4.0**n for n in range(7)}))
    places = [float(x) for x in re.findall(r'<circle cx="(.*?)"', drawn)]
    steps = [after - before for before, after in pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 6, abs=0.2)
    for n in range(7):
        assert f">{2**n}</text>" in drawn  # few places have a tick each


@pytest.mark.parametrize("row", [{1.0: 0.0, 2.0: 0.0}, {1.0: 7.0}, {3.0: 1e-9, 4.0: 1e9}])
def test_whatever_the_values_all_is_within_the_picture(row: dict[float, float]) -> None:
    drawn = draw(curves(row))
    assert "nan" not in drawn
    for y in re.findall(r'cy="(.*?)"', drawn):
        assert 0 <= float(y) <= 240


def test_a_legend_names_each_series_and_a_dot_tells_its_numbers() -> None:
    series = Series(Text("a & b", "甲"), [(1.0, Band(2.0, 1.0, 3.0)), (5.0, Band(7.0, 7.0, 7.0))])
    drawn = draw(Curves(Y, X, [series]))
    assert "a &amp; b" in drawn
    assert "<title>1: 2 (1 - 3)</title>" in drawn
    assert "<title>5: 7</title>" in drawn


def test_no_two_of_many_series_look_the_same() -> None:
    drawn = draw(curves(*[{1.0: 1.0, 2.0: float(n)} for n in range(3 * len(COLORS))]))
    lines = re.findall(r'border-top: (.*?)"', drawn)
    assert len(set(lines)) == len(lines) == 3 * len(COLORS)


def test_the_darkest_cell_is_the_largest_of_all_maps_and_negative_ones_differ() -> None:
    drawn = draw(HeatMaps(Y, X, X, [(A, [[0.5, 0.0]]), (B, [[-1.0, 2.0]])]))
    cells = re.findall(r'<rect [^>]*?( class="minus")? fill-opacity="(.*?)"', drawn)
    assert cells == [("", "0.25"), ("", "0"), (' class="minus"', "0.5"), ("", "1")]
    assert "<title>0, 1: 2</title>" in drawn


def test_pictures_become_a_png(tmp_path: Path) -> None:
    maps = HeatMaps(Y, X, X, [(A, [[0.5, 0.0]]), (B, [[-1.0, 2.0]])])
    drawn = [curves({1.0: 2.0, 64.0: 3000.0}), maps, curves({1.0: -1.0, 2.0: 0.0})]
    draw_pictures(drawn, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
