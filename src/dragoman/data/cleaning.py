"""Leaves out the pairs that teach nothing, and counts them by reason."""

from __future__ import annotations

import hashlib

from dragoman.config import DataConfig, InputError

EMPTY, IDENTICAL, DUPLICATE = "empty", "identical", "duplicate"
TOO_LONG, LENGTH_RATIO = "too long", "length ratio"
REASONS = (EMPTY, IDENTICAL, DUPLICATE, TOO_LONG, LENGTH_RATIO)


def _hash_pair(source: str, target: str) -> int:
    """Returns 64 bits that depend on a pair's text alone: on no seed, order or machine."""
    # The length keeps ("a", "bc") and ("ab", "c") apart; surrogates are refused later, by name.
    text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def is_held_out(source: str, target: str, share: float) -> bool:
    """Says whether a pair belongs to the share kept for validation, by its text alone."""
    return _hash_pair(source, target) < share * 2**64


class Cleaner:
    """Decides on the pairs of a corpus, one after the other.

    A pair first goes through `text_reason`, then, encoded, through `length_reason`; the first
    reason found is the one that counts.

    Attributes:
        counts: Pairs read, pairs kept, and pairs left out by reason.
    """

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._seen: set[int] = set()
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
        if config.drop_duplicates:
            pair = _hash_pair(source, target)
            if pair in self._seen:
                return self._count(DUPLICATE)
            self._seen.add(pair)
        return None

    def length_reason(self, n_source: int, n_target: int) -> str | None:
        """Returns why a pair of so many tokens, EOS included, is left out, or None."""
        config = self._config
        shorter, longer = sorted((n_source, n_target))
        if config.max_length and longer > config.max_length:
            return self._count(TOO_LONG)
        if config.max_length_ratio and longer > config.max_length_ratio * shorter:
            return self._count(LENGTH_RATIO)
        self._count("kept")
        return None

    def _list_reasons(self) -> str:
        found = [f"{reason} {self.counts[reason]:,}" for reason in REASONS if self.counts[reason]]
        return ", ".join(found) or "nothing left out"

    def report(self) -> str:
        """Returns the counts as one line, such as 'read 5 pairs, kept 4: duplicate 1'."""
        return (
            f"read {self.counts['read']:,} pairs, kept {self.counts['kept']:,}: "
            f"{self._list_reasons()}"
        )

    def require_pairs(self) -> None:
        """Checks that something was kept.

        Raises:
            InputError: with the counts by reason, if no pair was.
        """
        if not self.counts["kept"]:
            raise InputError(
                f"no pair is left of the {self.counts['read']:,} read: {self._list_reasons()}",
                "each reason can be switched off: data.drop_empty, data.drop_identical, "
                "data.drop_duplicates, data.max_length, data.max_length_ratio",
            )
