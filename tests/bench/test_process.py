from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from dragoman.bench.process import Task, Worker, WorkerFailed
from dragoman.bench.setting import Setting

pytestmark = pytest.mark.usefixtures("fakes")


def test_a_task_survives_its_way_to_the_worker(setting: Setting) -> None:
    task = Task("fakes:Fake", {"count": 3}, setting, memory_limit=1 << 30)
    assert Task.from_json(task.to_json()) == task


def test_a_worker_works_once_before_the_rounds_and_once_in_each(setting: Setting) -> None:
    with Worker(Task("fakes:Fake", {}, setting)) as worker:
        first, second = worker.round(), worker.round()
    assert worker.ready["notes"] == {"runs": 1, "warm": 0}
    assert worker.ready["facts"]["size"] == "S"
    assert worker.ready["facts"]["threads"] == 1
    assert [first["notes"], second["notes"]] == [{"runs": 2, "warm": 1}, {"runs": 3, "warm": 2}]
    assert first["count"] == 7
    assert first["seconds"] >= 0.001


def test_a_failure_is_one_line_that_says_why(setting: Setting) -> None:
    with (
        pytest.raises(WorkerFailed, match=r"^RuntimeError: it broke$"),
        Worker(Task("fakes:Fake", {"fail": "later"}, setting)) as worker,
    ):
        worker.round()


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are known on Linux")
def test_the_peak_is_above_a_bare_import_of_torch_and_a_limit_holds(setting: Setting) -> None:
    task = Task("fakes:Hungry", {}, setting)
    with Worker(task) as worker:
        assert 60e6 < worker.ready["peak_bytes"] < 120e6
    with pytest.raises(WorkerFailed, match=r"^not enough memory$"):
        Worker(replace(task, memory_limit=1 << 20))
