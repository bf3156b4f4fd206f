from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import InputError, ModelConfig
from dragoman.model.positions import (
    AlibiPositions,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
    sinusoidal_positions,
)
from dragoman.model.transformer import Transformer

from .toys import toy_config, toy_ids, toy_model


@pytest.mark.parametrize(
    ("choices", "values"),
    [
        ({}, [0.8415, 0.5403, 0.0100, 1.0000]),
        ({"layout": "halves", "denominator": "d/2-1"}, [0.8415, 0.0001, 0.5403, 1.0000]),
        ({"layout": "halves"}, [0.8415, 0.0100, 0.5403, 1.0000]),
    ],
)
def test_position_1_of_4_dimensions_has_the_published_values(
    choices: dict[str, Any], values: list[float]
) -> None:
    found = sinusoidal_positions(torch.tensor([1]), 4, **choices)[0]
    torch.testing.assert_close(found, torch.tensor(values).double(), rtol=0, atol=5e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 9973), st.integers(-97, 9973), st.sampled_from([2, 14, 512]))
def test_a_shift_by_k_is_the_same_rotation_at_every_position(
    position: int, k: int, d_model: int
) -> None:
    at = torch.tensor([float(position)])
    found = sinusoidal_positions(at + k, d_model)[0]
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    sin, cos = (k * frequency).sin(), (k * frequency).cos()
    blocks = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    rotation = torch.block_diag(*blocks)
    moved = rotation @ sinusoidal_positions(at, d_model)[0]
    torch.testing.assert_close(moved, found, rtol=0, atol=1e-10)


def test_wavelengths_go_from_two_pi_to_ten_thousand_times_that() -> None:
    per_position = sinusoidal_positions(torch.tensor([1]), 512)[0, 0::2].asin()
    assert per_position[0].item() == pytest.approx(1.0)
    assert per_position[-1].item() == pytest.approx(10000 ** (-510 / 512), rel=1e-6)


def test_both_layouts_hold_the_same_numbers_in_another_order() -> None:
    positions = torch.arange(13)
    paper = sinusoidal_positions(positions, 14)
    halves = sinusoidal_positions(positions, 14, layout="halves")
    assert torch.equal(torch.cat([paper[:, 0::2], paper[:, 1::2]], dim=1), halves)


def test_the_first_position_is_a_setting() -> None:
    x = torch.zeros(1, 5, 14, dtype=torch.float64)
    from_two = SinusoidalPositions(toy_config(d_model=14, first_position=2))(x)
    torch.testing.assert_close(from_two[0], sinusoidal_positions(torch.arange(2, 7), 14))


def test_positions_are_exact_far_out_even_in_float32() -> None:
    x = torch.zeros(1, 1, 512)
    far = SinusoidalPositions(ModelConfig())(x, 99_991)
    exact = sinusoidal_positions(torch.tensor([99_991]), 512)
    torch.testing.assert_close(far[0].double(), exact, rtol=0, atol=1e-7)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "none"])
def test_no_length_is_too_long_without_learned_positions(positions: str) -> None:
    model = toy_model(positions=positions, max_positions=3)
    assert model.max_length is None
    assert model(toy_ids(97), toy_ids(89)).isfinite().all()


@pytest.mark.parametrize(("source", "target"), [(18, 3), (3, 18)])
def test_learned_positions_refuse_a_longer_sentence_and_name_the_limit(
    source: int, target: int
) -> None:
    model = toy_model(positions="learned", max_positions=17, first_position=2)
    assert model(toy_ids(17), toy_ids(17)).shape == (1, 17, 19)
    with pytest.raises(InputError, match=r"18 tokens, .*at most model\.max_positions \(17\)"):
        model(toy_ids(source), toy_ids(target))


def test_each_learned_position_adds_its_own_vector() -> None:
    positions = LearnedPositions(toy_config(first_position=2, max_positions=7))
    torch.nn.init.normal_(positions.weight)
    added = positions(torch.zeros(3, 5, 11), first=1)
    assert torch.equal(added, positions.weight[3:8].expand(3, 5, 11))


def test_rotary_scores_depend_on_distance_alone() -> None:
    rotary = RotaryPositions()
    query, key = torch.randn(2, 1, 1, 1, 14, dtype=torch.float64)

    def score(at_query: int, at_key: int) -> Tensor:
        return (rotary.rotate(query, at_query) * rotary.rotate(key, at_key)).sum()

    torch.testing.assert_close(score(5, 3), score(1009, 1007))
    assert not torch.isclose(score(5, 3), score(5, 2))
    torch.testing.assert_close(rotary.rotate(query, 11).norm(), query.norm())


def test_alibi_of_8_heads_halves_its_slope_from_head_to_head() -> None:
    bias = AlibiPositions().bias(2, torch.zeros(1, 8, 3, 5, dtype=torch.float64))
    slopes = 0.5 ** torch.arange(1, 9).double()
    distances = torch.tensor([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]).double()
    torch.testing.assert_close(bias, -slopes[:, None, None] * distances)


def test_without_positions_the_encoder_is_equivariant_and_with_them_it_is_not() -> None:
    source, order = toy_ids(7), torch.tensor([3, 0, 5, 1, 6, 2, 4])

    def encode(model: Transformer, ids: Tensor) -> Tensor:
        return model.encode(ids)[0]

    blind = toy_model(positions="none")
    torch.testing.assert_close(encode(blind, source[:, order]), encode(blind, source)[:, order])
    for positions in ("sinusoidal", "learned", "rotary", "alibi"):
        model = toy_model(positions=positions)
        moved, stayed = encode(model, source[:, order]), encode(model, source)[:, order]
        assert (moved - stayed).abs().max() > 1e-3
