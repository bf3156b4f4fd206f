"""Rounds in turn, so that times can be compared. No torch needed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

Answer = TypeVar("Answer")


def interleave(
    measures: Mapping[str, Callable[[], Answer]], rounds: int
) -> Iterator[tuple[int, str, Answer]]:
    """Yields round, name and answer of each measure in turn: A B C, A B C and so on.

    What slows the machine down for a while so meets all of them, and not one alone.
    """
    for number in range(rounds):
        for name, measure in measures.items():
            yield number, name, measure()


def take_turns(
    measures: Mapping[str, Callable[[], Answer]], rounds: int
) -> dict[str, list[Answer]]:
    """Returns the answers of each measure, round by round, had by `interleave`."""
    found: dict[str, list[Answer]] = {name: [] for name in measures}
    for _, name, answer in interleave(measures, rounds):
        found[name].append(answer)
    return found


def seconds(work: Callable[[], object]) -> float:
    """Returns how long a piece of work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def least_cpu_seconds(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns how long this thread computes at each piece of work: the least of rounds in turn.

    What else the machine does meanwhile plays hardly any part, nor do other threads.
    """

    def measure(work: Callable[[], object]) -> float:
        started = time.thread_time()
        work()
        return time.thread_time() - started

    found = take_turns({name: partial(measure, work) for name, work in works.items()}, rounds)
    return {name: min(each) for name, each in found.items()}


def median_seconds(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns how long each piece of work takes: the median of rounds in turn."""
    found = take_turns({name: partial(seconds, work) for name, work in works.items()}, rounds)
    return {name: statistics.median(each) for name, each in found.items()}
