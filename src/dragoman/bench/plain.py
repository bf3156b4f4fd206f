"""The loop that everybody writes around a model; only the model is another each time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from dragoman.bench.sentences import Workload
from dragoman.bench.setting import Performance, Run, Setting, config_of_size
from dragoman.config import BOS, PAD, Config
from dragoman.kernels.device import compute_in


def count_targets(targets: Sequence[Tensor]) -> int:
    """Returns how many tokens of padded targets are real."""
    return sum(int((target != PAD).sum()) for target in targets)


def load_batches(setting: Setting, *, shuffled: bool) -> list[tuple[Tensor, Tensor]]:
    """Returns the sources and targets of a training run, (batch, longest) each."""
    padded = Workload.load(setting.sentences).padded(shuffled=shuffled)
    return [
        (torch.from_numpy(source).to(setting.device), torch.from_numpy(target).to(setting.device))
        for source, target in padded
    ]


class PlainTraining:
    """Padded batches, whole logits, `F.cross_entropy`, Adam.

    Args:
        setting: size and sentences.
        build: makes the model, which maps source and decoder input to logits.
        precision: `float32`, or `bfloat16` for autocast.
        shuffled: take the sentences in random order.
    """

    def __init__(
        self,
        setting: Setting,
        build: Callable[[Config], nn.Module],
        precision: str = "float32",
        shuffled: bool = False,
    ) -> None:
        torch.manual_seed(1)
        config = config_of_size(setting.size)
        self._training = config.training
        self._precision = precision
        self._batches = load_batches(setting, shuffled=shuffled)
        self.model = build(config).to(setting.device).train()
        self._optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=1e-4,
            betas=(self._training.adam_beta1, self._training.adam_beta2),
            eps=self._training.adam_epsilon,
            fused=True,
        )
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.facts: dict[str, Any] = {"precision": precision, "parameters": parameters}

    def warm_up(self) -> None:
        """Takes one step."""
        self._step(*self._batches[0])

    def run(self) -> Run:
        """Takes a step with each batch."""
        losses = [self._step(source, target) for source, target in self._batches]
        count = count_targets([target for _, target in self._batches])
        return Run(count, {"loss": sum(losses) / len(losses)})

    def _step(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> float:
        start = target.new_full((target.shape[0], 1), BOS)
        with compute_in(self._precision, source.device):
            logits = self.model(source, torch.cat([start, target[:, :-1]], dim=1))
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                target.flatten(),
                ignore_index=PAD,
                label_smoothing=self._training.label_smoothing,
            )
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def fastest(choices: Sequence[str], choose: Callable[[str], None], work: Performance) -> str:
    """Chooses what a contestant is fastest with, by trying, and returns it."""
    seconds = {}
    for choice in choices:
        choose(choice)
        work.warm_up()
        started = time.perf_counter()
        work.warm_up()
        seconds[choice] = time.perf_counter() - started
    best = min(seconds, key=lambda choice: seconds[choice])
    choose(best)
    return best
