from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from dragoman.model.loss import training_loss
from dragoman.model.transformer import Transformer

from .reference import Array, Reference
from .toys import SWITCHES, toy_ids, toy_model

SOURCE, TARGET = toy_ids(7, 2, 5, seed=5), toy_ids(3, 11, 1, seed=11)


def reference_of(model: Transformer) -> Reference:
    parameters = model.named_parameters(remove_duplicate=False)
    return Reference(
        model.config, {name: each.detach().double().numpy() for name, each in parameters}
    )


def sentences() -> list[tuple[list[int], list[int]]]:
    return [
        ([i for i in source if i], [i for i in target if i])
        for source, target in zip(SOURCE.tolist(), TARGET.tolist(), strict=True)
    ]


def largest_difference(ours: torch.Tensor, theirs: list[Array]) -> float:
    """Between a padded batch and its sentences where they are real, relative above 1."""
    rows = zip(ours.detach().double().numpy(), theirs, strict=True)
    return max(
        float((np.abs(row[: len(each)] - each) / np.maximum(1, np.abs(each))).max())
        for row, each in rows
    )


def differences(model: Transformer) -> tuple[float, float, float]:
    """Returns how far encoder, decoder and loss are from the reference."""
    reference = reference_of(model)
    start = model.start_token
    memories = [reference.encode(source) for source, _ in sentences()]
    logits = [reference.logits(source, target, start) for source, target in sentences()]
    loss = sum(
        reference.loss(row, target, 0.1)
        for row, (_, target) in zip(logits, sentences(), strict=True)
    )
    ours = training_loss(model, SOURCE, TARGET, 0.1).loss.item()
    return (
        largest_difference(model.encode(SOURCE)[0], memories),
        largest_difference(model(SOURCE, model.decoder_input(TARGET)), logits),
        abs(ours - loss) / loss,
    )


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_encoder_decoder_and_loss_are_the_formulas_in_float64(norm_place: str) -> None:
    assert max(differences(toy_model(norm_place=norm_place))) < 1e-10


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_encoder_decoder_and_loss_are_the_formulas_in_float32(norm_place: str) -> None:
    assert max(differences(toy_model(norm_place=norm_place).float())) < 1e-5


@settings(deadline=None, max_examples=40)
@given(SWITCHES)
def test_every_combination_of_switches_is_its_formulas(switches: dict[str, Any]) -> None:
    # Wider parameters would lose digits where there are no norms to hold the numbers down.
    assert max(differences(toy_model(spread=0.15, **switches))) < 1e-10


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_gradients_are_the_slopes_of_the_formulas(norm_place: str) -> None:
    model = toy_model(norm_place=norm_place, attention_bias=True)
    training_loss(model, SOURCE, TARGET, 0.1).loss.backward()
    step = 1e-6

    def loss_after(direction: float) -> float:
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.add_(parameter.grad, alpha=direction / length)
        reference, start = reference_of(model), model.start_token
        return sum(reference.loss(reference.logits(s, t, start), t, 0.1) for s, t in sentences())

    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    length = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients])).item()
    ahead, behind = loss_after(step), loss_after(-2 * step)
    assert (ahead - behind) / (2 * step) == pytest.approx(length, rel=1e-6)
