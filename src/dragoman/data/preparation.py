"""From a user's files to encoded text: read, clean, learn the tokenizer, encode."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, compress, islice
from pathlib import Path

from dragoman.config import DataConfig, InputError
from dragoman.data.cleaning import HELD_OUT, Cleaner
from dragoman.data.corpus import read_pairs
from dragoman.data.encoded import EncodedCorpus, PairIds
from dragoman.data.selection import Pair, Selection, select_pairs
from dragoman.data.tokenizer import Tokenizer, Tokenizers, learn_tokenizer

TRAINING, VALIDATION, VALIDATION_TEXT = "training", "validation", "validation.jsonl"
_ENCODED_AT_ONCE = 4096
_LEARNT_SIZE = 20_000_000
"""Text that a tokenizer is learnt from, in characters; of more a sample is taken.

SentencePiece keeps it in memory: 70 MB for European languages, up to 80 MB a million characters of
Chinese, where a whole sentence is a word to it.
"""

_GIVE_VALIDATION = "give --valid-source and --valid-target"


@dataclass(frozen=True)
class Preparation:
    """What came out of a user's files."""

    tokenizers: Tokenizers
    report: str
    """What was read and left out, in a line."""
    counts: dict[str, int]
    """Pairs read, kept, and left out by reason."""
    num_validation: int
    num_validation_long: int
    """Validation pairs left out for their length."""
    held_out: bool
    """Whether the validation pairs were taken from the training files."""


def _encode(pairs: Iterable[Pair], tokenizers: Tokenizers) -> Iterator[PairIds]:
    remaining = iter(pairs)
    while chunk := list(islice(remaining, _ENCODED_AT_ONCE)):
        yield from zip(
            tokenizers.source.encode_batch(pair[0] for pair in chunk),
            tokenizers.target.encode_batch(pair[1] for pair in chunk),
            strict=True,
        )


def _load_tokenizer(config: DataConfig, setting: str) -> Tokenizer:
    try:
        return Tokenizer.load(Path(getattr(config, setting)))
    except InputError as error:
        raise InputError(f"data.{setting}: {error}", error.hint) from None


def _tokenizers(config: DataConfig, selection: Selection) -> Tokenizers:
    """Loads or learns the tokenizers of both sides; one and the same for a joint vocabulary."""
    if config.tokenizer:
        given = _load_tokenizer(config, "tokenizer")
        return Tokenizers(given, given)
    if config.source_tokenizer:
        source = _load_tokenizer(config, "source_tokenizer")
        return Tokenizers(source, _load_tokenizer(config, "target_tokenizer"))

    def sample() -> Iterator[Pair]:
        draw = random.Random(0)
        share = _LEARNT_SIZE / selection.text_size
        pairs = chain.from_iterable(selection.read_training())
        return (pair for pair in pairs if draw.random() < share)

    if config.joint_vocabulary:
        joint = learn_tokenizer((text for pair in sample() for text in pair), config.vocab_size)
        return Tokenizers(joint, joint)
    return Tokenizers(
        learn_tokenizer((source for source, _ in sample()), config.vocab_size),
        learn_tokenizer((target for _, target in sample()), config.vocab_size),
    )


def _require_bpe(config: DataConfig, tokenizers: Tokenizers) -> None:
    if config.bpe_dropout and not (tokenizers.source.is_bpe and tokenizers.target.is_bpe):
        raise InputError(
            f"data.bpe_dropout is {config.bpe_dropout}, but a tokenizer isn't byte-pair encoding, "
            f"accepted is 0"
        )


def _read_validation(config: DataConfig) -> list[Pair]:
    """Returns the pairs that were given for validation, none if they are to be held out."""
    pairs = list(read_pairs(config.valid_source, config.valid_target, config.valid_pairs))
    if not (pairs or (config.held_out_share and config.held_out_most)):
        raise InputError(
            f"no validation text is given, data.held_out_share is {config.held_out_share} and "
            f"data.held_out_most is {config.held_out_most}, accepted is above 0",
            _GIVE_VALIDATION,
        )
    return pairs


def _write_encoded(
    folder: Path, parts: Iterable[Iterable[PairIds]], tokenizers: Tokenizers
) -> EncodedCorpus:
    return EncodedCorpus.write(folder, parts, max(tokenizers.sizes), tokenizers.fingerprint)


def _write_validation(folder: Path, pairs: list[Pair], tokenizers: Tokenizers) -> None:
    _write_encoded(folder / VALIDATION, [_encode(pairs, tokenizers)], tokenizers)
    with (folder / VALIDATION_TEXT).open("w", encoding="utf-8") as file:
        for source, target in pairs:
            pair = {"source": source, "target": target}
            file.write(json.dumps(pair, ensure_ascii=False) + "\n")


def _drop_long(config: DataConfig, pairs: list[Pair], tokenizers: Tokenizers) -> list[Pair]:
    """Returns the pairs for validation that aren't longer than what is trained on.

    A single line of thousands of tokens could take more memory than any step of training.
    """
    longest = config.max_length or math.inf
    fits = (max(map(len, ids)) < longest for ids in _encode(pairs, tokenizers))
    return list(compress(pairs, fits))


def prepare(config: DataConfig, folder: Path, tokenizers: Tokenizers | None = None) -> Preparation:
    """Writes encoded training text, encoded validation text and validation text into a folder.

    Args:
        config: the files and how to clean them.
        folder: exists; gets `training/`, `validation/` and `validation.jsonl`.
        tokenizers: of the source and the target side; loaded or learnt if None.

    Raises:
        InputError: for anything wrong with the files, or if no pair is left.
    """
    corpora = config.all_corpora
    if not corpora:
        raise InputError("no training text is given", "use --source F --target F, or --pairs F.tsv")
    for path in (path for each in corpora for path in (*each.source, *each.target, *each.pairs)):
        if Path(path).is_fifo():
            raise InputError(f"{path}: a pipe, accepted is a file, for the text is read repeatedly")
    validation = _read_validation(config)
    held_out = not validation
    cleaner = Cleaner(config)
    selection = select_pairs(config, cleaner, folder, hold_out=held_out)
    cleaner.require_pairs(corpora, selection.count_training())
    tokenizers = tokenizers or _tokenizers(config, selection)
    _require_bpe(config, tokenizers)

    def fits(ids: PairIds) -> bool:
        return cleaner.length_reason(len(ids[0]) + 1, len(ids[1]) + 1) is None

    parts = (filter(fits, _encode(part, tokenizers)) for part in selection.read_training())
    training = _write_encoded(folder / TRAINING, parts, tokenizers)
    cleaner.counts["kept"] = len(training)
    cleaner.require_pairs(corpora, training.parts)
    if held_out:
        pairs = selection.read_held_out()
        validation = list(compress(pairs, map(fits, _encode(pairs, tokenizers))))
        cleaner.counts[HELD_OUT] = len(validation)
    given, validation = validation, _drop_long(config, validation, tokenizers)
    if not validation:
        raise InputError(
            f"no pair is left for validation of the {cleaner.counts['read']:,} read: "
            f"{cleaner.list_reasons()}",
            f"{_GIVE_VALIDATION}, or raise data.held_out_share",
        )
    _write_validation(folder, validation, tokenizers)
    return Preparation(
        tokenizers,
        cleaner.report(),
        cleaner.counts,
        len(validation),
        len(given) - len(validation),
        held_out,
    )
