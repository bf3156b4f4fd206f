from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.kernels.packing import PackingIndex


def padded_batch(lengths: list[int], parts: int) -> tuple[Tensor, Tensor]:
    """Returns which tokens are real, and a batch, (batch, parts, length, 5), zero at the others."""
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), parts, max(lengths), 5, dtype=torch.float64)
    return real, x * real[:, None, :, None]


LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(any)


@settings(deadline=None, max_examples=50)
@given(LENGTHS, st.integers(1, 3))
def test_pack_takes_the_real_tokens_in_order_and_pad_puts_them_back(
    lengths: list[int], parts: int
) -> None:
    real, x = padded_batch(lengths, parts)
    index = PackingIndex(real, parts)
    packed = index.pack(x)
    assert torch.equal(packed, x.transpose(1, 2)[real].flatten(0, 1))
    assert torch.equal(index.pad(packed) * real[:, None, :, None], x)
    assert index.pad(packed).isfinite().all()


@settings(deadline=None, max_examples=25)
@given(LENGTHS, st.integers(1, 3))
def test_gradients_go_back_where_the_values_came_from(lengths: list[int], parts: int) -> None:
    real, x = padded_batch(lengths, parts)
    index = PackingIndex(real, parts)
    places = real[:, None, :, None].expand_as(x)
    x.requires_grad_()
    packed = index.pack(x)
    weights = torch.randn_like(packed)
    [at_padded] = torch.autograd.grad((packed * weights).sum(), x, retain_graph=True)
    assert torch.equal(index.pack(at_padded), weights)
    assert not at_padded[~places].any()
    spread = torch.randn_like(x) * places
    [at_packed] = torch.autograd.grad((index.pad(packed) * spread).sum(), packed)
    assert torch.equal(at_packed, index.pack(spread))
