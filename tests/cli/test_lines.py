from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.cli.lines import read_buffers
from dragoman.config import InputError


class Chunks(io.BytesIO):
    """A stream that gives one chunk a read."""

    def __init__(self, chunks: list[bytes]) -> None:
        super().__init__()
        self.chunks = iter(chunks)

    def read1(self, size: int | None = -1, /) -> bytes:
        return next(self.chunks, b"")


class Pipe:
    """Both ends of a pipe, the reading one as stdin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, self.writing = os.pipe()
        self.stdin = os.fdopen(reading)
        monkeypatch.setattr(sys, "stdin", self.stdin)

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)

    def close(self) -> None:
        os.close(self.writing)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    pipe = Pipe(monkeypatch)
    yield pipe
    pipe.stdin.close()


def test_a_line_is_there_before_the_next_is_whole(pipe: Pipe) -> None:
    buffers = read_buffers(None, 1000)
    pipe.write(b"one\ntw")
    assert next(buffers) == ["one"]
    pipe.write(b"o\nthree\n")
    assert next(buffers) == ["two", "three"]
    pipe.write(b"four")
    pipe.close()
    assert list(buffers) == [["four"]]


def test_what_waits_in_a_pipe_fills_the_buffers(pipe: Pipe) -> None:
    lines = [str(number) for number in range(7001)]
    pipe.write("\n".join(lines).encode())
    pipe.close()
    buffers = list(read_buffers(None, 1000))
    assert [len(buffer) for buffer in buffers] == [1000] * 7 + [1]
    assert [line for buffer in buffers for line in buffer] == lines


def test_the_buffers_of_a_stdin_that_is_a_file_are_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "text").write_bytes(b"a long line of letters\n" * 50_001)
    with (tmp_path / "text").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        sizes = [len(buffer) for buffer in read_buffers(None, 5000)]
    assert sizes == [5000] * 10 + [1]


@pytest.mark.parametrize("from_file", [True, False])
def test_lines_before_one_that_is_no_text_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, from_file: bool
) -> None:
    (tmp_path / "text").write_bytes(b"one\ntwo\nthree\n\xff\nfive\n")
    with (tmp_path / "text").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        buffers = read_buffers(str(tmp_path / "text") if from_file else None, 2)
        assert [next(buffers), next(buffers)] == [["one", "two"], ["three"]]
        with pytest.raises(InputError, match=":4: byte 1 of the line is 0xff"):
            next(buffers)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.binary(max_size=7).map(lambda x: x.replace(b"\r", b"\n")), max_size=11), st.data()
)
def test_the_lines_are_the_same_however_they_come(chunks: list[bytes], data: Any) -> None:
    text = b"".join(chunk for chunk in chunks if chunk).decode("latin-1").encode()
    size = data.draw(st.integers(1, 5))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(Chunks(pieces)))
        buffers = list(read_buffers(None, size))
    lines = text.decode().split("\n")
    assert [line for each in buffers for line in each] == (lines if lines[-1] else lines[:-1])
    assert all(1 <= len(each) <= size for each in buffers)
