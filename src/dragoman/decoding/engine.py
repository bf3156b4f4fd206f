"""What a translator needs from whatever runs the model: ids in, hypotheses out, no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dragoman.config import DecodingConfig
from dragoman.decoding.penalties import length_penalty

CUT = "cut"
"""The flag of an output that ended for want of room or of a possible token: it isn't complete."""
SOURCE_CUT = "source-cut"
"""The flag of an output whose source was longer than allowed and lost its end."""


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search."""

    tokens: list[int]
    """The generated ids, the final EOS among them, which a `cut` output may lack."""
    log_probability: float = 0.0
    """The natural logarithm of the probability of `tokens` given the source.

    A search that penalises repetition has it with the penalties; an engine without.
    """
    score: float = 0.0
    """What hypotheses are ranked by: log_probability / length_penalty(len(tokens)).

    Penalties of repetition and coverage are in it, where they were asked for.
    """
    flags: tuple[str, ...] = ()
    """`cut` and `source-cut`, where they hold."""
    alignment: npt.NDArray[np.float32] | None = field(default=None, compare=False)
    """Cross-attention of the last layer, mean over its heads: (len(tokens), source with EOS)."""

    @classmethod
    def from_search(
        cls, tokens: list[int], log_probability: float, config: DecodingConfig, *flags: str
    ) -> Hypothesis:
        """Makes a hypothesis with the score that `config` gives it."""
        penalty = length_penalty(
            max(1, len(tokens)), config.length_penalty, config.length_penalty_form
        )
        return cls(tokens, log_probability, log_probability / penalty, flags)

    def with_flags(self, *flags: str) -> Hypothesis:
        """Returns the same hypothesis with further flags."""
        return dataclasses.replace(self, flags=(*self.flags, *flags))


@runtime_checkable
class Engine(Protocol):
    """Runs a model. Ids go in WITHOUT EOS: the engine appends it to sources and targets."""

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        prefixes: Sequence[Sequence[int]] = (),
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        """Returns the `n_best` best hypotheses of each source, the best first.

        The output of a source doesn't depend on its neighbours or their order. A source without
        tokens gives one hypothesis without tokens, and the model isn't asked.

        Args:
            sources: ids, without EOS.
            config: how to search.
            prefixes: what each output must begin with, if anything; their tokens count as the
                output's own.
            first: the place of the first source in the whole input, which samples depend on.
        """
        ...

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
    ) -> list[float]:
        """Returns the log-probability of each target and its EOS, given its source.

        Nothing given nothing has 0, as `translate` has it; a target longer than the model can
        generate has minus infinity.
        """
        ...

    def longest_source(self, config: DecodingConfig) -> int:
        """Returns how many tokens, EOS included, are read of a source; a longer one is cut."""
        ...
