"""The sentences that all contestants work on, cut and batched once. No torch needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.bench.setting import SIZES
from dragoman.config import DataConfig
from dragoman.data.atomic import write_text
from dragoman.data.batching import EpochPlan
from dragoman.data.cldr import make_pairs
from dragoman.data.encoded import EncodedCorpus, pad_batch
from dragoman.data.preparation import TRAINING, prepare

_PHRASES = 60_000
_SEED = 1

Ids = list[int]
PaddedBatch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Workload:
    """Sentence pairs and their batches."""

    pairs: list[tuple[Ids, Ids]]
    """Source and target of each pair, ids with EOS."""
    sorted_batches: list[list[int]]
    """The pairs of each batch as training cuts them: of like length."""
    shuffled_batches: list[list[int]]
    """The same pairs in as many batches, in an order that has nothing to do with length."""

    def padded(self, *, shuffled: bool = False) -> list[PaddedBatch]:
        """Returns sources and targets of each batch, (batch, longest), padded with PAD."""
        batches = self.shuffled_batches if shuffled else self.sorted_batches
        return [self._pad([self.pairs[place] for place in batch]) for batch in batches]

    def _pad(self, pairs: Sequence[tuple[Ids, Ids]]) -> PaddedBatch:
        sources, targets = ([np.array(ids) for ids in side] for side in zip(*pairs, strict=True))
        return pad_batch(sources), pad_batch(targets)

    def sources(self, count: int) -> list[Ids]:
        """Returns sources without EOS, spread evenly over the pairs, the shortest first."""
        places = np.linspace(0, len(self.pairs) - 1, count).astype(int)
        return sorted((self.pairs[place][0][:-1] for place in places), key=len)

    def describe(self) -> dict[str, object]:
        """Returns how much there is, and how long the sentences are."""
        lengths = np.array([[len(source), len(target)] for source, target in self.pairs])
        return {
            "pairs": len(lengths),
            "batches": len(self.sorted_batches),
            "target_tokens": int(lengths[:, 1].sum()),
            "source_length": _quantiles(lengths[:, 0]),
            "target_length": _quantiles(lengths[:, 1]),
            "padding_sorted": _padding(self.padded()),
            "padding_shuffled": _padding(self.padded(shuffled=True)),
        }

    def save(self, path: Path) -> None:
        """Writes all of it into a file."""
        write_text(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Workload:
        """Reads what `save` wrote."""
        content = json.loads(path.read_text("utf-8"))
        content["pairs"] = [(source, target) for source, target in content["pairs"]]
        return cls(**content)


def _quantiles(lengths: npt.NDArray[np.int64]) -> dict[str, int]:
    names = {"shortest": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "longest": 1}
    return {name: int(np.quantile(lengths, share)) for name, share in names.items()}


def _padding(batches: Sequence[PaddedBatch]) -> float:
    """Returns the share of both sides that isn't real."""
    sides = [side for batch in batches for side in batch]
    real, all_of_it = (
        sum(int(count(side)) for side in sides) for count in (np.count_nonzero, np.size)
    )
    return 1 - real / all_of_it


def prepare_sentences(
    folder: Path, source: Sequence[str], target: Sequence[str], batches: int
) -> Workload:
    """Reads the text as training does and takes batches of the first epoch, of every length.

    Args:
        folder: gets the encoded text and the tokenizer, `tokenizer.model`.
        source: files of source lines; none takes phrases of the Unicode CLDR.
        target: files of target lines, as many.
        batches: how many are wanted; of less text there are fewer.

    Raises:
        InputError: for anything wrong with the files.
    """
    if not source:
        source, target = _write_phrases(folder)
    size = SIZES["S"]  # the vocabulary and the batches of B are the same
    data = DataConfig(source=tuple(source), target=tuple(target), vocab_size=size.vocab_size)
    prepared = prepare(data, folder)
    (folder / "tokenizer.model").write_bytes(prepared.tokenizers.source.model)
    corpus = EncodedCorpus.open(folder / TRAINING)
    chosen = choose_batches(corpus.lengths, size.batch_tokens, batches)
    return batch_pairs(
        [
            [(corpus[index][0].tolist(), corpus[index][1].tolist()) for index in batch.tolist()]
            for batch in chosen
        ]
    )


def choose_batches(
    lengths: npt.NDArray[np.integer[Any]], batch_tokens: int, count: int
) -> list[npt.NDArray[np.int64]]:
    """Returns batches of an epoch, spread evenly over all that it has in order of length.

    Args:
        lengths: (pairs, 2), tokens of source and target.
        batch_tokens: as in training.
        count: how many are wanted.
    """
    plan = EpochPlan(lengths, batch_tokens, _SEED, epoch=0).pool(0)
    longest = [int(lengths[batch].max()) for batch in plan]
    count = min(count, len(plan))
    places = ((np.arange(count) + 0.5) / count * len(plan)).astype(int)
    return [plan[place] for place in sorted(np.argsort(longest, kind="stable")[places])]


def batch_pairs(batches: Sequence[Sequence[tuple[Ids, Ids]]]) -> Workload:
    """Returns the workload of sorted batches, with the same pairs shuffled beside them."""
    pairs = [pair for batch in batches for pair in batch]
    ends = np.cumsum([len(batch) for batch in batches])
    in_order = np.split(np.arange(len(pairs)), ends[:-1])
    mixed = np.array_split(np.random.default_rng(_SEED).permutation(len(pairs)), len(batches))
    return Workload(pairs, [part.tolist() for part in in_order], [part.tolist() for part in mixed])


def _write_phrases(folder: Path) -> tuple[list[str], list[str]]:
    phrases = make_pairs("en", "de", _PHRASES, _SEED).train
    files = [folder / "phrases.en", folder / "phrases.de"]
    for side, file in enumerate(files, start=1):
        write_text(file, "".join(f"{phrase[side]}\n" for phrase in phrases))
    return [str(files[0])], [str(files[1])]
