"""Sampling: tokens are drawn by their probability, so that a source has many translations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dragoman.config import DecodingConfig
from dragoman.decoding.beam import take_best
from dragoman.decoding.engine import Hypothesis
from dragoman.decoding.greedy import walk
from dragoman.decoding.stepper import State, Stepper

_ROUNDING = 1e-9
"""Probabilities that differ by less than this are the same: sums of them are rounded."""


def sample(
    stepper: Stepper[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]],
    lines: Sequence[int],
) -> list[list[Hypothesis]]:
    """Returns `n_best` outputs of each source, drawn one token after the other, the best first.

    The same output may be drawn several times. Its score and log-probability are those that a
    search would give it: temperature, top_k and top_p say what is drawn, not how likely it is.

    Args:
        stepper: the model.
        sources: ids with EOS.
        config: how to draw.
        prefixes: what each output must begin with, if anything.
        lines: the place of each source in the whole input. With the seed and the number of the
            draw it gives a random stream: one number a step, so that the draws of a source depend
            on nothing else of the input.
    """
    count = config.n_best
    streams = [_stream(config.seed, line, number) for line in lines for number in range(count)]

    def choose(
        extended: Float[Tensor, "batch 1 vocab"], running: Sequence[int]
    ) -> tuple[Float[Tensor, "batch 1"], Int[Tensor, "batch 1"]]:
        numbers = [streams[place].random() for place in running]
        uniforms = torch.tensor(numbers, dtype=torch.float64, device=extended.device)
        tokens = draw(extended[:, 0], uniforms, config)[:, None]
        return extended.gather(2, tokens[..., None])[..., 0], tokens

    every = [[each for each in side for _ in range(count)] for side in (sources, prefixes)]
    found = walk(stepper, every[0], config, every[1], choose, dtype=torch.float64)
    groups = (found[first : first + count] for first in range(0, len(found), count))
    return [sorted(group, key=lambda each: -each.score) for group in groups]


def draw(
    log_probs: Float[Tensor, "batch vocab"],
    uniforms: Float[Tensor, " batch"],
    config: DecodingConfig,
) -> Int[Tensor, " batch"]:
    """Returns a token for each row, by the inverse of the distribution that is drawn from.

    Log-probabilities are divided by the temperature; of the `top_k` most probable tokens the fewest
    that reach `top_p` of their probability remain. Of equally probable tokens the lower ids remain.

    Args:
        log_probs: up to a constant for each row, in float64.
        uniforms: random numbers from 0 to 1, without 1, in float64.
        config: temperature, top_k and top_p.
    """
    vocab = log_probs.shape[1]
    tokens = torch.arange(vocab, device=log_probs.device).expand_as(log_probs)
    if config.top_k or config.top_p < 1.0:  # a distribution that nothing is cut from needs no order
        log_probs, tokens = take_best(log_probs, config.top_k or vocab)
    probabilities = (log_probs / config.temperature).softmax(dim=1)
    if config.top_p < 1.0:
        ahead = probabilities.cumsum(dim=1) - probabilities
        probabilities = probabilities.masked_fill(ahead > max(0.0, config.top_p - _ROUNDING), 0.0)
    sums = probabilities.cumsum(dim=1)
    places = (sums <= uniforms[:, None] * sums[:, -1:]).sum(dim=1, keepdim=True)
    return tokens.gather(1, places)[:, 0]


def _stream(seed: int, line: int, draw: int) -> np.random.Generator:
    # Philox counts: from the start of each of its high words there are 2^64 blocks to go.
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, draw, line]))
