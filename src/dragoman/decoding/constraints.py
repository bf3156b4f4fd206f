"""What an output may not be: too long, or repeating itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dragoman.config import BOS, PAD, DecodingConfig
from dragoman.decoding.stepper import Stepper

NEVER = float("-inf")
"""The log-probability of what can't be."""


def output_limits(
    stepper: Stepper[Any], sources: Sequence[Sequence[int]], config: DecodingConfig
) -> list[int]:
    """Returns how many tokens, EOS included, the output of each source may have."""
    limits = [config.max_output_length(len(source)) for source in sources]
    if stepper.max_length is None:
        return limits
    return [min(limit, stepper.max_length) for limit in limits]


def extend(
    log_probs: Float[Tensor, "batch beam"],
    tokens: Int[Tensor, "batch beam length"],
    next_log_probs: Float[Tensor, "batch beam vocab"],
    no_repeat_ngram: int,
) -> Float[Tensor, "batch beam vocab"]:
    """Returns the log-probabilities of hypotheses with each allowed token appended.

    PAD, BOS and tokens that would repeat an n-gram have minus infinity. EOS is never among the
    repeated: it hasn't been generated yet. The rest is not normalised anew, so that a
    log-probability stays the model's own.
    """
    extended = log_probs[..., None] + next_log_probs
    extended[..., [PAD, BOS]] = NEVER
    if 0 < no_repeat_ngram <= tokens.shape[2]:
        seen = tokens.unfold(2, no_repeat_ngram, 1)  # (batch, beam, place, n)
        recent = tokens[..., tokens.shape[2] - no_repeat_ngram + 1 :]
        repeats = (seen[..., :-1] == recent[..., None, :]).all(dim=-1)
        extended.scatter_(2, torch.where(repeats, seen[..., -1], PAD), NEVER)
    return extended
