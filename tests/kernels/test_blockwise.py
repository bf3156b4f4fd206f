from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.kernels import blockwise
from dragoman.kernels.blockwise import PartMaker, blockwise_attention
from dragoman.kernels.dropout import kept_scale
from dragoman.model.attention import scaled_dot_product_attention

HEADS, D_K = 3, 7


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Blocks of at most 5 queries and 2 keys, more where the last queries are fewer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise, "_ROWS", 5)
        patch.setattr(blockwise, "_BLOCK_ELEMENTS", HEADS * 5 * 2)
        yield


def inputs(
    queries: int, keys: int, d_v: int = 5, seed: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """Returns query, key and value of 2 sentences, and what the gradient comes from.

    They lie in memory as the heads are split: position before head.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = ((queries, D_K), (keys, D_K), (keys, d_v), (queries, d_v))
    return tuple(
        torch.randn(2, length, HEADS, d, dtype=dtype, generator=generator)
        .transpose(1, 2)
        .requires_grad_()
        for length, d in shapes
    )


def parts(whole: Tensor) -> PartMaker:
    return lambda sentences, rows, columns: whole[sentences, :, rows, columns]


def with_gradients(context: Tensor, leaves: tuple[Tensor, ...], upstream: Tensor) -> list[Tensor]:
    return [context, *torch.autograd.grad(context, leaves, upstream)]


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.tuples(st.integers(1, 13), st.integers(1, 13), st.integers(1, 5)),
    share=st.sampled_from([0.0, 0.1, 0.7, 1.0, None]),
    spread=st.sampled_from([0.1, 1.0, 100.0]),
    has_bias=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_values_and_gradients_are_those_of_the_definition_for_any_mask(
    sizes: tuple[int, int, int], share: float | None, spread: float, has_bias: bool, seed: int
) -> None:
    *leaves, upstream = inputs(*sizes, seed)
    generator = torch.Generator().manual_seed(seed)
    shape = (2, HEADS, *sizes[:2])
    mask = None if share is None else torch.rand(shape, generator=generator) < share
    bias = torch.randn(shape, generator=generator, dtype=torch.float64) if has_bias else None
    fast = blockwise_attention(
        *leaves,
        None if mask is None else parts(mask),
        scale=spread,
        bias=None if bias is None else parts(bias),
    )
    plain, _ = scaled_dot_product_attention(*leaves, mask, scale=spread, bias=bias)
    torch.testing.assert_close(
        with_gradients(fast, tuple(leaves), upstream),
        with_gradients(plain, tuple(leaves), upstream),
        rtol=1e-9,
        atol=1e-9,
    )


def test_a_row_with_nothing_to_attend_to_gives_zeros_and_no_gradient() -> None:
    *leaves, upstream = inputs(7, 11)
    mask = torch.ones(2, 1, 7, 11, dtype=torch.bool)
    mask[0, :, 3] = False
    mask[1] = False
    context, *gradients = with_gradients(
        blockwise_attention(*leaves, parts(mask), scale=1.0), tuple(leaves), upstream
    )
    assert not context[0, :, 3].any()
    assert not context[1].any()
    assert not gradients[0][0, :, 3].any()
    assert not any(gradient[1].any() for gradient in gradients)
    assert all(gradient.isfinite().all() for gradient in gradients)


def visible_weights(dropout: float, seed: int, queries: int = 11, keys: int = 13) -> Tensor:
    """Returns the weights that a dropout of this seed left: the context of the identity."""
    query, key, _, _ = inputs(queries, keys)
    identity = torch.eye(keys, dtype=torch.float64).expand(2, HEADS, -1, -1)
    torch.manual_seed(seed)
    return blockwise_attention(query, key, identity, None, scale=1.0, dropout=dropout)


def test_with_dropout_both_passes_leave_out_the_same_weights() -> None:
    *leaves, upstream = inputs(11, 13)
    kept = visible_weights(0.3, seed=3).detach() != 0
    torch.manual_seed(3)
    fast = blockwise_attention(*leaves, None, scale=1.0, dropout=0.3)
    plain, _ = scaled_dot_product_attention(
        *leaves, scale=1.0, on_weights=lambda weights: weights * kept * kept_scale(0.3)
    )
    torch.randn(17)  # what is drawn between the passes changes nothing
    torch.testing.assert_close(
        with_gradients(fast, tuple(leaves), upstream),
        with_gradients(plain, tuple(leaves), upstream),
        rtol=1e-9,
        atol=1e-9,
    )


def test_dropout_loses_its_share_independently_of_place_and_call() -> None:
    masks = torch.stack(
        [visible_weights(0.3, seed, queries=47, keys=53) == 0 for seed in (3, 4)]
    ).double()
    assert masks.mean().item() == pytest.approx(0.3, abs=0.01)
    centred = masks - 0.3
    for axis, step in ((0, 1), (1, 1), (2, 1), (3, 1), (3, 5), (4, 1), (4, 2)):
        ahead = centred.narrow(axis, step, centred.shape[axis] - step)
        behind = centred.narrow(axis, 0, centred.shape[axis] - step)
        assert abs((ahead * behind).mean().item()) < 0.21 * 0.03  # 0.21: the variance of one


def test_dropout_goes_on_where_the_random_state_stood_and_moves_it() -> None:
    first = visible_weights(0.3, seed=3)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    *leaves, _ = inputs(11, 13)
    blockwise_attention(*leaves, None, scale=1.0, dropout=0.3)
    assert not torch.equal(state, torch.get_rng_state())
    assert torch.equal(visible_weights(0.3, seed=3), first)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_bfloat16_stays_near_the_definition(dropout: float) -> None:
    *leaves, upstream = inputs(31, 29)
    kept = visible_weights(dropout, 3, 31, 29).detach() != 0
    exact, _ = scaled_dot_product_attention(
        *leaves, scale=0.3, on_weights=lambda weights: weights * kept / (1 - dropout)
    )
    narrow = [each.detach().float().requires_grad_() for each in leaves]
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        found = blockwise_attention(*narrow, None, scale=0.3, dropout=dropout)
    assert found.dtype == torch.bfloat16
    wanted = with_gradients(exact, tuple(leaves), upstream)
    for ours, theirs in zip(
        with_gradients(found, tuple(narrow), upstream.to(found.dtype)), wanted, strict=True
    ):
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


def test_blocks_that_nobody_sees_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Size] = []
    widen = blockwise._widen
    monkeypatch.setattr(blockwise, "_widen", lambda x: made.append(x.shape) or widen(x))
    *leaves, _ = inputs(10, 10)
    causal = torch.ones(2, 1, 10, 10, dtype=torch.bool).tril()
    blockwise_attention(*leaves, parts(causal), scale=1.0)
    assert len(made) == 2 * (3 + 5)  # of 5 columns of blocks the first row of blocks sees 3


def test_what_is_kept_grows_with_the_length_alone() -> None:
    def kept(length: int) -> int:
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.nbytes) or tensor, lambda tensor: tensor
        ):
            blockwise_attention(*inputs(length, length)[:3], None, scale=1.0, dropout=0.3)
        return sum(sizes)

    assert kept(62) == 2 * kept(31)


def test_the_gradient_has_no_gradient() -> None:
    *leaves, _ = inputs(3, 5)
    context = blockwise_attention(*leaves, None, scale=1.0)
    [slope] = torch.autograd.grad((context**2).sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()
