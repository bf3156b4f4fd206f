"""Cuts text into pieces and puts them together again, without ever changing it.

SentencePiece's own defaults change text: they turn full-width punctuation into ASCII, join blanks,
and give a blank back for the U+2581 with which they mark blanks. Here normalisation is off, unknown
characters fall back to their bytes, and the characters that SentencePiece keeps for itself are
escaped. So `decode(encode(text)) == text` for every text.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from dragoman.config import BOS, EOS, PAD, UNK, InputError

_ESCAPES = {"␛": "␛0", "\u2581": "␛1", "\u2585": "␛2"}
"""U+2581 marks blanks inside SentencePiece, and a text with U+2585 would not be learnt from."""
_UNESCAPES = {escaped: character for character, escaped in _ESCAPES.items()}
_RESERVED = re.compile("[" + "".join(_ESCAPES) + "\ud800-\udfff]")
_ESCAPED = re.compile("␛[012]")

_CHARACTER_COVERAGE = 0.9995
"""Share of the running text whose characters get a piece of their own.

The rest, which a Chinese corpus has thousands of, would take the places of pieces that are worth
having; it falls back to bytes, so nothing is lost. For ASCII a byte costs the same as a piece.
"""
_SAMPLED_LINES = 5_000_000
"""SentencePiece keeps what it learns from in memory: more lines than this are sampled.

`data.preparation` gives it far fewer; the number stays, for it is written into every model.
"""
_PROBE = "  ，ﬁ①\n\u2581 𝔇 "


def _escape_character(match: re.Match[str]) -> str:
    character = match.group()
    if character not in _ESCAPES:
        raise InputError(
            f"the text has half a surrogate pair (U+{ord(character):04X}) after "
            f"{match.string[: match.start()][-20:]!r}, accepted is Unicode text"
        )
    return _ESCAPES[character]


def _escape(text: str) -> str:
    return _RESERVED.sub(_escape_character, text)


class Tokenizer:
    """A SentencePiece model that gives every text back as it was.

    Raises:
        InputError: if `model` isn't a SentencePiece model, has other special ids than Dragoman's,
            or changes text.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, UnicodeDecodeError):  # the second of a message that quotes the model
            raise InputError("not a SentencePiece model") from None
        self.vocab_size: int = self._processor.get_piece_size()
        special = [
            getattr(self._processor, f"{name}_id")() for name in ("pad", "unk", "bos", "eos")
        ]
        if special != [PAD, UNK, BOS, EOS]:
            raise InputError(
                f"the ids of pad, unk, bos and eos are {special}, "
                f"accepted is {[PAD, UNK, BOS, EOS]}"
            )
        if self.decode(self.encode(_PROBE)) != _PROBE:
            raise InputError(
                "the SentencePiece model changes text",
                "learn it with normalization_rule_name=identity, remove_extra_whitespaces=false "
                "and byte_fallback=true",
            )

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Reads a SentencePiece model from a file."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}", error.hint) from None

    def __len__(self) -> int:
        """Returns the size of the vocabulary."""
        return self.vocab_size

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the model, which says whether two tokenizers are the same."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without BOS and EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of many texts, on several threads."""
        ids: list[list[int]] = self._processor.encode(list(map(_escape, texts)))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of some ids; PAD, BOS and EOS have none."""
        text = self._processor.decode([int(id) for id in ids if id not in (PAD, BOS, EOS)])
        return _ESCAPED.sub(lambda match: _UNESCAPES[match.group()], text)

    @property
    def is_bpe(self) -> bool:
        """Whether the model is byte-pair encoding: its scores are ranks, not probabilities."""
        return all(score.is_integer() for score in self._scores())

    def _scores(self) -> list[float]:
        scores: list[float] = self._processor.get_score(list(range(self.vocab_size)))
        return scores

    def ranked_pieces(self) -> list[tuple[int, str]]:
        """Returns id and piece of all that hold characters, in the order of their merges."""
        processor, scores = self._processor, self._scores()
        ids = [
            id
            for id in range(self.vocab_size)
            if not (processor.is_control(id) or processor.is_unknown(id) or processor.is_byte(id))
        ]
        ids.sort(key=lambda id: -scores[id])
        return list(zip(ids, self.pieces(ids), strict=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the pieces of some ids as one reads them in a picture, blanks as U+2581."""
        return [self._processor.id_to_piece(int(id)) for id in ids]


@dataclass(frozen=True)
class Tokenizers:
    """How both sides are cut; one and the same object where the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both sides share a vocabulary."""
        return self.source is self.target

    @property
    def sizes(self) -> tuple[int, int]:
        """Entries of both vocabularies."""
        return len(self.source), len(self.target)

    @property
    def fingerprint(self) -> str:
        """Says whether tokenizers belong together with weights or encoded text."""
        return f"{self.source.fingerprint[:16]}-{self.target.fingerprint[:16]}"


def learn_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learns byte-pair encoding from a stream of texts.

    Args:
        texts: Lines of the training text; for a joint vocabulary those of both sides.
        vocab_size: Entries wanted; text too small for so many gets as many as it supports.

    Raises:
        InputError: if the vocabulary has no room for the characters of the text, or all is blank.
    """
    model = io.BytesIO()
    failures: list[BaseException] = []

    def escaped() -> Iterator[str]:
        try:
            yield from map(_escape, texts)
        except BaseException as error:  # SentencePiece would make another one of it
            failures.append(error)
            raise

    sentencepiece.set_random_generator_seed(0)  # only matters where lines are sampled
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=escaped(),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=_CHARACTER_COVERAGE,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            split_digits=True,  # numbers that were never seen are copied digit by digit
            max_sentence_length=1 << 30,  # by default lines above 4,192 bytes are left out
            input_sentence_size=_SAMPLED_LINES,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        if sizes := re.search(r"required_chars\. (\d+) vs (\d+)", str(error)):
            raise InputError(
                f"data.vocab_size is {sizes[1]}, accepted is at least {sizes[2]}: "
                f"the characters of the text alone need as many"
            ) from None
        if "sentences_.empty()" in str(error):
            raise InputError("the training text has no line to learn a tokenizer from") from None
        raise
    return Tokenizer(model.getvalue())
