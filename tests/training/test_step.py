from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dragoman.config import PAD, TrainingConfig
from dragoman.model.loss import training_loss
from dragoman.training.distributed import Ranks
from dragoman.training.step import Batch, StepResult, TrainingLoss, training_step

from ..model.toys import toy_ids, toy_model

LENGTHS = range(1, 9)
SOURCES, TARGETS = toy_ids(*reversed(LENGTHS)), toy_ids(*LENGTHS, seed=5)


def cut(size: int) -> list[Batch]:
    """Cuts 8 sentences of 1 to 8 tokens into micro-batches, each padded to its own longest."""
    return [
        (source[:, : (source != PAD).sum(1).max()], target[:, : (target != PAD).sum(1).max()])
        for source, target in zip(SOURCES.split(size), TARGETS.split(size), strict=True)
    ]


def step(
    batches: list[Batch], precision: str = "float32", **changes: float
) -> tuple[Tensor, StepResult]:
    """Takes a step of gradient descent at rate 1; returns the gradient taken and the result."""
    model = toy_model(spread=0.3)
    optimizer = torch.optim.SGD(model.parameters())
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    config = TrainingConfig(**changes)  # type: ignore[arg-type]
    loss = TrainingLoss(model, config.label_smoothing)
    ranks = Ranks(torch.device("cpu"))
    result = training_step(loss, optimizer, batches, config, 1.0, precision, ranks)
    assert all(parameter.grad is None for parameter in model.parameters())
    return before - torch.nn.utils.parameters_to_vector(model.parameters()).detach(), result


@pytest.mark.parametrize("size", [4, 1, 3])
def test_cutting_a_batch_into_micro_batches_changes_neither_gradient_nor_loss(size: int) -> None:
    whole, result = step(cut(8))
    parts, of_parts = step(cut(size))
    assert ((parts - whole).norm() / whole.norm()).item() < 1e-10
    assert of_parts.loss == pytest.approx(result.loss, rel=1e-10)
    assert of_parts.nll == pytest.approx(result.nll, rel=1e-10)
    assert of_parts.gradient_norm == pytest.approx(result.gradient_norm, rel=1e-10)
    assert of_parts.tokens == result.tokens == sum(LENGTHS)


def test_the_loss_is_that_of_a_real_target_token_on_average() -> None:
    _, result = step(cut(8))
    sums = training_loss(toy_model(spread=0.3), SOURCES, TARGETS, 0.1)
    assert result.loss == pytest.approx(sums.loss.item() / 36, rel=1e-10)
    assert result.nll == pytest.approx(sums.nll.item() / 36, rel=1e-10)


def test_more_padding_changes_nothing() -> None:
    plain, _ = step(cut(8))
    padding = torch.full((8, 5), PAD)
    padded = [tuple(torch.cat([side, padding], 1) for side in batch) for batch in cut(8)]
    found, _ = step(padded)  # type: ignore[arg-type]
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-12)


def test_clipping_shortens_a_long_gradient_and_leaves_a_short_one() -> None:
    free, result = step(cut(8))
    assert result.gradient_norm == pytest.approx(free.norm().item(), rel=1e-6)
    clipped, of_clipped = step(cut(8), clip_norm=0.01)
    assert clipped.norm().item() == pytest.approx(0.01, rel=1e-3)
    assert of_clipped.gradient_norm == pytest.approx(result.gradient_norm)
    torch.testing.assert_close(clipped / clipped.norm(), free / free.norm())
    loose, _ = step(cut(8), clip_norm=1e4)
    torch.testing.assert_close(loose, free)


def test_bfloat16_stays_near_float32() -> None:
    exact, result = step(cut(8))
    narrow, of_narrow = step(cut(8), precision="bfloat16")
    assert of_narrow.loss == pytest.approx(result.loss, rel=0.02)
    assert ((narrow - exact).norm() / exact.norm()).item() < 0.1
