from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.kernels import attention
from dragoman.kernels.attention import fused_attention, is_long
from dragoman.model.attention import scaled_dot_product_attention


@pytest.fixture(params=["short", "long"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the test's few tokens for a short sentence and for a long one."""
    take_for(request.param, monkeypatch)


def take_for(path: str, patch: pytest.MonkeyPatch) -> None:
    for limit in ("_LONG", "_LONG_NARROW"):
        patch.setattr(attention, limit, 0 if path == "long" else 1 << 40)


def inputs(num_queries: int, num_keys: int, d_v: int, seed: int = 5) -> tuple[Tensor, ...]:
    """Returns query, key and value of 2 sentences and 3 heads, and what the gradient comes from."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((num_queries, 7), (num_keys, 7), (num_keys, d_v), (num_queries, d_v))
    return tuple(
        torch.randn(2, 3, *shape, dtype=torch.float64, generator=generator) for shape in shapes
    )


def with_gradients(context: Tensor, leaves: tuple[Tensor, ...], upstream: Tensor) -> list[Tensor]:
    return [context, *torch.autograd.grad(context, leaves, upstream)]


@settings(deadline=None, max_examples=60)
@given(
    path=st.sampled_from(["short", "long"]),
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 5)),
    mask_shape=st.sampled_from(["none", "keys", "queries", "sentences", "whole"]),
    share=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    scale=st.sampled_from([7**-0.5, 1.0, 3.0]),
    bias_kind=st.sampled_from(["none", "constant", "learned"]),
    seed=st.integers(0, 1 << 32),
)
def test_values_and_gradients_are_those_of_the_definition_for_any_mask(
    path: str,
    sizes: tuple[int, int, int],
    mask_shape: str,
    share: float,
    scale: float,
    bias_kind: str,
    seed: int,
) -> None:
    queries, keys, d_v = sizes
    *leaves, upstream = (each.requires_grad_() for each in inputs(queries, keys, d_v, seed))
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "keys": (2, 1, 1, keys),
        "queries": (1, 1, queries, keys),
        "sentences": (2, 1, queries, keys),
        "whole": (2, 3, queries, keys),
    }
    mask = None
    if mask_shape != "none":
        mask = torch.rand(shapes[mask_shape], generator=generator) < share
    bias = None
    if bias_kind != "none":
        bias = torch.randn(3, queries, keys, generator=generator, dtype=torch.float64)
    if bias is not None and bias_kind == "learned":
        leaves.append(bias.requires_grad_())
    query, key, value = leaves[:3]
    with pytest.MonkeyPatch.context() as patch:
        take_for(path, patch)
        fast = fused_attention(query, key, value, mask, scale=scale, bias=bias)
    plain, _ = scaled_dot_product_attention(query, key, value, mask, scale=scale, bias=bias)
    torch.testing.assert_close(
        with_gradients(fast, tuple(leaves), upstream),
        with_gradients(plain, tuple(leaves), upstream),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize("mask_shape", [(1, 5), (3, 5)])
def test_a_row_with_nothing_to_attend_to_gives_zeros_and_finite_gradients(
    path: None, mask_shape: tuple[int, int]
) -> None:
    *leaves, upstream = (each.requires_grad_() for each in inputs(3, 5, 2))
    mask = torch.ones(mask_shape, dtype=torch.bool)
    mask[-1] = False
    context, *gradients = with_gradients(
        fused_attention(*leaves, mask, scale=1.0), tuple(leaves), upstream
    )
    assert not context[:, :, -1].any()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][:, :, -1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reduced_precision_stays_near_and_hides_what_is_masked(
    path: None, dtype: torch.dtype
) -> None:
    query, key, value, _ = inputs(5, 7, 3)
    mask = torch.arange(7) < 4
    exact = fused_attention(query, key, value, mask, scale=7**-0.5)
    narrow = [each.to(dtype) for each in (query, key, value)]
    found = fused_attention(*narrow, mask, scale=7**-0.5)
    assert found.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)
    narrow[2][:, :, 4:] = 1e6
    assert torch.equal(fused_attention(*narrow, mask, scale=7**-0.5), found)


def test_the_inputs_are_left_as_they_were(path: None) -> None:
    leaves = inputs(5, 7, 3)[:3]
    copies = [each.clone() for each in leaves]
    bias, mask = torch.zeros(5, 7), torch.arange(7) < 4
    fused_attention(*leaves, mask, scale=0.5, bias=bias)
    assert all(torch.equal(each, copy) for each, copy in zip(leaves, copies, strict=True))
    assert not bias.any()


def test_dropout_loses_its_share_of_the_weights_and_keeps_the_expectation(path: None) -> None:
    torch.manual_seed(3)
    query, key = torch.zeros(1, 1, 997, 7), torch.zeros(1, 1, 101, 7)
    context = fused_attention(query, key, torch.eye(101)[None, None], None, scale=1.0, dropout=0.3)
    lost = (context == 0).double().mean().item()
    assert lost == pytest.approx(0.3, abs=0.01)
    assert context.sum(-1).mean().item() == pytest.approx(1.0, abs=0.01)
    kept = context[context != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 101 / 0.7), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_long_sentence_keeps_no_weights(dropout: float) -> None:
    leaves = [torch.randn(1, 2, 523, 3, requires_grad=True) for _ in range(3)]
    assert is_long(leaves[0], leaves[1])
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        fused_attention(*leaves, None, scale=1.0, dropout=dropout)
    assert max(sizes) < 523 * 523


def test_parts_of_a_mask_and_of_a_bias_are_as_good_as_the_whole(path: None) -> None:
    leaves = inputs(5, 7, 3)[:3]
    mask, bias = torch.ones(5, 7, dtype=torch.bool).tril(2), torch.randn(3, 5, 7)
    whole = fused_attention(*leaves, mask, scale=0.5, bias=bias)
    parts = fused_attention(
        *leaves,
        lambda _, rows, columns: mask[None, None, rows, columns],
        scale=0.5,
        bias=lambda _, rows, columns: bias[None, :, rows, columns],
    )
    torch.testing.assert_close(parts, whole)
