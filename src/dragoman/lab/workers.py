"""Tasks in several processes at once, which tell how they go. No torch needed.

A process is given one task after the other through a pipe, and tells and answers through the same
pipe. Where either end goes, the other notices.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from dragoman.config import InputError, RunError
from dragoman.kernels.memory import is_want_of_memory

Listen = Callable[[Any], None]
Task = Callable[[Listen], Any]
"""Is given what to tell as it goes; returns its result. Can be pickled where processes are many."""

_TOLD, _DONE, _FAILED = "told", "done", "failed"


def run_tasks(
    tasks: Mapping[str, Task], processes: int, prepare: Callable[[], None], listen: Listen
) -> Generator[tuple[str, Any]]:
    """Runs tasks, in this process if one is enough.

    Args:
        tasks: by the name that an error calls them.
        processes: how many run at once, at most.
        prepare: is called in each new process before its tasks.
        listen: is told, in this process, all that any of them tells.

    Yields:
        Names and results, as they come.

    Raises:
        InputError: as a task has raised it.
        RunError: as a task has raised it, and for all else that a task in another process raises.
    """
    processes = min(processes, len(tasks))
    if processes > 1:
        yield from _run_in_processes(tasks, processes, prepare, listen)
        return
    for name, task in tasks.items():
        yield name, task(listen)


def _run_in_processes(
    tasks: Mapping[str, Task], processes: int, prepare: Callable[[], None], listen: Listen
) -> Generator[tuple[str, Any]]:
    waiting, started = iter(tasks.items()), list[BaseProcess]()
    running: dict[Connection, str] = {}

    def give_next(connection: Connection) -> None:
        if (named := next(waiting, None)) is not None:
            running[connection] = named[0]
            connection.send(named)

    try:
        connections = []
        with _deaf():
            for _ in range(processes):
                connection, process = _start(prepare)
                connections.append(connection)
                started.append(process)
        for connection in connections:
            give_next(connection)
        while running:
            ready = wait(list(running))
            for connection in [each for each in running if each in ready]:
                kind, content = _receive(connection, running[connection])
                if kind == _TOLD:
                    listen(content)
                    continue
                name = running.pop(connection)
                if kind == _FAILED:
                    raise content
                give_next(connection)
                yield name, content
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


@contextmanager
def _deaf() -> Iterator[None]:
    """Lets processes that start meanwhile ignore Ctrl-C: this one hears it, and ends them."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _start(prepare: Callable[[], None]) -> tuple[Connection, BaseProcess]:
    context = get_context("spawn")  # torch's threads don't survive a fork
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, prepare), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _receive(connection: Connection, name: str) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = connection.recv()
    except (EOFError, ConnectionResetError):
        raise RunError(
            f"{name}: its process is gone, perhaps for want of memory", "try fewer --threads"
        ) from None
    return message


def _serve(connection: Connection, prepare: Callable[[], None]) -> None:
    """Works in a process of its own until the other end is gone."""
    prepare()
    try:
        while True:
            name, task = connection.recv()
            try:
                answer = _DONE, task(lambda content: connection.send((_TOLD, content)))
            except Exception as error:
                answer = _FAILED, _in_a_line(name, error)
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return  # nobody listens, or this process was told to end: what it trains is saved


def _in_a_line(name: str, error: Exception) -> Exception:
    """Returns an error that can travel and that the command line knows."""
    if isinstance(error, (InputError, RunError)):
        return error
    if is_want_of_memory(error):
        return RunError(f"{name}: not enough memory", "try fewer --threads")
    return RunError(f"{name}: {type(error).__name__}: {error}", "--threads 1 shows where")
