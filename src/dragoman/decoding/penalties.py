"""Length penalties: how hypotheses of unlike length are compared (section 6.1).

One definition of length holds everywhere: L counts the generated tokens, EOS among them and the
start token not, for finished and for cut hypotheses alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def length_penalty(length: int, alpha: float, form: Literal["gnmt", "power"] = "gnmt") -> float:
    """Returns what the log-probability of a hypothesis of `length` tokens is divided by.

    gnmt is ((5 + L) / 6)^alpha (Wu et al. 2016, equation 14), power is L^alpha. Both are 1 for a
    single token; alpha 0 compares log-probabilities as they are, a negative one favours short
    hypotheses.
    """
    assert length > 0
    return float(((5 + length) / 6 if form == "gnmt" else length) ** alpha)


def attainable_scores(
    log_probs: Float[Tensor, "batch beam"],
    next_penalty: float,
    limit_penalties: Float[Tensor, " batch"],
) -> Float[Tensor, "batch beam"]:
    """Returns a bound on the scores that unfinished hypotheses can still reach.

    A log-probability only falls, and the penalty is monotone in the length; so the best case is
    that no further token costs anything and the hypothesis ends either at its next token or at the
    longest length allowed, whatever the sign of alpha.

    Args:
        log_probs: of the hypotheses so far.
        next_penalty: the length penalty of one token more.
        limit_penalties: the length penalty of each sentence's longest output.
    """
    return (log_probs / next_penalty).maximum(log_probs / limit_penalties[:, None])
