"""One step of training: a pure matter of a model, an optimiser and a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dragoman.config import PAD, TrainingConfig
from dragoman.kernels.cross_entropy import LossSums
from dragoman.kernels.device import compute_in
from dragoman.model.loss import training_loss
from dragoman.model.seq2seq import Seq2Seq
from dragoman.training.distributed import Ranks

Batch = tuple[Tensor, Tensor]
"""Source (batch, source) and target (batch, target) ids, ending in EOS, padded with PAD."""


@dataclass(frozen=True)
class StepResult:
    """What a step did, on all ranks together."""

    loss: float
    """Label-smoothed cross-entropy, nats per real target token."""
    nll: float
    """Negative log-likelihood, nats per real target token."""
    tokens: int
    """Real target tokens, EOS included."""
    gradient_norm: float
    """2-norm over all parameters, before clipping."""

    @property
    def finite(self) -> bool:
        """Whether the gradient was; if not, no parameter has moved."""
        return math.isfinite(self.gradient_norm)


class TrainingLoss(nn.Module):
    """The loss of a batch as a module, which is what DistributedDataParallel takes."""

    def __init__(self, model: Seq2Seq, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, source: Tensor, target: Tensor) -> LossSums:
        """Returns the sums of `training_loss`."""
        return training_loss(self.model, source, target, self.smoothing)


def _sum_later(loss: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Keeps gradients at home until the last micro-batch: one exchange a step is enough."""
    if isinstance(loss, DistributedDataParallel) and not last:
        return loss.no_sync()
    return nullcontext()


def training_step(
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Batch],
    config: TrainingConfig,
    rate: float,
    precision: str,
    ranks: Ranks,
) -> StepResult:
    """Takes one step along the gradient of the loss of all micro-batches and ranks together.

    The loss is summed over all of them and divided by their real target tokens, so that cutting a
    batch into parts changes nothing.

    Args:
        loss: a `TrainingLoss`, wrapped by `ranks`.
        optimizer: over its parameters.
        micro_batches: this rank's, one or more.
        config: label smoothing and clipping.
        rate: the learning rate of this step.
        precision: `bfloat16` for products in it, else the parameters' own.
        ranks: who else takes part.
    """
    mine = sum(int((target != PAD).sum()) for _, target in micro_batches)
    [tokens] = ranks.total(mine)
    sums = torch.zeros(2, dtype=torch.float64)
    for number, (source, target) in enumerate(micro_batches, start=1):
        with _sum_later(loss, last=number == len(micro_batches)):
            with compute_in(precision, source.device):
                found: LossSums = loss(source, target)
            # the mean over the ranks, which is what they exchange, times their number is the sum
            (found.loss / (tokens / ranks.count)).backward()
        sums += torch.stack([found.loss.detach(), found.nll]).double().cpu()
    total_loss, total_nll = ranks.total(*sums.tolist())
    parameters = list(loss.parameters())
    norm = nn.utils.get_total_norm(p.grad for p in parameters if p.grad is not None)
    result = StepResult(total_loss / tokens, total_nll / tokens, int(tokens), norm.item())
    if result.finite:
        if config.clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, config.clip_norm, norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return result
