from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from dragoman.kernels.timing import interleave, least_cpu_seconds, seconds, take_turns


@given(st.integers(1, 5), st.integers(1, 7))
def test_nobody_works_twice_before_all_have_worked_once(names: int, rounds: int) -> None:
    order: list[str] = []
    measures = {name: (lambda name=name: order.append(name)) for name in "ABCDE"[:names]}
    yielded = [(number, name) for number, name, _ in interleave(measures, rounds)]
    assert "".join(order) == "ABCDE"[:names] * rounds
    assert yielded == [(number, name) for number in range(rounds) for name in measures]


def test_answers_are_kept_round_by_round() -> None:
    answers = iter("ABAB")
    measures = {name: lambda: next(answers) for name in "ab"}
    assert take_turns(measures, 2) == {"a": ["A", "A"], "b": ["B", "B"]}


def test_waiting_for_others_costs_no_cpu_time() -> None:
    works = {"wait": lambda: time.sleep(0.05), "work": lambda: sum(range(200_000))}
    found = least_cpu_seconds(works, 3)
    assert found["wait"] < found["work"]


def test_work_is_done_once_to_be_timed() -> None:
    done: list[int] = []
    assert seconds(lambda: done.append(1)) > 0
    assert done == [1]
