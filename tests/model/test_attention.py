from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.model.attention import (
    FusedMultiHeadAttention,
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from dragoman.model.initialization import initialize
from dragoman.model.masks import AttentionMask
from dragoman.model.positions import RelativePositions

from .toys import toy_config


def draw(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_example_of_the_essay_gives_its_shapes_and_rows_that_sum_to_one() -> None:
    query = key = value = torch.randn(2, 4, 8)
    context, weights = scaled_dot_product_attention(query, key, value)
    assert context.shape == (2, 4, 8)
    assert weights.shape == (2, 4, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4))


def test_an_answer_worked_out_by_hand() -> None:
    query = torch.tensor([[2.0, 0.0, 0.0, 0.0]])  # scores 2 * ln 3 / sqrt(4) and 0
    key = torch.tensor([[math.log(3.0), 0.0, 0.0, 0.0], [0.0, 7.0, 7.0, 7.0]])
    context, weights = scaled_dot_product_attention(query, key, torch.tensor([[4.0], [8.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(context, torch.tensor([[5.0]]))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (5, 2, 3)])
def test_any_leading_dimensions_are_as_many_single_attentions(leading: tuple[int, ...]) -> None:
    query, key, value = draw(*leading, 5, 7), draw(*leading, 11, 7), draw(*leading, 11, 3)
    context, weights = scaled_dot_product_attention(query, key, value)
    assert context.shape == (*leading, 5, 3)
    for one in itertools.product(*map(range, leading)):
        alone = scaled_dot_product_attention(query[one], key[one], value[one])
        torch.testing.assert_close((context[one], weights[one]), alone)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
def test_a_mask_of_ones_and_zeros_is_the_bool_mask(dtype: torch.dtype) -> None:
    query, key, value = draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 3)
    mask = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
    context, weights = scaled_dot_product_attention(query, key, value, mask.to(dtype))
    assert (weights[:, mask == 0] == 0).all()
    assert (weights[:, mask == 1] > 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3).double())
    for row in range(3):
        seen = mask[row] == 1
        alone, _ = scaled_dot_product_attention(query[:, [row]], key[:, seen], value[:, seen])
        torch.testing.assert_close(context[:, [row]], alone)


def test_a_row_with_nothing_to_attend_to_gives_zeros_and_finite_gradients() -> None:
    inputs = [draw(3, 7).requires_grad_(), draw(5, 7).requires_grad_(), draw(5, 3).requires_grad_()]
    mask = torch.tensor([[True] * 5, [False] * 5, [True, False, True, False, False]])
    context, weights = scaled_dot_product_attention(*inputs, mask)
    assert not context[1].any()
    assert not weights[1].any()
    context.pow(2).sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in inputs)
    assert inputs[0].grad is not None
    assert not inputs[0].grad[1].any()


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 1 << 49))
def test_permuting_the_keys_changes_no_context_and_permuting_queries_permutes_it(
    num_queries: int, num_keys: int, seed: int
) -> None:
    query, key, value = draw(num_queries, 3), draw(num_keys, 3), draw(num_keys, 5)
    generator = torch.Generator().manual_seed(seed)
    of_queries = torch.randperm(num_queries, generator=generator)
    of_keys = torch.randperm(num_keys, generator=generator)
    context, _ = scaled_dot_product_attention(query, key, value)
    permuted, _ = scaled_dot_product_attention(query[of_queries], key[of_keys], value[of_keys])
    torch.testing.assert_close(permuted, context[of_queries])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("ours", [MultiHeadAttention, FusedMultiHeadAttention])
def test_multi_head_attention_is_torchs(
    ours: type[MultiHeadAttention], causal: bool, bias: bool
) -> None:
    config = toy_config(d_model=33, d_k=11, d_v=11, attention_bias=bias)
    attention = ours(config, RelativePositions()).double()
    torchs = nn.MultiheadAttention(33, 3, bias=bias, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for part, rows in zip("qkv", range(0, 99, 33), strict=True):
            projection = attention.get_submodule(f"{part}_proj")
            projection.weight.copy_(torchs.in_proj_weight[rows : rows + 33])
            if bias:
                projection.bias.copy_(torchs.in_proj_bias[rows : rows + 33].uniform_())
        attention.out_proj.load_state_dict(torchs.out_proj.state_dict())
    x, lengths = draw(2, 7, 33), torch.tensor([7, 5])
    found = attention(x, attention.keys_values(x), AttentionMask(lengths, causal=causal))
    padding = torch.arange(7) >= lengths[:, None]
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    wanted, _ = torchs(x, x, x, key_padding_mask=padding, attn_mask=hidden)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_heads_of_any_width_fit_any_model_width() -> None:
    attention = MultiHeadAttention(
        toy_config(d_model=11, num_heads=3, d_k=7, d_v=2), RelativePositions()
    )
    x = torch.randn(2, 5, 11)
    assert attention(x, attention.keys_values(x), AttentionMask()).shape == (2, 5, 11)
    shapes = {name: tuple(each.shape) for name, each in attention.named_parameters()}
    assert shapes == {
        "q_proj.weight": (21, 11),
        "k_proj.weight": (21, 11),
        "v_proj.weight": (6, 11),
        "out_proj.weight": (11, 6),
    }


@pytest.mark.parametrize("d_k", [16, 257])
def test_unscaled_scores_of_unit_queries_and_keys_grow_as_the_root_of_d_k(
    d_k: int,
) -> None:
    query, key = draw(1009, d_k, seed=2), draw(1013, d_k, seed=3)
    assert (query @ key.T).std().item() == pytest.approx(d_k**0.5, rel=0.05)
    seen: list[Tensor] = []
    scaled_dot_product_attention(query, key, key, on_scores=lambda each: seen.append(each) or each)
    assert seen[0].std().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(("d_k", "deviation"), [(16, 7.75), (64, 14.2), (512, 22.5)])
def test_fresh_unscaled_scores_deviate_as_measured_for_one_head_of_512(
    d_k: int, deviation: float
) -> None:
    torch.manual_seed(1)
    config = toy_config(d_model=512, num_heads=1, d_k=d_k, d_v=1, scale_scores=False)
    attention = MultiHeadAttention(config, RelativePositions())
    attention.apply(initialize)
    x = torch.randn(1, 499, 512)
    seen: list[Tensor] = []
    attention.scores.register_forward_hook(lambda _, __, scores: seen.append(scores))
    attention(x, attention.keys_values(x), AttentionMask())
    assert seen[0].std().item() == pytest.approx(deviation, rel=0.05)
