"""Text in, text out: the face of a trained model. No torch is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.config import EOS, DecodingConfig, InputError
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.engine import Engine, Hypothesis
from dragoman.decoding.suspicion import suspicions
from dragoman.settings import build_decoding


@dataclass(frozen=True)
class Translation:
    """A translation and what is known about it."""

    text: str
    score: float
    """What translations are ranked by: log_probability / length penalty."""
    log_probability: float
    """Natural logarithm of the probability of the tokens and EOS given the source."""
    tokens: list[str]
    """The pieces that the text is made of, without EOS."""
    alternatives: list[Translation] = field(default_factory=list)
    """With `n_best` above 1: the next best, in order."""
    alignment: npt.NDArray[np.float32] | None = field(default=None, compare=False)
    """On request: a row for each target piece and EOS, a column for each source piece and EOS.

    Each row says how the last layer's cross-attention, mean over its heads, is spread over the
    source as that piece is chosen; it sums to 1. A cut output may have no row for EOS, an empty one
    has no alignment.
    """
    flags: tuple[str, ...] = ()
    """What went wrong, or looks as if it had.

    `cut`: ended for want of room, not because it was complete; `source-cut`: the source was too
    long and lost its end; `long`: far longer than the source; `repeated`: the same over and over;
    `unlikely`: of low probability to the model itself.
    """


class Translator:
    """Translates lines of text with a model and its tokenizers."""

    def __init__(
        self, engine: Engine, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
    ) -> None:
        self.engine = engine
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer

    def translate(
        self,
        texts: Sequence[str],
        config: DecodingConfig = DecodingConfig(),  # noqa: B008 (frozen)
        prefixes: Sequence[str] = (),
        first: int = 0,
        **overrides: Any,
    ) -> list[Translation]:
        """Translates each text; an empty or blank one gives an empty translation.

        A translation doesn't depend on the other texts or their order; samples depend on the place
        of their text, and on nothing else of the input.

        Args:
            texts: one sentence each, as the model was trained on.
            config: how to search.
            prefixes: how the translation of each text has to begin, if it matters; may be empty.
                What follows is chosen in view of it, and it counts in length and probability.
            first: the place of the first text in the whole input, where it comes in parts.
            **overrides: single fields of `config`, such as beam_size=1.

        Raises:
            InputError: for an override that isn't a setting or has an impossible value, or if there
                aren't as many prefixes as texts.
        """
        config = build_decoding(overrides, config)
        if prefixes and len(prefixes) != len(texts):
            raise InputError(
                f"{len(texts)} texts and {len(prefixes)} prefixes, accepted is as many of each"
            )
        sources = _encode(self.source_tokenizer, texts)
        forced = [self.target_tokenizer.encode(prefix) for prefix in prefixes]
        hypotheses = self.engine.translate(sources, config, forced, first)
        return [
            self._translation(source, best, rest)
            for source, (best, *rest) in zip(sources, hypotheses, strict=True)
        ]

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        config: DecodingConfig = DecodingConfig(),  # noqa: B008 (frozen)
        **overrides: Any,
    ) -> list[float]:
        """Returns the log-probability of each target given its source, by forced decoding.

        Raises:
            InputError: if there aren't as many targets as sources, and as `translate`.
        """
        if len(sources) != len(targets):
            raise InputError(
                f"{len(sources)} sources and {len(targets)} targets, accepted is as many of each"
            )
        return self.engine.score(
            _encode(self.source_tokenizer, sources),
            _encode(self.target_tokenizer, targets),
            build_decoding(overrides, config),
        )

    def count_cut_sources(self, texts: Sequence[str], config: DecodingConfig) -> int:
        """Returns how many of these texts are too long and lose their end."""
        longest = self.engine.longest_source(config)
        return sum(len(ids) >= longest for ids in _encode(self.source_tokenizer, texts))

    def _translation(
        self, source: Sequence[int], best: Hypothesis, rest: Sequence[Hypothesis]
    ) -> Translation:
        ids = [token for token in best.tokens if token != EOS]
        return Translation(
            text=self.target_tokenizer.decode(ids),
            score=best.score,
            log_probability=best.log_probability,
            tokens=self.target_tokenizer.pieces(ids),
            alternatives=[self._translation(source, each, ()) for each in rest],
            alignment=best.alignment,
            flags=(*best.flags, *suspicions(source, best)),
        )


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    if isinstance(texts, str):
        raise InputError(f"the texts are the text {texts[:20]!r}, accepted is a list of texts")
    return [tokenizer.encode(text) if text.strip() else [] for text in texts]
