"""A contestant's own process: `python -m dragoman.bench.worker`.

The first line on stdin is a `Task`. Each answer is a line of JSON on stdout: first, when all that
happens once is done and the work was done once, {"facts", "notes", "peak_bytes"}; then to each
further line {"seconds", "cpu_seconds", "count", "notes", "peak_bytes"}. What libraries print goes
to stderr. The end of stdin is the end.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

import torch  # before anything else: peak memory counts from a bare import of it

from dragoman.bench.process import Task
from dragoman.bench.setting import Performance
from dragoman.kernels import resources
from dragoman.kernels.memory import is_want_of_memory


def build(task: Task) -> Performance:
    """Makes the contestant that the task names."""
    module, _, name = task.home.partition(":")
    performance: Performance = getattr(importlib.import_module(module), name)(
        task.setting, **task.options
    )
    return performance


def serve(task: Task, requests: Iterable[str], answers: TextIO) -> None:
    """Answers once when all is ready, and then each request."""
    bare = resources.peak_bytes()

    def answer(**content: Any) -> None:
        peak = resources.peak_bytes()
        above = None if peak is None or bare is None else peak - bare
        if task.setting.device == "cuda":
            above = torch.cuda.max_memory_allocated()
        print(json.dumps({**content, "peak_bytes": above}), file=answers, flush=True)

    if task.setting.threads is not None:
        torch.set_num_threads(task.setting.threads)
    if task.memory_limit is not None:
        resources.limit_memory(task.memory_limit)
    performance = build(task)
    resources.reset_peak()
    run = performance.run()
    resources.give_back_memory()
    answer(facts={**performance.facts, "threads": torch.get_num_threads()}, notes=run.notes)
    for _ in requests:
        performance.warm_up()
        started, cpu_started = time.perf_counter(), time.process_time()
        run = performance.run()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        resources.give_back_memory()
        answer(seconds=seconds, cpu_seconds=cpu_seconds, count=run.count, notes=run.notes)


def main() -> None:
    """Reads the task and serves it."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # at once, so that the error stays the last line
    try:
        serve(Task.from_json(sys.stdin.readline()), sys.stdin, answers)
    except (MemoryError, RuntimeError) as error:
        if not is_want_of_memory(error):
            raise
        sys.exit("not enough memory")


if __name__ == "__main__":
    main()
