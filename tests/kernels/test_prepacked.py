from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dragoman.kernels import prepacked
from dragoman.kernels.prepacked import PrepackedLinear

LARGE = 1031, 521  # packed wherever oneDNN is
ROWS = st.integers(1, 19)


@pytest.mark.parametrize("shape", [(7, 5), LARGE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(deadline=None, max_examples=5)
@given(rows=ROWS, bias=st.booleans(), seed=st.integers(0, 99))
def test_the_product_is_that_of_the_plain_definition(
    shape: tuple[int, int], dtype: torch.dtype, rows: int, bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    weight, x = torch.randn(shape, dtype=dtype), torch.randn(rows, shape[1], dtype=dtype)
    b = torch.randn(shape[0], dtype=dtype) if bias else None
    y = PrepackedLinear(weight, b, dtype)(x)
    torch.testing.assert_close(y, F.linear(x, weight, b), rtol=1e-5, atol=1e-4)


@settings(deadline=None, max_examples=10)
@given(sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3), bias=st.booleans(), rows=ROWS)
def test_layers_of_one_input_stand_side_by_side(sizes: list[int], bias: bool, rows: int) -> None:
    layers = [nn.Linear(5, size, bias) for size in sizes]
    x = torch.randn(rows, 5)
    both = PrepackedLinear.of(layers, torch.float32)(x)
    torch.testing.assert_close(both, torch.cat([layer(x) for layer in layers], dim=1))


@pytest.mark.parametrize("shape", [(7, 5), LARGE])
def test_bfloat16_rounds_weights_once_and_gives_results_in_it(shape: tuple[int, int]) -> None:
    weight, x = torch.randn(shape), torch.randn(3, shape[1])
    y = PrepackedLinear(weight, None, torch.bfloat16)(x)
    assert y.dtype == torch.bfloat16
    exact = F.linear(x.bfloat16().double(), weight.bfloat16().double())
    torch.testing.assert_close(y.double(), exact, rtol=2**-7, atol=0.1)


def test_large_float32_weights_are_packed_and_float64_never_is() -> None:
    if torch.backends.mkldnn.is_available():
        assert prepacked.packs(torch.zeros(LARGE))
    assert not prepacked.packs(torch.zeros(LARGE, dtype=torch.float64))


def test_without_torch_s_operations_there_is_the_plain_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepacked, "_OPERATIONS", ("_no_such_operation",))
    weight, x = torch.randn(LARGE), torch.randn(2, LARGE[1])
    assert torch.equal(PrepackedLinear(weight, None, torch.float32)(x), F.linear(x, weight))
