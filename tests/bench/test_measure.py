from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.bench.measure import Summary

seconds = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=11)


@given(seconds)
def test_half_of_the_values_are_on_either_side_of_the_median(values: list[float]) -> None:
    summary = Summary.of(values)
    assert 2 * sum(value <= summary.median for value in values) >= len(values)
    assert 2 * sum(value >= summary.median for value in values) >= len(values)
    assert summary.low <= summary.median <= summary.high


@given(seconds, st.sampled_from([0.5, 2.0, 1024.0]))
def test_the_spread_has_no_unit(values: list[float], factor: float) -> None:
    scaled = Summary.of([factor * value for value in values])
    assert scaled.spread == Summary.of(values).spread


def test_equal_values_have_no_spread_and_others_that_of_the_extremes() -> None:
    assert Summary.of([3.0, 3.0]).spread == 0
    assert Summary.of([2.0, 5.0, 4.0]).spread == 3 / 4
