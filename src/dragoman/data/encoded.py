"""A corpus as ids on disk, encoded once and mapped into memory, so that its size costs no RAM."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dragoman.config import EOS, PAD, InputError
from dragoman.data.atomic import replacing

Ids = npt.NDArray[np.integer[Any]]
PairIds = tuple[list[int], list[int]]
"""Source and target of a pair, EOS not yet among them."""
Recut = Callable[[Sequence[Ids], Sequence[Ids]], tuple[Sequence[Ids], Sequence[Ids]]]
"""Cuts sources and targets into other pieces; EOS stands at all ends, before and after."""

_TOKENS, _LENGTHS, _DESCRIPTION = "tokens.bin", "lengths.npy", "encoded.json"
_FORMAT_VERSION = 1
_BUFFERED_TOKENS = 1 << 16
_LENGTH_TYPE = np.dtype("<i4")
_BLOCK = 256
"""Pairs between two places in the tokens that are kept in memory."""


def _write_lengths_header(file: BinaryIO, n_pairs: int) -> None:
    # numpy pads its header so that a longer shape takes no more room.
    header = {"descr": _LENGTH_TYPE.str, "fortran_order": False, "shape": (n_pairs, 2)}
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, header)


def _write_files(
    folder: Path, parts: Iterable[Iterable[PairIds]], dtype: str, made_with: str
) -> None:
    sizes: list[int] = []
    n_tokens = 0
    buffer, lengths = array("I"), array("i")

    def flush() -> None:
        tokens_file.write(np.array(buffer, dtype).tobytes())
        lengths_file.write(np.array(lengths, _LENGTH_TYPE).tobytes())
        del buffer[:], lengths[:]

    with (
        (folder / _TOKENS).open("wb") as tokens_file,
        (folder / _LENGTHS).open("wb") as lengths_file,
    ):
        _write_lengths_header(lengths_file, 0)
        for part in parts:
            sizes.append(0)
            for pair in part:
                sizes[-1] += 1
                for side in pair:
                    buffer.extend(side)
                    buffer.append(EOS)
                    lengths.append(len(side) + 1)
                    n_tokens += lengths[-1]
                if len(buffer) >= _BUFFERED_TOKENS:
                    flush()
        flush()
        _write_lengths_header(lengths_file, sum(sizes))
    description = {
        "format_version": _FORMAT_VERSION,
        "dtype": dtype,
        "pairs": sum(sizes),
        "tokens": n_tokens,
        "parts": sizes,
        "made_with": made_with,
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n", encoding="utf-8")


class EncodedCorpus:
    """Pairs of id sequences, each with EOS at its end, in a folder.

    `tokens.bin` holds source and target of pair 0, of pair 1, and so on, as little-endian unsigned
    numbers; `lengths.npy` their lengths; `encoded.json` says how many there are of each corpus and
    how wide an id is.

    Attributes:
        lengths: (pairs, 2): tokens of source and target, EOS included; a view of the file.
        parts: pairs of each corpus that it was made from, one after the other.
    """

    def __init__(
        self,
        folder: Path,
        tokens: Ids,
        lengths: npt.NDArray[np.int32],
        parts: tuple[int, ...],
        vocab_sizes: tuple[int, int] | None,
    ) -> None:
        self._folder = folder
        self._vocab_sizes = vocab_sizes
        self._tokens = tokens
        self.lengths = lengths
        self.parts = parts
        blocks = np.arange(0, len(lengths), _BLOCK)
        sums = np.add.reduceat(lengths, blocks, dtype=np.int64).sum(axis=1)
        self._block_starts = np.cumsum(sums) - sums

    @classmethod
    def write(
        cls,
        folder: Path,
        parts: Iterable[Iterable[PairIds]],
        vocab_size: int,
        made_with: str = "",
    ) -> EncodedCorpus:
        """Streams pairs of ids into a folder, all or nothing.

        Args:
            folder: Replaced as a whole if it exists.
            parts: The pairs of each corpus.
            vocab_size: Entries of the larger vocabulary; decides how wide an id is stored.
            made_with: The fingerprint of the tokenizers.
        """
        with replacing(folder) as partial:
            partial.mkdir()
            _write_files(partial, parts, "<u2" if vocab_size <= 1 << 16 else "<u4", made_with)
        return cls.open(folder, made_with)

    @classmethod
    def open(
        cls, folder: Path, made_with: str = "", vocab_sizes: tuple[int, int] | None = None
    ) -> EncodedCorpus:
        """Maps the corpus of a folder into memory.

        Args:
            folder: Where it was written.
            made_with: The fingerprint of the tokenizers that it is to be of, if that matters.
            vocab_sizes: Entries of both vocabularies; each batch is then checked to be within.

        Raises:
            InputError: if it is missing, damaged, of a newer format or of other tokenizers.
        """
        try:
            description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
            version, n_pairs = description["format_version"], description["pairs"]
            n_tokens, dtype = description["tokens"], np.dtype(description["dtype"])
            parts = tuple(description.get("parts", [n_pairs]))  # older folders hold one corpus
            maker = description.get("made_with", made_with)  # older folders don't say
            stored = (folder / _TOKENS).stat().st_size
            lengths = np.load(folder / _LENGTHS, mmap_mode="r", allow_pickle=False)
            newer = version > _FORMAT_VERSION
            whole = lengths.shape == (n_pairs, 2) and stored == n_tokens * dtype.itemsize
            agreed = whole and sum(parts) == n_pairs and lengths.sum(dtype=np.int64) == n_tokens
        except FileNotFoundError as error:
            raise InputError(f"{folder}: no encoded text, {error.filename} is missing") from None
        except OSError as error:
            raise InputError(f"{error.filename}: {error.strerror}") from None
        except (EOFError, KeyError, TypeError, ValueError):
            raise InputError(f"{folder}: the encoded text is damaged") from None
        if newer:
            raise InputError(
                f"{folder}: format version {version}, accepted is at most {_FORMAT_VERSION}",
                "a newer Dragoman wrote it: upgrade",
            )
        if made_with and maker != made_with:
            raise InputError(f"{folder}: the encoded text is of another model's tokenizers")
        if not agreed or lengths.min(initial=1) < 1:
            raise InputError(f"{folder}: the encoded text is damaged: its sizes don't agree")
        # an empty file can't be mapped
        tokens = np.memmap(folder / _TOKENS, dtype, "r") if n_tokens else np.empty(0, dtype)
        return cls(folder, np.asarray(tokens), np.asarray(lengths), parts, vocab_sizes)

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Returns source and target of a pair, EOS included, as views of the file."""
        block, n_before = divmod(index, _BLOCK)
        before = self.lengths[index - n_before : index].sum(dtype=np.int64)
        start = self._block_starts[block] + before
        middle = start + self.lengths[index, 0]
        return self._tokens[start:middle], self._tokens[middle : middle + self.lengths[index, 1]]

    def batch(
        self, indices: npt.NDArray[np.int64], recut: Recut | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns sources and targets of one pair or more, each padded to (batch, longest).

        Args:
            indices: of the pairs.
            recut: cuts the pairs into other pieces first.

        Raises:
            InputError: where an id is none of the vocabulary, or EOS stands anywhere but at an end.
        """
        pairs = [self[int(index)] for index in indices]
        sides: tuple[Sequence[Ids], Sequence[Ids]] = (
            [source for source, _ in pairs],
            [target for _, target in pairs],
        )
        if self._vocab_sizes is not None:
            for rows, size in zip(sides, self._vocab_sizes, strict=True):
                self._require_sound(rows, size)
        sources, targets = sides if recut is None else recut(*sides)
        return pad_batch(sources), pad_batch(targets)

    def _require_sound(self, rows: Sequence[Ids], vocab_size: int) -> None:
        ids, ends = np.concatenate(rows), np.cumsum([len(row) for row in rows]) - 1
        damaged = f"{self._folder}: the encoded text is damaged"
        if ids.max() >= vocab_size:
            raise InputError(f"{damaged}: id {ids.max()}, the vocabulary has {vocab_size}")
        if not np.array_equal(np.flatnonzero(ids == EOS), ends):
            raise InputError(f"{damaged}: sentences don't end where they should")


def pad_batch(rows: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Returns id sequences, at least one, as (batch, longest), filled with PAD on the right."""
    lengths = np.array([len(row) for row in rows])
    batch = np.full((len(rows), lengths.max()), PAD, np.int64)
    batch[np.arange(batch.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return batch
