"""Greedy search: the likeliest token at every step, which is a beam of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dragoman.config import EOS, DecodingConfig
from dragoman.decoding.beam import take_best
from dragoman.decoding.constraints import NEVER, extend, output_limits
from dragoman.decoding.engine import CUT, Hypothesis
from dragoman.decoding.stepper import State, Stepper, pad_ids

Choice = Callable[[Float[Tensor, "batch 1 vocab"], Sequence[int]], tuple[Tensor, Tensor]]
"""From the log-probabilities of extended hypotheses, and the places of their sources, to those of
the chosen extensions, (batch, 1), and to their tokens."""


def greedy_search(
    stepper: Stepper[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Returns for each source (ids with EOS) the one hypothesis that greedy search finds.

    Of equally likely tokens the lower id is taken. An output that reaches its longest length
    without EOS, or a state in which no token is possible, is flagged `cut`. Each output begins
    with its prefix, if there are any.
    """
    found = walk(
        stepper, sources, config, prefixes, lambda extended, _: take_best(extended[:, 0], 1)
    )
    return [[only] for only in found]


def walk(
    stepper: Stepper[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]],
    choose: Choice,
    dtype: torch.dtype = torch.float32,
) -> list[Hypothesis]:
    """Returns a hypothesis for each source that grows by one chosen token a step.

    Args:
        stepper: the model.
        sources: ids with EOS.
        config: how to search.
        prefixes: what each output must begin with, if anything.
        choose: takes a token for each of the sources whose places it is told.
        dtype: what log-probabilities are added up in.
    """
    device = stepper.device
    forced = pad_ids(prefixes or [[]] * len(sources), device)
    limits = output_limits(stepper, sources, config, forced)
    found: dict[int, Hypothesis] = {}
    running = list(range(len(sources)))
    cache = stepper.start(sources)
    tokens = torch.empty(len(sources), 1, 0, dtype=torch.int64, device=device)
    log_probs = torch.zeros(len(sources), 1, dtype=dtype, device=device)
    inputs = torch.full((len(sources), 1), stepper.start_token, device=device)
    while running:
        next_log_probs = stepper.step(cache, inputs)
        extended = extend(
            log_probs,
            tokens,
            next_log_probs,
            config.no_repeat_ngram,
            config.repetition_penalty,
            forced,
        )
        best, inputs = choose(extended, running)
        longer = torch.cat([tokens, inputs[..., None]], dim=2)
        kept = []
        for row, (token, value) in enumerate(
            zip(inputs[:, 0].tolist(), best[:, 0].tolist(), strict=True)
        ):
            sentence = running[row]
            ended = token == EOS
            if value == NEVER:
                before = tokens[row, 0].tolist(), log_probs[row, 0].item()
                found[sentence] = Hypothesis.from_search(*before, config, CUT)
            elif ended or longer.shape[2] >= limits[sentence]:
                flags = () if ended else (CUT,)
                output = longer[row, 0].tolist()
                found[sentence] = Hypothesis.from_search(output, value, config, *flags)
            else:
                kept.append(row)
        running = [running[row] for row in kept]
        rows = torch.tensor(kept, dtype=torch.int64, device=device)
        tokens, log_probs, inputs, forced = longer[rows], best[rows], inputs[rows], forced[rows]
        if running:
            stepper.select(cache, rows[:, None])
    return [found[sentence] for sentence in range(len(sources))]
