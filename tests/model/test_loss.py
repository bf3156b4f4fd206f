from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import PAD
from dragoman.model.loss import label_smoothed_cross_entropy, training_loss
from dragoman.model.transformer import Transformer

from .toys import SWITCHES, toy_ids, toy_model

PUBLISHED = torch.tensor([0.7, 0.1, 0.1, 0.05, 0.05], dtype=torch.float64)


def test_smoothing_spreads_over_the_whole_vocabulary() -> None:
    # Entry 4 stands in for entry 0 of the published example, which is padding here.
    logits = PUBLISHED.flip(0).log().view(1, 1, 5)
    sums = label_smoothed_cross_entropy(logits, torch.tensor([[4]]), 0.1)
    assert sums.loss.item() == pytest.approx(0.540074, abs=5e-7)
    assert sums.nll.item() == pytest.approx(-math.log(0.7))
    assert sums.correct.item() == 1


def test_without_smoothing_the_loss_is_the_plain_negative_log_likelihood() -> None:
    logits, target = torch.randn(3, 5, 19, dtype=torch.float64), toy_ids(5, 5, 5)
    sums = label_smoothed_cross_entropy(logits, target, 0.0)
    wanted = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), reduction="sum"
    )
    torch.testing.assert_close(sums.loss, wanted)
    torch.testing.assert_close(sums.nll, wanted)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.0, 0.99), st.integers(0, 1 << 49))
def test_the_smoothed_loss_is_torchs(smoothing: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 7, 19, dtype=torch.float64, generator=generator)
    wanted = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1),
        toy_ids(7, 3, seed=seed).flatten(),
        label_smoothing=smoothing,
        ignore_index=PAD,
        reduction="sum",
    )
    found = label_smoothed_cross_entropy(logits, toy_ids(7, 3, seed=seed), smoothing).loss
    torch.testing.assert_close(found, wanted)


def test_padding_neither_gets_nor_gives_loss() -> None:
    logits = torch.randn(2, 7, 19, dtype=torch.float64, requires_grad=True)
    sums = label_smoothed_cross_entropy(logits, toy_ids(7, 3), 0.1)
    sums.loss.backward()
    assert logits.grad is not None
    assert not logits.grad[1, 3:].any()
    alone = [
        label_smoothed_cross_entropy(logits[:1], toy_ids(7, 3)[:1], 0.1),
        label_smoothed_cross_entropy(logits[1:, :3], toy_ids(7, 3)[1:, :3], 0.1),
    ]
    for ours, *theirs in zip(sums, *alone, strict=True):
        torch.testing.assert_close(ours, sum(theirs))


def assert_the_fast_loss_is_the_plain_one(
    model: Transformer, source: Tensor, target: Tensor
) -> None:
    fast = training_loss(model, source, target, 0.1)
    fast.loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    logits = model(source, model.decoder_input(target))
    plain = label_smoothed_cross_entropy(logits, target, 0.1)
    plain.loss.backward()
    torch.testing.assert_close((fast.loss, fast.nll), (plain.loss, plain.nll))
    best, second = logits[target != PAD].topk(2).values.unbind(-1)
    if (best - second).min() > 1e-9:  # of equal logits either may count as the model's choice
        assert fast.correct == plain.correct
    torch.testing.assert_close(gradients, [parameter.grad for parameter in model.parameters()])


LENGTHS = st.integers(1, 7)


@settings(deadline=None, max_examples=40)
@given(SWITCHES, st.booleans(), st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=5))
def test_training_loss_is_the_loss_of_the_models_logits_with_equal_gradients(
    switches: dict[str, Any], padding_mask: bool, lengths: list[tuple[int, int]]
) -> None:
    model = toy_model(spread=0.25, padding_mask=padding_mask, **switches)
    sources, targets = zip(*lengths, strict=True)
    assert_the_fast_loss_is_the_plain_one(model, toy_ids(*sources), toy_ids(*targets, width=8))


def test_batch_norm_counts_its_padding_in_the_fast_loss_too() -> None:
    model = toy_model(spread=0.25, norm="batch").train()
    assert_the_fast_loss_is_the_plain_one(model, toy_ids(5, 3), toy_ids(7, 2))


def test_a_batch_with_nothing_to_learn_has_no_loss() -> None:
    model, source = toy_model(), toy_ids(5, 3)
    sums = training_loss(model, source, torch.full((2, 7), PAD), 0.1)
    assert [each.item() for each in sums] == [0, 0, 0]
    sums.loss.backward()
    assert not any(
        parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None
    )
