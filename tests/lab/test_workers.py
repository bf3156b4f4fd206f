"""Tasks in processes of their own, or in this one."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragoman.config import InputError, RunError
from dragoman.lab.workers import run_tasks


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("processes", [1, 2])
def test_every_task_is_run_once_and_all_that_it_tells_is_heard(
    fakes: ModuleType, processes: int
) -> None:
    told: list[Any] = []
    tasks = {f"task {number}": partial(fakes.process_of, number) for number in range(5)}
    found = dict(run_tasks(tasks, processes, fakes.nothing, told.append))
    assert {name: number for name, (number, _) in found.items()} == {
        f"task {number}": number for number in range(5)
    }
    assert sorted(told) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    others = {process for _, process in found.values()} - {os.getpid()}
    assert len(others) <= processes
    assert bool(others) == (processes > 1)
    assert not any(map(is_alive, others))


def test_no_task_is_no_process(fakes: ModuleType) -> None:
    assert list(run_tasks({}, 7, fakes.nothing, fakes.nothing)) == []


@pytest.mark.parametrize(
    ("task", "kind", "message", "hint"),
    [
        ("use_a_wrong_file", InputError, "a.txt: missing", "look for it"),
        ("divide_by_zero", RunError, "bad: ZeroDivisionError: of\nours", "--threads 1"),
        ("vanish", RunError, "bad: its process is gone", "fewer --threads"),
    ],
)
def test_what_fails_in_another_process_is_told_as_if_in_this_one(
    fakes: ModuleType, task: str, kind: type[InputError | RunError], message: str, hint: str
) -> None:
    tasks = {"bad": getattr(fakes, task), "good": partial(fakes.process_of, 1)}
    with pytest.raises(kind, match=message) as caught:
        list(run_tasks(tasks, 2, fakes.nothing, fakes.nothing))
    assert hint in str(caught.value.hint)


def test_ctrl_c_ends_all_processes(fakes: ModuleType, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    told: list[str] = []

    def press_when_both_run(content: str) -> None:
        told.append(content)
        if len(told) == 2:
            signal.raise_signal(signal.SIGINT)

    tasks = {name: partial(fakes.never_end, tmp_path) for name in ("a", "b")}
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_tasks(tasks, 2, fakes.nothing, press_when_both_run))
    finally:
        signal.signal(signal.SIGINT, before)
    processes = [int(path.name) for path in tmp_path.iterdir()]
    assert len(processes) == 2
    assert not any(map(is_alive, processes))
