"""Lines from a file or from stdin, and output to a file or to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from dragoman.config import InputError
from dragoman.data.atomic import replacing
from dragoman.data.corpus import decode_lines, read_lines

_CHUNK_BYTES = 1 << 16


def read_input(file: str | None) -> Iterator[str]:
    """Yields the lines of a file, or of stdin as they come."""
    if file is not None:
        return read_lines(Path(file))
    if sys.stdin is None:
        raise InputError("standard input is closed", "give a FILE")
    return decode_lines(iter(_read_what_is_there, b""), "standard input")


def _read_what_is_there() -> bytes:
    chunk: bytes = sys.stdin.buffer.read1(_CHUNK_BYTES)  # type: ignore[union-attr]
    return chunk


def split_into_buffers(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields so many lines at a time, and at last the rest."""
    remaining = iter(lines)
    while buffer := list(islice(remaining, size)):
        yield buffer


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
