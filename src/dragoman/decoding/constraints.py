"""What an output may and must not be: too long, repeating itself, begun otherwise than asked."""

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
    stepper: Stepper[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    prefixes: Int[Tensor, "batch prefix"],
) -> list[int]:
    """Returns how many tokens, EOS included, the output of each source may have.

    There is always room for a forced prefix and EOS, but for what the model itself can't do.
    """
    forced = (prefixes != PAD).sum(dim=1).tolist()
    limits = [
        max(config.max_output_length(len(source)), count + 1)
        for source, count in zip(sources, forced, strict=True)
    ]
    if stepper.max_length is None:
        return limits
    return [min(limit, stepper.max_length) for limit in limits]


def extend(
    log_probs: Float[Tensor, "batch beam"],
    tokens: Int[Tensor, "batch beam length"],
    next_log_probs: Float[Tensor, "batch beam vocab"],
    no_repeat_ngram: int,
    repetition_penalty: float = 1.0,
    prefixes: Int[Tensor, "batch prefix"] | None = None,
) -> Float[Tensor, "batch beam vocab"]:
    """Returns the log-probabilities of hypotheses with each allowed token appended.

    PAD, BOS and tokens that would repeat an n-gram have minus infinity. EOS is never among the
    repeated: it hasn't been generated yet. The rest is not normalised anew, so that a
    log-probability stays the model's own; only the repetition penalty (Keskar et al. 2019, on
    log-probabilities) makes those of tokens that have been generated lower than that.

    Where a prefix goes on, its next token alone is possible, at the model's own price.
    """
    length = tokens.shape[2]
    forced = None
    if prefixes is not None and length < prefixes.shape[1]:
        forced = prefixes[:, length, None, None].expand(-1, tokens.shape[1], 1)
        forced_log_probs = log_probs[..., None] + next_log_probs.gather(2, forced)
    if repetition_penalty != 1.0:
        penalised = next_log_probs.gather(2, tokens) * repetition_penalty
        next_log_probs = next_log_probs.scatter(2, tokens, penalised)
    extended = log_probs[..., None] + next_log_probs
    for token in (PAD, BOS):
        extended[..., token] = NEVER
    if 0 < no_repeat_ngram <= length:
        seen = tokens.unfold(2, no_repeat_ngram, 1)  # (batch, beam, place, n)
        recent = tokens[..., length - no_repeat_ngram + 1 :]
        repeats = (seen[..., :-1] == recent[..., None, :]).all(dim=-1)
        extended.scatter_(2, torch.where(repeats, seen[..., -1], PAD), NEVER)
    if forced is not None:
        alone = torch.full_like(extended, NEVER).scatter_(2, forced, forced_log_probs)
        extended = torch.where(forced == PAD, extended, alone)
    return extended
