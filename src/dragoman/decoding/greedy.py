"""Greedy search: the likeliest token at every step, which is a beam of one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dragoman.config import EOS, DecodingConfig
from dragoman.decoding.constraints import NEVER, extend, output_limits
from dragoman.decoding.engine import CUT, Hypothesis
from dragoman.decoding.stepper import State, Stepper


def greedy_search(
    stepper: Stepper[State], sources: Sequence[Sequence[int]], config: DecodingConfig
) -> list[list[Hypothesis]]:
    """Returns for each source (ids with EOS) the one hypothesis that greedy search finds.

    Of equally likely tokens the lower id is taken. An output that reaches its longest length
    without EOS, or a state in which no token is possible, is flagged `cut`.
    """
    limits = output_limits(stepper, sources, config)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    running = list(range(len(sources)))
    cache = stepper.start(sources)
    tokens = torch.empty(len(sources), 1, 0, dtype=torch.int64, device=stepper.device)
    log_probs = torch.zeros(len(sources), 1, device=stepper.device)
    inputs = torch.full((len(sources), 1), stepper.start_token, device=stepper.device)
    while running:
        next_log_probs = stepper.step(cache, inputs)
        best, inputs = extend(log_probs, tokens, next_log_probs, config.no_repeat_ngram).max(dim=2)
        longer = torch.cat([tokens, inputs[..., None]], dim=2)
        kept = []
        for row, (token, value) in enumerate(
            zip(inputs[:, 0].tolist(), best[:, 0].tolist(), strict=True)
        ):
            sentence = running[row]
            ended = token == EOS
            if value == NEVER:
                before = tokens[row, 0].tolist(), log_probs[row, 0].item()
                found[sentence].append(Hypothesis.from_search(*before, config, CUT))
            elif ended or longer.shape[2] >= limits[sentence]:
                flags = () if ended else (CUT,)
                output = longer[row, 0].tolist()
                found[sentence].append(Hypothesis.from_search(output, value, config, *flags))
            else:
                kept.append(row)
        running = [running[row] for row in kept]
        rows = torch.tensor(kept, dtype=torch.int64, device=stepper.device)
        tokens, log_probs, inputs = longer[rows], best[rows], inputs[rows]
        if running:
            stepper.select(cache, rows[:, None])
    return found
