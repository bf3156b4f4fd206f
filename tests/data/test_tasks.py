from __future__ import annotations

from typing import Any

import pytest

from dragoman.config import InputError
from dragoman.data.tasks import make_task


@pytest.mark.parametrize(
    ("name", "answer"), [("copy", list), ("reverse", lambda s: s[::-1]), ("sort", sorted)]
)
def test_a_target_is_its_source_copied_reversed_or_sorted(name: Any, answer: Any) -> None:
    for source, target in make_task(name, 101, 2, 7, 11, seed=1):
        assert target.split(" ") == answer(source.split(" "))


def test_sources_are_distinct_and_within_the_asked_lengths_and_alphabet() -> None:
    sources = [source.split(" ") for source, _ in make_task("copy", 997, 3, 5, 7, seed=1)]
    assert len({tuple(source) for source in sources}) == 997
    assert {len(source) for source in sources} == {3, 4, 5}
    assert {symbol for source in sources for symbol in source} == set("abcdefg")


def test_the_seed_decides_the_task() -> None:
    assert make_task("sort", 31, 2, 7, 11, seed=1) == make_task("sort", 31, 2, 7, 11, seed=1)
    assert make_task("sort", 31, 2, 7, 11, seed=1) != make_task("sort", 31, 2, 7, 11, seed=2)


def test_more_pairs_than_can_be_drawn_are_refused() -> None:
    with pytest.raises(InputError, match=r"8 pairs are wanted, .* half of the 14"):
        make_task("copy", 8, 1, 3, 2, seed=1)


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'revers'.*copy, reverse, sort") as caught:
        make_task("revers", 3, 1, 3, 5, seed=1)  # type: ignore[arg-type]
    assert caught.value.hint == "did you mean reverse?"
