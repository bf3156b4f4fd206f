r"""Reads parallel text, line by line, and never more of it than is needed.

A line ends at `\n` and nowhere else; a `\r` before it is dropped. `str.splitlines` would also
break at U+2028, U+0085, `\x0b` and a lone `\r`, and so shift one side against the other.
"""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import zstandard

from dragoman.config import InputError

_CHUNK_BYTES = 1 << 20
_COMPRESSIONS = (".gz", ".zst")


def _decompress_zstandard(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        frame = zstandard.ZstdDecompressor().decompressobj()
        complete = True
        while chunk := file.read(_CHUNK_BYTES):
            while chunk:
                yield frame.decompress(chunk)
                complete, chunk = frame.eof, frame.unused_data
                if complete:  # a file may hold several frames, one after the other
                    frame = zstandard.ZstdDecompressor().decompressobj()
        if not complete:
            raise EOFError("the compressed data ends early")


def _decompress(path: Path) -> Iterator[bytes]:
    """Yields the bytes of a plain or compressed file."""
    if path.suffix == ".zst":
        yield from _decompress_zstandard(path)
    else:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


def _read_chunks(path: Path) -> Iterator[bytes]:
    """Yields the bytes of a file; whatever fails is an `InputError` that says where."""
    n_lines = 0

    def after() -> str:
        return f" after line {n_lines:,}" if n_lines else ""

    try:
        for chunk in _decompress(path):
            n_lines += chunk.count(b"\n")
            yield chunk
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, accepted is a file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise InputError(
            f"{path}: not a sound {path.suffix} file{after()}: {' '.join(str(error).split())}"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}{after()}") from None


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def read_lines(path: Path) -> Iterator[str]:
    r"""Yields the lines of a plain, .gz or .zst file of UTF-8, without their line ends.

    A byte-order mark at the start of the file is dropped. Bytes of a line count from 1.

    Raises:
        InputError: naming the file, and the line, byte and value where it isn't UTF-8.
    """
    return decode_lines(_read_chunks(path), str(path))


def decode_lines(chunks: Iterable[bytes], name: str) -> Iterator[str]:
    """Yields the lines of a stream of UTF-8 as `read_lines` does; errors call it by its name."""
    for number, line in enumerate(_split_lines(chunks), start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}:{number}: byte {error.start + 1} of the line is "
                f"0x{line[error.start]:02x}, accepted is UTF-8",
                "convert the file first: iconv -f ENCODING -t UTF-8",
            ) from None
        text = text.removesuffix("\r")
        yield text.removeprefix("\ufeff") if number == 1 else text


def _read_some(path: Path) -> Iterator[str]:
    """Yields the lines of a file that must have one; it is opened once, for it may be a pipe."""
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: an empty file, accepted is at least one line")
    yield first
    yield from lines


def _read_parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    sides = _read_some(source), _read_some(target)
    for count, (source_line, target_line) in enumerate(itertools.zip_longest(*sides)):
        if source_line is None or target_line is None:
            longer = count + 1 + sum(1 for side in sides for _ in side)
            n_source, n_target = (count, longer) if source_line is None else (longer, count)
            raise InputError(
                f"{source} has {n_source} lines and {target} has {n_target}, "
                f"accepted is as many in both"
            )
        yield source_line, target_line


def _split_tsv(line: str) -> tuple[str, str]:
    source, tab, rest = line.partition("\t")
    if not tab:
        raise ValueError("no tab, accepted is source<TAB>target")
    return source, rest.partition("\t")[0]


def _split_jsonl(line: str) -> tuple[str, str]:
    accepted = 'accepted is {"source": "...", "target": "..."}'
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"not JSON, {accepted}") from None
    if not isinstance(record, dict):
        raise ValueError(f"not an object, {accepted}")
    for key in ("source", "target"):
        value = record.get(key)
        if not isinstance(value, str):
            raise ValueError(f"no text under the key {key!r}, {accepted}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"half a surrogate pair under the key {key!r}") from None
    return record["source"], record["target"]


_SPLITTERS: dict[str, Callable[[str], tuple[str, str]]] = {
    ".tsv": _split_tsv,
    ".jsonl": _split_jsonl,
}


def _read_pair_file(path: Path) -> Iterator[tuple[str, str]]:
    name = path.with_suffix("") if path.suffix in _COMPRESSIONS else path
    if name.suffix not in _SPLITTERS:
        raise InputError(f"{path}: not a name of pairs, accepted is .tsv or .jsonl (and .gz, .zst)")
    split = _SPLITTERS[name.suffix]
    for number, line in enumerate(_read_some(path), start=1):
        try:
            yield split(line)
        except ValueError as error:
            raise InputError(f"{path}:{number}: {error}") from None


def read_pairs(
    source: Sequence[str], target: Sequence[str], pairs: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yields (source, target) from parallel files, walked together, then from files of pairs.

    Args:
        source: Files of source lines; the first goes with the first of `target`, and so on.
        target: Files of target lines, as many.
        pairs: `.tsv` files (source, tab, target; further columns are ignored) and `.jsonl` files
            (the keys "source" and "target").

    Raises:
        InputError: for an empty file, files of unequal length, or a line that isn't a pair.
    """
    for source_path, target_path in zip(map(Path, source), map(Path, target), strict=True):
        yield from _read_parallel(source_path, target_path)
    for path in map(Path, pairs):
        yield from _read_pair_file(path)
