"""Leaves out the pairs that teach nothing, and counts them by reason."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.config import CorpusConfig, DataConfig, InputError

EMPTY, IDENTICAL, DUPLICATE = "empty", "identical", "duplicate"
HELD_OUT, TOO_LONG, LENGTH_RATIO = "held out", "too long", "length ratio"
REASONS = (EMPTY, IDENTICAL, DUPLICATE, HELD_OUT, TOO_LONG, LENGTH_RATIO)


class Cleaner:
    """Decides on the pairs of all corpora, one after the other.

    A pair first goes through `text_reason`, then, encoded, through `length_reason`; between the
    two, `select_pairs` finds the duplicates and holds pairs out for validation. The first reason
    found is the one that counts.

    Attributes:
        counts: Pairs read, pairs kept, and pairs left out by reason.
    """

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self.counts: dict[str, int] = dict.fromkeys(("read", "kept", *REASONS), 0)

    def _count(self, outcome: str) -> str:
        self.counts[outcome] += 1
        return outcome

    def text_reason(self, source: str, target: str) -> str | None:
        """Returns why the text of a pair is left out, or None."""
        config = self._config
        self._count("read")
        if config.drop_empty and not (source.strip() and target.strip()):
            return self._count(EMPTY)
        if config.drop_identical and source == target:
            return self._count(IDENTICAL)
        return None

    def length_reason(self, n_source: int, n_target: int) -> str | None:
        """Returns why a pair of so many tokens, EOS included, is left out, or None."""
        config = self._config
        shorter, longer = sorted((n_source, n_target))
        if config.max_length and longer > config.max_length:
            return self._count(TOO_LONG)
        if config.max_length_ratio and longer > config.max_length_ratio * shorter:
            return self._count(LENGTH_RATIO)
        return None

    def list_reasons(self) -> str:
        """Returns the counts of what was left out, such as 'empty 2, duplicate 1'."""
        found = [f"{reason} {self.counts[reason]:,}" for reason in REASONS if self.counts[reason]]
        return ", ".join(found) or "nothing left out"

    def report(self) -> str:
        """Returns the counts as one line, such as 'read 5 pairs, kept 4: duplicate 1'."""
        return (
            f"read {self.counts['read']:,} pairs, kept {self.counts['kept']:,}: "
            f"{self.list_reasons()}"
        )

    def require_pairs(self, corpora: Sequence[CorpusConfig], kept: Sequence[int]) -> None:
        """Checks that something is left of each corpus.

        Raises:
            InputError: naming the first corpus of which nothing is, with the counts by reason.
        """
        for corpus, count in zip(corpora, kept, strict=True):
            if not count:
                of = f"the {self.counts['read']:,} read"
                if len(corpora) > 1:
                    name = ", ".join(corpus.source or corpus.pairs)
                    of = f"{name}, among {of} of all corpora"
                raise InputError(
                    f"no pair is left of {of}: {self.list_reasons()}",
                    "each reason can be switched off: data.drop_empty, data.drop_identical, "
                    "data.drop_duplicates, data.max_length, data.max_length_ratio",
                )
