"""A run's first steps once more, looked at one by one, and whether a run has learnt."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from dragoman.config import EOS
from dragoman.lab.experiment import Trial
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.training.distributed import Ranks
from dragoman.training.optimizer import build_optimizer
from dragoman.training.schedule import learning_rate
from dragoman.training.step import Batch, TrainingLoss, training_step

_PAIRS = 64
"""Pairs of a batch that is drawn for a measurement."""


@dataclass(frozen=True)
class FirstStep:
    """What one of a run's first steps did."""

    nll: float
    """Before it, nats per token."""
    gradient_norm: float
    """Before clipping."""
    size: float
    """Root mean square of the change of the parameters that moved, over the rate."""
    second_moments: Tensor
    """Adam's, (parameters,), corrected for their start at 0."""


def draw_batches(trained: Trained, pairs: int = _PAIRS) -> Iterator[Batch]:
    """Yields batches of the training text without end, the same ones each time."""
    draw = random.Random(1)
    while True:
        chosen = draw.sample(trained.data.train, min(pairs, len(trained.data.train)))
        sources, targets = zip(*chosen, strict=True)
        yield (
            end_and_pad(trained.tokenizers.source.encode_batch(sources)),
            end_and_pad(trained.tokenizers.target.encode_batch(targets)),
        )


def first_steps(trained: Trained, frozen: bool = False) -> Iterator[FirstStep]:
    """Takes a run's first steps once more, from the same first weights, and looks at each.

    Args:
        trained: the run; its weights stay as they are.
        frozen: whether the rate is 0, so that the gradients are all drawn alike.
    """
    config = trained.config
    model = trained.untrained(config.training.seed).train()
    optimizer = build_optimizer(model, config.training)
    loss, alone = (
        TrainingLoss(model, config.training.label_smoothing),
        Ranks(torch.device("cpu")),
    )
    for step, batch in enumerate(draw_batches(trained), start=1):
        rate = 0.0 if frozen else learning_rate(step, config.training, config.model.d_model)
        before = parameters_to_vector(model.parameters()).detach()
        done = training_step(loss, optimizer, [batch], config.training, rate, "float32", alone)
        change = (parameters_to_vector(model.parameters()).detach() - before).double()
        moved = change[change != 0]
        seen = [optimizer.state[each]["exp_avg_sq"].flatten() for each in model.parameters()]
        yield FirstStep(
            nll=done.nll,
            gradient_norm=done.gradient_norm,
            size=(moved.norm() / math.sqrt(moved.numel()) / rate).item() if len(moved) else 0.0,
            second_moments=torch.cat(seen) / (1 - config.training.adam_beta2**step),
        )


def unigram_entropy(trained: Trained) -> float:
    """Returns the entropy of a test token, nats: the loss of who knows nothing but frequencies."""
    counts = Counter(token for ids in trained.ids[1] for token in ids)
    counts[EOS] = len(trained.ids[1])
    total = sum(counts.values())
    return sum(n / total * math.log(total / n) for n in counts.values())


def learns(trial: Trial) -> bool:
    """Says whether a run has come under half of the loss that token frequencies alone give."""
    if trial.failed:
        return False
    return trial.curve[-1][1] < trial.measures["unigram"] / 2  # type: ignore[operator]
