"""A corpus as ids on disk, encoded once and mapped into memory, so that its size costs no RAM."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.config import EOS, PAD, InputError
from dragoman.data.atomic import replacing

Ids = npt.NDArray[np.integer[Any]]

_TOKENS, _LENGTHS, _DESCRIPTION = "tokens.bin", "lengths.npy", "encoded.json"
_FORMAT_VERSION = 1
_BUFFERED_TOKENS = 1 << 20


def _write_files(folder: Path, pairs: Iterable[tuple[list[int], list[int]]], dtype: str) -> None:
    lengths = array("i")
    buffer: list[int] = []
    with (folder / _TOKENS).open("wb") as file:
        for pair in pairs:
            for side in pair:
                buffer += side
                buffer.append(EOS)
                lengths.append(len(side) + 1)
            if len(buffer) >= _BUFFERED_TOKENS:
                file.write(np.array(buffer, dtype).tobytes())
                buffer.clear()
        file.write(np.array(buffer, dtype).tobytes())
    np.save(folder / _LENGTHS, np.array(lengths, np.int32).reshape(-1, 2))
    description = {
        "format_version": _FORMAT_VERSION,
        "dtype": dtype,
        "pairs": len(lengths) // 2,
        "tokens": sum(lengths),
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n", encoding="utf-8")


class EncodedCorpus:
    """Pairs of id sequences, each with EOS at its end, in a folder.

    `tokens.bin` holds source and target of pair 0, of pair 1, and so on, as little-endian unsigned
    numbers; `lengths.npy` their lengths; `encoded.json` says how many there are and how wide.
    """

    def __init__(self, tokens: Ids, lengths: npt.NDArray[np.int32]) -> None:
        self._tokens = tokens
        self.lengths = lengths
        """(pairs, 2): tokens of source and target, EOS included."""
        self._ends = np.cumsum(lengths.ravel(), dtype=np.int64)

    @classmethod
    def write(
        cls, folder: Path, pairs: Iterable[tuple[list[int], list[int]]], vocab_size: int
    ) -> EncodedCorpus:
        """Streams pairs of ids, EOS not yet among them, into a folder, all or nothing.

        Args:
            folder: Replaced as a whole if it exists.
            pairs: (source ids, target ids).
            vocab_size: Entries of the larger vocabulary; decides how wide an id is stored.
        """
        with replacing(folder) as partial:
            partial.mkdir()
            _write_files(partial, pairs, "<u2" if vocab_size <= 1 << 16 else "<u4")
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> EncodedCorpus:
        """Maps the corpus of a folder into memory.

        Raises:
            InputError: if it is missing, damaged, or of a newer format.
        """
        try:
            description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
            version, n_pairs = description["format_version"], description["pairs"]
            n_tokens, dtype = description["tokens"], np.dtype(description["dtype"])
            stored = (folder / _TOKENS).stat().st_size
            lengths = np.load(folder / _LENGTHS, allow_pickle=False)
        except FileNotFoundError as error:
            raise InputError(f"{folder}: no encoded text, {error.filename} is missing") from None
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{folder}: the encoded text is damaged") from None
        if version > _FORMAT_VERSION:
            raise InputError(
                f"{folder}: format version {version}, accepted is at most {_FORMAT_VERSION}",
                "a newer Dragoman wrote it: upgrade",
            )
        if lengths.shape != (n_pairs, 2) or stored != n_tokens * dtype.itemsize:
            raise InputError(f"{folder}: the encoded text is damaged: its sizes don't agree")
        # an empty file can't be mapped
        tokens = np.memmap(folder / _TOKENS, dtype, "r") if n_tokens else np.empty(0, dtype)
        return cls(np.asarray(tokens), lengths)

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Returns source and target of a pair, EOS included, as views of the file."""
        end = self._ends[2 * index + 1]
        middle = self._ends[2 * index]
        start = middle - self.lengths[index, 0]
        return self._tokens[start:middle], self._tokens[middle:end]

    def batch(
        self, indices: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns sources and targets of one pair or more, each padded to (batch, longest)."""
        sources, targets = zip(*(self[int(index)] for index in indices), strict=True)
        return pad_batch(sources), pad_batch(targets)


def pad_batch(rows: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Returns id sequences, at least one, as (batch, longest), filled with PAD on the right."""
    lengths = np.array([len(row) for row in rows])
    batch = np.full((len(rows), lengths.max()), PAD, np.int64)
    batch[np.arange(batch.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return batch
