from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model import cache as caches
from dragoman.model.cache import SharedCache
from dragoman.model.fast_decoder import FastDecoder
from dragoman.model.transformer import Transformer

from .toys import SWITCHES, toy_ids, toy_model

SOURCES = toy_ids(5, 2, 3)
SUPPORTED = SWITCHES.filter(lambda switches: switches["positions"] != "alibi")


def model(**switches: Any) -> Transformer:
    return toy_model(**switches).eval()


def started(transformer: Transformer) -> tuple[FastDecoder, SharedCache]:
    fast = FastDecoder(transformer, torch.float64)
    return fast, fast.start(SOURCES)


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are compacted every second step or so, and seen in odd numbers."""
    for name, size in (("_SLOTS", 3), ("_STEPS", 2), ("_WIDTH", 5)):
        monkeypatch.setattr(caches, name, size)


@torch.inference_mode()
def check_against_the_plain_decoder(transformer: Transformer, data: st.DataObject) -> None:
    plain, (fast, shared) = transformer.start(SOURCES), started(transformer)
    batch, width = len(SOURCES), 1
    for _ in range(9):
        tokens = torch.tensor(
            data.draw(st.lists(st.integers(0, 18), min_size=batch * width, max_size=batch * width))
        ).view(batch, width)
        torch.testing.assert_close(fast.step(tokens, shared), transformer.step(tokens, plain))
        kept = data.draw(st.lists(st.integers(0, batch - 1), min_size=1, max_size=3, unique=True))
        parents = st.lists(st.integers(0, width - 1), min_size=3, max_size=3)
        wide = data.draw(st.integers(1, 3))
        rows = torch.tensor([[line * width + each for each in data.draw(parents)] for line in kept])
        for cache in (plain, shared):
            cache.select(rows[:, :wide])
        batch, width = len(kept), wide


@pytest.mark.usefixtures("cramped")
@settings(deadline=None, max_examples=30)
@given(switches=SUPPORTED, padding_mask=st.booleans(), data=st.data())
def test_its_steps_are_the_plain_ones_whatever_is_kept_and_in_whatever_order(
    switches: dict[str, Any], padding_mask: bool, data: st.DataObject
) -> None:
    check_against_the_plain_decoder(model(**switches, padding_mask=padding_mask), data)


@torch.inference_mode()
def test_reordering_copies_no_keys_and_no_values() -> None:
    fast, cache = started(model())
    fast.step(torch.full((3, 1), 4), cache)
    cache.select(torch.tensor([[0, 0], [1, 1], [2, 2]]))
    before = [each.data_ptr() for pair in cache.past for each in pair]
    for _ in range(5):
        fast.step(torch.full((3, 2), 4), cache)
        cache.select(torch.tensor([[1, 0], [3, 3], [4, 5]]))
    assert [each.data_ptr() for pair in cache.past for each in pair] == before


@pytest.mark.usefixtures("cramped")
@torch.inference_mode()
def test_what_no_hypothesis_descends_from_takes_no_place() -> None:
    fast, cache = started(model())
    fast.step(torch.full((3, 1), 4), cache)
    cache.select(torch.tensor([[0] * 5, [1] * 5, [2] * 5]))
    for _ in range(40):
        fast.step(torch.full((3, 5), 4), cache)
        cache.select(torch.tensor([[4] * 5, [9] * 5, [14] * 5]))
    room = 2 * 5 + 5 + 5  # of two steps, the step that was made last, and up to a multiple of 5
    assert cache.past[0][0].shape[2] <= cache.length + room


@torch.inference_mode()
def test_bfloat16_holds_keys_and_values_and_no_parameter_changes() -> None:
    transformer = toy_model(spread=0.2).eval().float()
    fast = FastDecoder(transformer, torch.bfloat16)
    cache, exact = fast.start(SOURCES), transformer.start(SOURCES)
    tokens = torch.full((3, 1), 4)
    close = fast.step(tokens, cache).float() - transformer.step(tokens, exact)
    assert close.abs().max() < 0.05
    kept = [each for pair in cache.past + cache.memory for each in pair]
    assert {each.dtype for each in kept} == {torch.bfloat16}
    assert {each.dtype for each in transformer.parameters()} == {torch.float32}


def test_readable_models_and_distances_that_want_an_order_are_left_to_the_plain_decoder() -> None:
    assert FastDecoder.supports(model())
    assert not FastDecoder.supports(model().readable())
    assert not FastDecoder.supports(model(positions="alibi"))
