"""One step of training: a pure matter of a model, an optimiser and a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.config import PAD, TrainingConfig
from dragoman.kernels.device import compute_in
from dragoman.model.loss import training_loss
from dragoman.model.transformer import Transformer

Batch = tuple[Tensor, Tensor]
"""Source (batch, source) and target (batch, target) ids, ending in EOS, padded with PAD."""


@dataclass(frozen=True)
class StepResult:
    """What a step did."""

    loss: float
    """Label-smoothed cross-entropy, nats per real target token."""
    nll: float
    """Negative log-likelihood, nats per real target token."""
    tokens: int
    """Real target tokens, EOS included."""
    gradient_norm: float
    """2-norm over all parameters, before clipping."""


def training_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Batch],
    config: TrainingConfig,
    rate: float,
    precision: str,
) -> StepResult:
    """Takes one step along the gradient of the loss of all micro-batches together.

    The loss is summed over all of them and divided by their real target tokens, so that cutting a
    batch into parts changes nothing.
    """
    tokens = sum(int((target != PAD).sum()) for _, target in micro_batches)
    loss = nll = 0.0
    for source, target in micro_batches:
        with compute_in(precision, source.device):
            sums = training_loss(model, source, target, config.label_smoothing)
        (sums.loss / tokens).backward()
        loss += sums.loss.item()
        nll += sums.nll.item()
    norm = torch.nn.utils.clip_grad_norm_(
        model.parameters(), config.clip_norm if config.clip_norm > 0 else float("inf")
    )
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(loss / tokens, nll / tokens, tokens, norm.item())
