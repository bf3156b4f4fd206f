from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.kernels import cross_entropy
from dragoman.kernels.cross_entropy import LossSums, projected_cross_entropy
from dragoman.model.loss import label_smoothed_cross_entropy

from ..peak import Peak

VOCAB, D_MODEL = 19, 11


def inputs(tokens: int, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Returns hidden, weight and target; no target is padding."""
    generator = torch.Generator().manual_seed(tokens)
    hidden, weight = (
        torch.randn(rows, D_MODEL, dtype=torch.float64, generator=generator) * spread
        for rows in (tokens, VOCAB)
    )
    target = torch.randint(1, VOCAB, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), target


def plain(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> LossSums:
    logits = hidden @ weight.T
    return label_smoothed_cross_entropy(logits[None], target[None], smoothing)


def with_gradients(sums: LossSums, hidden: Tensor, weight: Tensor) -> list[Tensor]:
    gradients = torch.autograd.grad(3 * sums.loss, (hidden, weight))
    return [sums.loss, sums.nll, sums.correct.double(), *gradients]


@settings(deadline=None, max_examples=50)
@given(
    tokens=st.integers(0, 31),
    smoothing=st.floats(0.0, 0.99),
    rows=st.integers(1, 13),
    spread=st.sampled_from([0.1, 1.0, 7.0]),
)
def test_values_and_gradients_are_those_of_the_definition_in_chunks_of_any_size(
    tokens: int, smoothing: float, rows: int, spread: float
) -> None:
    hidden, weight, target = inputs(tokens, spread)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_entropy, "_CHUNK_ELEMENTS", rows * VOCAB)
        fast = projected_cross_entropy(hidden, weight, target, smoothing)
    torch.testing.assert_close(
        with_gradients(fast, hidden, weight),
        with_gradients(plain(hidden, weight, target, smoothing), hidden, weight),
        rtol=1e-10,
        atol=1e-10,
    )


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    hidden, weight, target = inputs(7)
    assert torch.autograd.gradcheck(
        lambda h, w: projected_cross_entropy(h, w, target, 0.1).loss, (hidden, weight)
    )


def test_logits_far_apart_overflow_nothing() -> None:
    hidden, weight, target = inputs(7, spread=100.0)
    found = with_gradients(projected_cross_entropy(hidden, weight, target, 0.1), hidden, weight)
    assert all(each.isfinite().all() for each in found)
    torch.testing.assert_close(found[0], plain(hidden, weight, target, 0.1).loss)


def test_under_autocast_the_loss_is_float32_and_near_with_gradients_of_the_inputs_types() -> None:
    hidden, weight, target = inputs(1009)
    exact = with_gradients(plain(hidden, weight, target, 0.1), hidden, weight)
    narrow = [each.detach().float().requires_grad_() for each in (hidden, weight)]
    with torch.autocast("cpu", torch.bfloat16):
        sums = projected_cross_entropy(*narrow, target, 0.1)
    assert sums.loss.dtype == torch.float32
    found = with_gradients(sums, *narrow)
    assert [each.dtype for each in found[3:]] == [torch.float32, torch.float32]
    assert sums.loss.item() == pytest.approx(exact[0].item(), rel=2e-3)
    for ours, theirs in zip(found[3:], exact[3:], strict=True):
        error = (ours - theirs).norm() / theirs.norm()
        assert error < 0.02


def test_without_a_need_for_gradients_none_are_made() -> None:
    hidden, weight, target = inputs(7)
    with torch.no_grad():
        sums = projected_cross_entropy(hidden, weight, target, 0.1)
    assert not sums.loss.requires_grad
    torch.testing.assert_close(sums.loss, plain(hidden, weight, target, 0.1).loss.detach())


def test_no_room_is_taken_for_gradients_that_do_not_come() -> None:
    hidden, weight = torch.randn(2, 211), torch.randn(1009, 211, requires_grad=True)
    with torch.no_grad(), Peak() as peak:
        projected_cross_entropy(hidden, weight, torch.tensor([3, 5]), 0.1)
    assert peak.most < 1.5 * weight.nbytes  # the weights are counted, a gradient would be as much


def test_what_is_held_besides_weights_and_their_gradient_is_the_same_for_any_vocabulary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cross_entropy, "_CHUNK_ELEMENTS", 1 << 14)

    def held(vocab: int) -> int:
        hidden, weight = torch.randn(1009, D_MODEL), torch.randn(vocab, D_MODEL)
        target = torch.randint(0, vocab, (1009,))
        with Peak() as peak:
            sums = projected_cross_entropy(
                hidden.requires_grad_(), weight.requires_grad_(), target, 0.1
            )
            assert sums.loss.requires_grad
        return peak.most - 2 * weight.nbytes

    assert held(3701) == pytest.approx(held(809), rel=0.1)
