"""Length penalties: how hypotheses of unlike length are compared (section 6.1).

One definition of length holds everywhere: L counts the generated tokens, EOS among them and the
start token not, for finished and for cut hypotheses alike.
"""

from __future__ import annotations

from typing import Literal


def length_penalty(length: int, alpha: float, form: Literal["gnmt", "power"] = "gnmt") -> float:
    """Returns what the log-probability of a hypothesis of `length` tokens is divided by.

    gnmt is ((5 + L) / 6)^alpha (Wu et al. 2016, equation 14), power is L^alpha. Both are 1 for a
    single token; alpha 0 compares log-probabilities as they are, a negative one favours short
    hypotheses.
    """
    assert length > 0
    return float(((5 + length) / 6 if form == "gnmt" else length) ** alpha)
