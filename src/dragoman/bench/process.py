"""The parent's side of a contestant's process: starts it, asks for rounds, ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dragoman.bench.setting import Setting

Answer = dict[str, Any]
"""One line of JSON from a worker; see `dragoman.bench.worker`."""


class WorkerFailed(Exception):
    """A contestant that can't go on; the message is one line that says why."""


@dataclass(frozen=True)
class Task:
    """Which contestant a worker is, and what it is given."""

    home: str
    """Where its class is: `module:Class`."""
    options: Mapping[str, Any]
    setting: Setting
    memory_limit: int | None = None
    """Bytes of data that the process may have; more is an error in it, not in its neighbours."""

    def to_json(self) -> str:
        """Returns the line that `dragoman.bench.worker` reads first."""
        setting = {**vars(self.setting), "sentences": str(self.setting.sentences)}
        return json.dumps({**vars(self), "options": dict(self.options), "setting": setting})

    @classmethod
    def from_json(cls, line: str) -> Task:
        """Reads what `to_json` wrote."""
        content = json.loads(line)
        setting = content.pop("setting")
        setting["sentences"] = Path(setting["sentences"])
        return cls(**content, setting=Setting(**setting))


class Worker:
    """A contestant in a process of its own; only the one that was asked last is ever at work.

    Process-wide settings, such as threads, malloc and instruction sets, can't get into another's
    numbers, and the peak of its memory is its own.
    """

    def __init__(self, task: Task) -> None:
        threads = task.setting.threads
        environment = dict(os.environ)
        if threads is not None:  # some libraries read it as they are loaded
            environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = str(threads)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dragoman.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._send(task.to_json())
        self.ready = self._receive()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def round(self) -> Answer:
        """Lets the contestant work once, and returns its answer.

        Raises:
            WorkerFailed: if it has ended instead.
        """
        self._send("round")
        return self._receive()

    def close(self) -> None:
        """Ends the process, which has nothing to lose."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def _receive(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        answer: Answer = json.loads(line)
        return answer

    def _failure(self) -> WorkerFailed:
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        self.close()
        return WorkerFailed(said[-1].strip() if said else f"ended with status {status}")
