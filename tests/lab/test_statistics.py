from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.lab.statistics import (
    Band,
    Difference,
    bootstrap_difference,
    curve_band,
    student_quantile,
)

scores = st.lists(st.floats(-10, 10), min_size=1, max_size=7)


@given(scores)
def test_a_band_reaches_from_the_lowest_to_the_highest_and_holds_the_mean(
    values: list[float],
) -> None:
    band = Band.of(values)
    assert band.low == min(values)
    assert band.high == max(values)
    assert band.low - 1e-9 <= band.mean <= band.high + 1e-9


def test_a_curve_has_a_band_where_all_seeds_have_a_point() -> None:
    found = curve_band([[(1, 3.0), (2, 5.0)], [(2, 7.0), (3, 9.0)]])
    assert found == [(2, Band(6.0, 5.0, 7.0))]
    assert curve_band([]) == []


def test_the_same_scores_are_no_clear_difference() -> None:
    items = [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
    found = bootstrap_difference(items, items)
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)
    assert not found.clear


def test_what_a_seed_does_to_both_cancels() -> None:
    lower = [[0.0] * 11, [50.0] * 11, [-20.0] * 11]
    higher = [[value + 1 for value in seed] for seed in lower]
    found = bootstrap_difference(higher, lower)
    assert found.mean == pytest.approx(1.0)
    assert found.clear


@pytest.mark.parametrize("sign", [1, -1])
def test_seeds_that_disagree_are_noise_however_many_the_items(sign: int) -> None:
    better, worse = [1.0] * 101, [0.0] * 101
    found = bootstrap_difference([better, worse, better][::sign], [worse, better, worse][::sign])
    assert found.mean == pytest.approx(1 / 3)
    assert not found.clear


def test_the_direction_is_the_sign_of_the_mean() -> None:
    better, worse = [[1.0] * 13] * 3, [[0.0] * 13] * 3
    assert bootstrap_difference(better, worse).low == 1.0
    assert bootstrap_difference(worse, better).high == -1.0


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (1000, 1.9623)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, rel=1e-3)


@pytest.mark.parametrize("seeds", [1, 3])
def test_more_confidence_takes_a_wider_interval(seeds: int) -> None:
    random = np.random.default_rng(1)
    higher, lower = random.normal(1, 1, (seeds, 31)), random.normal(0, 1, (seeds, 31))
    usual, wider = (bootstrap_difference(higher, lower, share) for share in (0.95, 0.975))
    assert wider.low < usual.low < usual.mean == wider.mean < usual.high < wider.high


def test_students_quantiles_follow_the_confidence() -> None:
    assert student_quantile(2, 0.975) == pytest.approx(6.2053, rel=1e-3)
    assert student_quantile(9, 0.99) == pytest.approx(3.2498, rel=1e-3)


def test_a_difference_that_is_no_number_is_not_clear() -> None:
    assert not Difference(math.nan, math.nan, math.nan).clear


@pytest.mark.parametrize("of_seeds", [0.0, 0.03, 0.1])
def test_equal_variants_are_clearly_different_in_one_case_of_twenty(of_seeds: float) -> None:
    random = np.random.default_rng(1)
    clear = 0
    for _ in range(200):
        shift = random.normal(0, of_seeds, (3, 1))
        wins = random.random((3, 101)) < 0.5 + shift
        clear += bootstrap_difference(wins, random.random((3, 101)) < 0.5).clear
    assert clear <= 19  # above it in 1 of 500 such tests, if it is 5 % in truth
