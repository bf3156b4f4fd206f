from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.kernels.dropout import Dropout, dropout

P = st.floats(0.0, 1.0, exclude_max=True)


def draw(p: float, *shape: int, seed: int = 11) -> Tensor:
    torch.manual_seed(seed)
    return dropout(torch.ones(shape, dtype=torch.float64), p)


@settings(deadline=None, max_examples=50)
@given(P, st.lists(st.integers(0, 7), max_size=4))
def test_each_element_is_zero_or_divided_by_what_is_kept(p: float, shape: list[int]) -> None:
    found = draw(p, *shape)
    assert found.shape == torch.Size(shape)
    kept = 1 - min(round(p * 65536), 65535) / 65536
    assert ((found == 0) | ((found * kept - 1).abs() < 1e-12)).all()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.9])
def test_the_share_that_is_lost_is_the_probability(p: float) -> None:
    count = 1_000_003
    deviation = (p * (1 - p) / count) ** 0.5
    found = draw(p, count)
    assert (found == 0).double().mean().item() == pytest.approx(p, abs=4.5 * deviation + 1e-5)
    assert found.mean().item() == pytest.approx(1.0, abs=4.5 * deviation / (1 - p) + 1e-5)


def test_neighbours_are_independent_of_each_other() -> None:
    kept = (draw(0.3, 1_000_003) != 0).double().numpy()
    for distance in (1, 2, 3, 4, 5, 8, 64, 512):
        correlation = np.corrcoef(kept[:-distance], kept[distance:])[0, 1]
        assert abs(correlation) < 0.005, distance
    for place in range(4):  # the four words of one draw are alike
        assert kept[place::4].mean() == pytest.approx(0.7, abs=0.005)


def test_the_seed_decides_what_is_lost() -> None:
    assert torch.equal(draw(0.3, 7, 101), draw(0.3, 7, 101))
    assert not torch.equal(draw(0.3, 7, 101), draw(0.3, 7, 101, seed=13))
    torch.manual_seed(11)
    first, second = (dropout(torch.ones(7, 101), 0.3) for _ in range(2))
    assert not torch.equal(first, second)


def test_the_gradient_is_the_mask_itself() -> None:
    torch.manual_seed(11)
    x = torch.ones(7, 101, dtype=torch.float64, requires_grad=True)
    found = dropout(x, 0.3)
    found.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_type_and_the_shape_stay_even_of_a_view(dtype: torch.dtype) -> None:
    x = torch.ones(5, 7, 3, dtype=dtype).transpose(0, 2)[:, 1:]
    found = dropout(x, 0.5)
    assert (found.dtype, found.shape) == (dtype, x.shape)
    assert set(found.flatten().tolist()) == {0.0, 2.0}


def test_the_module_drops_while_it_trains_only() -> None:
    module, x = Dropout(0.3), torch.ones(7, 101)
    assert (module(x) == 0).any()
    assert module.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert "p=0.3" in repr(module)
