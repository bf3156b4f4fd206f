"""Lines from a file or from stdin, and output to a file or to stdout."""

from __future__ import annotations

import select
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from dragoman.config import InputError
from dragoman.data.atomic import replacing
from dragoman.data.corpus import decode_lines, read_lines

_CHUNK_BYTES = 1 << 16


def read_buffers(file: str | None, size: int) -> Iterator[list[str]]:
    """Yields lines, at most `size` at a time: those of a file, or of stdin as soon as they come."""
    if file is not None:
        return _in_buffers(read_lines(Path(file)), size)
    if sys.stdin is None:
        raise InputError("standard input is closed", "give a FILE")
    return _read_what_comes(sys.stdin.buffer, size)


def _in_buffers(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while True:
        for buffer in _take(lines, size):
            if not buffer:
                return
            yield buffer


def _read_what_comes(stream: BinaryIO, size: int) -> Iterator[list[str]]:
    """Yields the lines that are there; waits for more only where there is none."""
    ready: deque[bytes] = deque()
    lines = decode_lines(iter(ready.popleft, None), "standard input")
    rest = b""
    while chunk := stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
        *whole, rest = (rest + chunk).split(b"\n")
        ready.extend(line + b"\n" for line in whole)
        while len(ready) >= size or (ready and not _has_more(stream)):
            yield from _take(lines, min(size, len(ready)))
    if rest:
        ready.append(rest + b"\n")
    while ready:
        yield from _take(lines, min(size, len(ready)))


def _take(lines: Iterator[str], count: int) -> Iterator[list[str]]:
    """Yields the next lines together, also those before one that isn't text."""
    taken: list[str] = []
    try:
        for line in islice(lines, count):
            taken.append(line)
    except InputError:
        if taken:
            yield taken
        raise
    yield taken


def _has_more(stream: BinaryIO) -> bool:
    """Says whether reading would give something at once, or the end; False if nobody knows."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # no file of the system's, or a system that can't tell
        return False


def output_path(text: str) -> Path:
    """Returns a path that a file can be written to.

    Raises:
        InputError: if its folder doesn't exist, or it is something else than a file.
    """
    path = Path(text)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a file, accepted is the name of one")
    return path


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Opens a file that appears when it is whole, or stdout."""
    if path is None:
        yield sys.stdout.buffer
    else:
        with replacing(path) as partial, partial.open("wb") as file:
            yield file
