"""Decides by the text alone which pairs are for training, for validation, or for nothing.

A corpus may be far larger than memory, which holds about two bytes for each pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np
import numpy.typing as npt

from dragoman.config import CorpusConfig, DataConfig
from dragoman.data.cleaning import DUPLICATE, HELD_OUT, Cleaner
from dragoman.data.corpus import read_pairs

Pair = tuple[str, str]

_LEFT_OUT, _TRAINING, _VALIDATION = range(3)
_ENTRY = np.dtype([("hash", ">u8"), ("number", ">u8")])
_BUCKETS = 64
"""Files that the hashes go to by their first bits; each is sorted in memory by itself."""
_BUFFERED_BYTES = 1 << 16
"""What each keeps in memory until it becomes a file, without a name: no kill leaves it behind."""
_LINE_CHARACTERS = 32
"""What a line costs beside its text, in characters, while a tokenizer is learnt from it."""


def hash_pair(source: str, target: str) -> bytes:
    """Returns 64 bits that depend on a pair's text alone: on no seed, order or machine.

    Some two of n distinct pairs agree by chance with n^2 / 2^65: 1 in 9 million for two million
    pairs, 1 in 28,000 for the 36 million of WMT14 en-fr. One good pair is left out then.
    """
    # The length keeps ("a", "bc") and ("ab", "c") apart; surrogates are refused later, by name.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).digest()[::-1]


class _HashTable:
    """Hashes and numbers of pairs in files.

    Attributes:
        smallest: The smallest hash.
    """

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self._files = files
        self.smallest = b"\xff" * 8

    def add(self, digest: bytes, number: int) -> None:
        self.smallest = min(self.smallest, digest)
        self._files[digest[0] * len(self._files) // 256].write(digest + number.to_bytes(8, "big"))

    def read_sorted(self) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        """Yields hashes and numbers, a file at a time, by hash and, where it agrees, by number."""
        for file in self._files:
            file.seek(0)
            entries = np.frombuffer(file.read(), _ENTRY)
            hashes, numbers = entries["hash"].astype(np.uint64), entries["number"].astype(np.int64)
            order = np.argsort(hashes, kind="stable")
            yield hashes[order], numbers[order]


@dataclass(frozen=True)
class Selection:
    """What becomes of each pair of the corpora, so that later passes need only read."""

    corpora: tuple[CorpusConfig, ...]
    fates: tuple[bytes, ...]
    """A byte for each pair of each corpus."""
    text_size: int
    """Characters of both sides of all pairs that aren't left out by their text, and their lines."""

    def read_training(self) -> Iterator[Iterator[Pair]]:
        """Yields the training pairs of each corpus."""
        return self._read(_TRAINING)

    def read_held_out(self) -> list[Pair]:
        """Returns the pairs of all corpora that are kept for validation."""
        return [pair for corpus in self._read(_VALIDATION) for pair in corpus]

    def count_training(self) -> list[int]:
        """Returns the number of training pairs of each corpus."""
        return [fates.count(_TRAINING) for fates in self.fates]

    def _read(self, fate: int) -> Iterator[Iterator[Pair]]:
        for corpus, fates in zip(self.corpora, self.fates, strict=True):
            yield compress(_read_corpus(corpus), map(fate.__eq__, fates))


def _read_corpus(corpus: CorpusConfig) -> Iterator[Pair]:
    return read_pairs(corpus.source, corpus.target, corpus.pairs)


def select_pairs(config: DataConfig, cleaner: Cleaner, folder: Path, hold_out: bool) -> Selection:
    """Reads every pair once and decides what becomes of it.

    Left out are pairs with a reason in their text, and those that came before, in any corpus. Held
    out are the pairs with the smallest hashes: the share of the settings and one pair at least.

    Args:
        config: the files, and what is left out or held out.
        cleaner: counts it.
        folder: where temporary files may lie.
        hold_out: whether pairs are to be kept for validation.
    """
    ends: list[int] = []
    text_size = number = 0
    with ExitStack() as stack:
        files = [
            stack.enter_context(SpooledTemporaryFile(_BUFFERED_BYTES, dir=str(folder)))
            for _ in range(_BUCKETS)
        ]
        table = _HashTable(files)
        for corpus in config.all_corpora:
            for source, target in _read_corpus(corpus):
                if cleaner.text_reason(source, target) is None:
                    table.add(hash_pair(source, target), number)
                    text_size += len(source) + len(target) + 2 * _LINE_CHARACTERS
                number += 1
            ends.append(number)
        fates = _decide(config, cleaner, table, number, hold_out)
    starts = [0, *ends[:-1]]
    parts = (fates[start:end].tobytes() for start, end in zip(starts, ends, strict=True))
    return Selection(config.all_corpora, tuple(parts), text_size)


def _decide(
    config: DataConfig, cleaner: Cleaner, table: _HashTable, n_pairs: int, hold_out: bool
) -> npt.NDArray[np.uint8]:
    fates = np.full(n_pairs, _LEFT_OUT, np.uint8)
    most = config.held_out_most if hold_out else 0
    largest = max(int(config.held_out_share * 2**64) - 1, int.from_bytes(table.smallest, "big"))
    for hashes, numbers in table.read_sorted():
        first = np.diff(hashes, prepend=~hashes[:1]) != 0
        ranks = cleaner.counts[HELD_OUT] + np.cumsum(first)
        held_out = (hashes <= np.uint64(largest)) & (ranks <= most)
        fates[numbers[~held_out]] = _TRAINING
        fates[numbers[held_out & first]] = _VALIDATION
        if config.drop_duplicates:
            fates[numbers[~first]] = _LEFT_OUT
            cleaner.counts[DUPLICATE] += int(np.count_nonzero(~first))
        cleaner.counts[HELD_OUT] += int(np.count_nonzero(held_out & first))
    return fates
