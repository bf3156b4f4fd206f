"""Memory that grows with something: with the length of a sentence, with the vocabulary."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.bench.ours import seeded_model
from dragoman.bench.setting import Run, Setting, config_of_size
from dragoman.config import EOS, UNK
from dragoman.kernels import resources
from dragoman.kernels.cross_entropy import projected_cross_entropy
from dragoman.kernels.process import tune_process
from dragoman.training.step import TrainingLoss

_ATTENTION_DROPOUT = 0.1
_ROWS = 2048
"""Target tokens of the loss alone."""


class _Measured:
    """Measures a peak; there is no speed to warm up for."""

    facts: dict[str, Any]

    def warm_up(self) -> None:
        """Does nothing."""

    def run(self) -> Run:
        """Returns the note `bytes`."""
        return Run(0, {"bytes": resources.peak_above(self.work)})

    def work(self) -> None:
        """What takes the memory."""
        raise NotImplementedError


class SentenceMemory(_Measured):
    """Forward and backward of one long pair, attention dropout included.

    Parameters and gradients, which don't grow with it, are there before.
    """

    def __init__(self, setting: Setting, length: int, readable: bool) -> None:
        tune_process()
        config = config_of_size(setting.size)
        model_config = dataclasses.replace(config.model, attention_dropout=_ATTENTION_DROPOUT)
        model = seeded_model(model_config).train()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        path = model.readable() if readable else model
        self._loss = TrainingLoss(path, config.training.label_smoothing)
        self._ids = torch.full((1, length), UNK)
        self._ids[0, -1] = EOS
        self.facts = {"length": length}

    def work(self) -> None:
        """Makes the loss and its gradient."""
        self._loss(self._ids, self._ids).loss.backward()


class LossMemory(_Measured):
    """Output projection and loss alone, without the weights and what has their size: gradients."""

    def __init__(self, setting: Setting, vocab_size: int, whole_logits: bool) -> None:
        config = config_of_size(setting.size)
        self._smoothing = config.training.label_smoothing
        self._compute = self._whole_logits if whole_logits else self._in_chunks
        self._hidden = torch.randn(_ROWS, config.model.d_model, requires_grad=True)
        self._weight = torch.randn(vocab_size, config.model.d_model, requires_grad=True)
        self._target = torch.randint(EOS + 1, vocab_size, (_ROWS,))
        self.facts = {"vocab_size": vocab_size}

    def run(self) -> Run:
        """Returns the note `bytes`."""
        peak = resources.peak_above(self.work)
        gradients = sum(each.numel() * each.element_size() for each in (self._hidden, self._weight))
        return Run(0, {"bytes": None if peak is None else peak - gradients})

    def work(self) -> None:
        """Makes the loss and its gradient."""
        self._compute().backward()

    def _in_chunks(self) -> Tensor:
        return projected_cross_entropy(
            self._hidden, self._weight, self._target, self._smoothing
        ).loss

    def _whole_logits(self) -> Tensor:
        logits = F.linear(self._hidden, self._weight)
        return F.cross_entropy(
            logits, self._target, reduction="sum", label_smoothing=self._smoothing
        )
