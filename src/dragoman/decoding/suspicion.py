"""What in an output hints that it isn't a translation; no torch is imported here.

The thresholds were set on 160,000 lines that people translated (captions, software, a manual;
English, German and Chinese, joint vocabularies of 8,000): `long` is flagged in 6 of them and
`repeated` in 2, one of which is indeed broken.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.decoding.engine import Hypothesis

LONG = "long"
"""The flag of an output that is far longer than its source."""
REPEATED = "repeated"
"""The flag of an output that says something over and over where its source doesn't."""
UNLIKELY = "unlikely"
"""The flag of an output that the model itself hardly believes."""

_LONGEST_FACTOR, _LONGEST_EXTRA = 2, 10
"""Beyond twice the tokens of the source; the extra is for short sources, whose ratios vary."""
_REPEATS, _REPEATED_TOKENS = 4, 8
"""In immediate succession, and all in all; "1000000" has a run of six, where digits are tokens."""
_LONGEST_NGRAM = 16
"""Longer loops don't fit four times into the usual limit of an output."""
_LEAST_LOG_PROBABILITY = -2.0
"""Mean of a token. Beam search with a model for phrases of the CLDR, trained for minutes, goes
below it for 0.3 % of such phrases, and for 72 % of captions, which it knows nothing of."""


def suspicions(source: Sequence[int], found: Hypothesis) -> tuple[str, ...]:
    """Returns the flags of what is suspicious in the output of a source, which has no EOS here."""
    tokens = found.tokens
    if not tokens:
        return ()
    signs = {
        LONG: len(tokens) > _LONGEST_FACTOR * len(source) + _LONGEST_EXTRA,
        REPEATED: repeats(tokens) and not repeats(source),
        UNLIKELY: found.log_probability / len(tokens) < _LEAST_LOG_PROBABILITY,
    }
    return tuple(flag for flag, holds in signs.items() if holds)


def repeats(tokens: Sequence[int]) -> bool:
    """Says whether an n-gram stands suspiciously often in immediate succession."""
    for n in range(1, _LONGEST_NGRAM + 1):
        # k tokens in a row that equal those n places before them: n + k tokens of one n-gram
        enough = max(_REPEATS * n, _REPEATED_TOKENS) - n
        equal = 0
        for before, token in zip(tokens, tokens[n:], strict=False):
            equal = equal + 1 if token == before else 0
            if equal >= enough:
                return True
    return False
