"""From a user's files to encoded text: read, clean, learn the tokenizer, encode."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dragoman.config import DataConfig, InputError
from dragoman.data.cleaning import Cleaner, is_held_out
from dragoman.data.corpus import read_pairs
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.tokenizer import Tokenizer, learn_tokenizer

TRAINING, VALIDATION, VALIDATION_TEXT = "training", "validation", "validation.jsonl"
_ENCODED_AT_ONCE = 4096

Pair = tuple[str, str]


@dataclass(frozen=True)
class Preparation:
    """What came out of a user's files."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: str
    """What was read and left out, in a line."""
    counts: dict[str, int]
    """Pairs read, kept, and left out by reason."""
    num_validation: int
    held_out: bool
    """Whether the validation pairs were taken from the training files."""


class _Corpus:
    """The pairs of a configuration, read anew at each pass, so that none stays in memory."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.validation: list[Pair] = list(
            read_pairs(config.valid_source, config.valid_target, config.valid_pairs)
        )
        self.held_out = not self.validation

    def read_training(self, cleaner: Cleaner) -> Iterator[Pair]:
        """Yields the pairs to train on; keeps some for validation where none were given."""
        config = self.config
        held_out: dict[Pair, None] = {}
        for pair in read_pairs(config.source, config.target, config.pairs):
            if cleaner.text_reason(*pair):
                continue
            if (
                self.held_out
                and is_held_out(*pair, config.held_out_share)
                and (pair in held_out or len(held_out) < config.held_out_most)
            ):
                held_out[pair] = None
            else:
                yield pair
        if self.held_out:
            self.validation = list(held_out)


def _encode(
    pairs: Iterable[Pair], source: Tokenizer, target: Tokenizer
) -> Iterator[tuple[list[int], list[int]]]:
    remaining = iter(pairs)
    while chunk := list(islice(remaining, _ENCODED_AT_ONCE)):
        yield from zip(
            source.encode_batch(pair[0] for pair in chunk),
            target.encode_batch(pair[1] for pair in chunk),
            strict=True,
        )


def _tokenizers(corpus: _Corpus) -> tuple[Tokenizer, Tokenizer]:
    config = corpus.config
    if config.tokenizer:
        given = Tokenizer.load(Path(config.tokenizer))
        return given, given

    def side(index: int) -> Iterator[str]:
        return (pair[index] for pair in corpus.read_training(Cleaner(config)))

    def both() -> Iterator[str]:
        return (text for pair in corpus.read_training(Cleaner(config)) for text in pair)

    if config.joint_vocabulary:
        joint = learn_tokenizer(both(), config.vocab_size)
        return joint, joint
    return learn_tokenizer(side(0), config.vocab_size), learn_tokenizer(side(1), config.vocab_size)


def prepare(
    config: DataConfig, folder: Path, tokenizers: tuple[Tokenizer, Tokenizer] | None = None
) -> Preparation:
    """Writes encoded training text, encoded validation text and validation text into a folder.

    Args:
        config: the files and how to clean them.
        folder: exists; gets `training/`, `validation/` and `validation.jsonl`.
        tokenizers: of the source and the target side; learnt from the training text if None.

    Raises:
        InputError: for anything wrong with the files, or if no pair is left.
    """
    if not (config.source or config.pairs):
        raise InputError("no training text is given", "use --source F --target F, or --pairs F.tsv")
    corpus = _Corpus(config)
    text_cleaner = Cleaner(config)
    if next(corpus.read_training(text_cleaner), None) is None:
        text_cleaner.require_pairs()
    source, target = tokenizers or _tokenizers(corpus)
    vocab_size = max(len(source), len(target))

    cleaner = Cleaner(config)
    encoded = (
        pair
        for pair in _encode(corpus.read_training(cleaner), source, target)
        if cleaner.length_reason(len(pair[0]) + 1, len(pair[1]) + 1) is None
    )
    EncodedCorpus.write(folder / TRAINING, encoded, vocab_size)
    cleaner.require_pairs()
    if not corpus.validation:
        raise InputError(
            f"no pair of {cleaner.counts['read']:,} is left for validation",
            "give --valid-source and --valid-target, or raise data.held_out_share",
        )
    EncodedCorpus.write(folder / VALIDATION, _encode(corpus.validation, source, target), vocab_size)
    with (folder / VALIDATION_TEXT).open("w", encoding="utf-8") as file:
        for text_source, text_target in corpus.validation:
            pair = {"source": text_source, "target": text_target}
            file.write(json.dumps(pair, ensure_ascii=False) + "\n")
    return Preparation(
        source, target, cleaner.report(), cleaner.counts, len(corpus.validation), corpus.held_out
    )
