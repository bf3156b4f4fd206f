from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import InputError
from dragoman.data import batching
from dragoman.data.batching import EpochPlan, Indices, largest_batches, plan_in_order

LENGTHS = st.lists(st.tuples(st.integers(1, 31), st.integers(1, 31)), min_size=1, max_size=101)


def plan_epoch(
    lengths: npt.NDArray[np.int32],
    batch_tokens: int,
    seed: int,
    epoch: int,
    parts: list[tuple[int, float]] | None = None,
) -> list[Indices]:
    """Makes all batches of an epoch."""
    plan = EpochPlan(lengths, batch_tokens, seed, epoch, parts)
    return [batch for number in range(math.ceil(plan.pools)) for batch in plan.pool(number)]


def draw_lengths(count: int) -> npt.NDArray[np.int32]:
    """Draws source lengths, and target lengths that go with them."""
    random = np.random.default_rng(7)
    source = random.gamma(5, 3, count) + 2
    target = source * random.normal(1, 0.2, count).clip(0.5, 2) + 1
    return np.stack([source, target], axis=1).astype(np.int32)


@given(LENGTHS, st.integers(31, 307), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_an_epoch_has_every_pair_once_and_every_batch_keeps_the_budget(
    pairs: list[tuple[int, int]], batch_tokens: int, epoch: int
) -> None:
    lengths = np.array(pairs)
    batches = plan_epoch(lengths, batch_tokens, 13, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    assert all(len(batch) * lengths[batch].max() <= batch_tokens for batch in batches)


def test_seed_and_epoch_decide_the_plan() -> None:
    lengths = draw_lengths(997)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in plan_epoch(lengths, 307, seed, epoch)]

    assert plan(3, 5) == plan(3, 5)
    assert plan(3, 5) != plan(3, 7)
    assert plan(3, 5) != plan(5, 5)


def test_pairs_of_one_length_meet_others_in_the_next_epoch() -> None:
    lengths = np.full((4999, 2), 13)
    first, second = (plan_epoch(lengths, 13 * 101, 1, epoch) for epoch in (0, 1))
    batch_of = np.empty(len(lengths), np.int64)
    for number, batch in enumerate(second):
        batch_of[batch] = number
    assert max(np.bincount(batch_of[batch]).max() for batch in first) < 23


def test_batches_come_in_no_order_of_length() -> None:
    lengths = draw_lengths(4999)
    longest = [lengths[batch].max() for batch in plan_epoch(lengths, 997, 1, 0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.2


def test_little_of_either_side_is_padding() -> None:
    lengths = draw_lengths(19_997)
    batches = plan_epoch(lengths, 4096, 1, 0)
    padded = sum(len(batch) * lengths[batch].max(axis=0) for batch in batches)
    assert (lengths.sum(axis=0) / padded > 0.91).all()
    assert len(batches) < 1.05 * lengths.max(axis=1).sum() / 4096


def test_a_sentence_above_the_budget_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match=r"37 tokens, .*batch_tokens is 31, .* least 37"):
        plan_epoch(np.array([[5, 37], [7, 11]]), 31, 1, 0)


def test_no_pairs_make_no_batches() -> None:
    assert plan_epoch(np.empty((0, 2), np.int32), 31, 1, 0) == []
    assert plan_in_order(np.empty(0, np.int32), 31) == []


@given(st.lists(st.integers(1, 61), max_size=101), st.integers(1, 307))
@settings(max_examples=100, deadline=None)
def test_decoding_goes_from_short_to_long_within_the_budget(
    lengths: list[int], batch_tokens: int
) -> None:
    batches = plan_in_order(np.array(lengths, np.int32), batch_tokens)
    order = [int(i) for batch in batches for i in batch]
    assert order == sorted(range(len(lengths)), key=lambda i: lengths[i])
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= batch_tokens


def test_pools_hold_every_pair_once_and_each_can_be_made_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "_POOL_PAIRS", 101)
    lengths = draw_lengths(997)
    assert sorted(np.concatenate(plan_epoch(lengths, 307, 3, 5)).tolist()) == list(range(997))
    in_turn, alone = EpochPlan(lengths, 307, 3, 5), EpochPlan(lengths, 307, 3, 5)
    for number in range(9):
        expected = in_turn.pool(number)
    found = alone.pool(8)
    assert [batch.tolist() for batch in found] == [batch.tolist() for batch in expected]
    assert [batch.tolist() for batch in found] != [batch.tolist() for batch in alone.pool(7)]


def test_a_weight_says_how_often_an_epoch_reads_each_pair() -> None:
    lengths = draw_lengths(31 + 53 + 101)
    parts = [(31, 3.0), (53, 1.0), (101, 0.25)]
    epochs = [np.concatenate(plan_epoch(lengths, 307, 3, epoch, parts)) for epoch in range(4)]
    reads = np.array([np.bincount(epoch, minlength=185) for epoch in epochs])
    assert (reads[:, :31] == 3).all()
    assert (reads[:, 31:84] == 1).all()
    assert reads[:, 84:].sum(axis=1).tolist() == [25, 25, 25, 26]
    assert (reads[:, 84:].sum(axis=0) == 1).all()


def test_no_batch_has_more_or_longer_sides_than_the_largest() -> None:
    lengths = np.array([[5, 37], [41, 11], [2, 2]], np.int32)
    assert largest_batches(lengths, 100) == [(2, 41)]
    assert largest_batches(lengths, 41) == [(1, 41)]
    assert largest_batches(lengths, 9999) == [(3, 41)]
    assert largest_batches(lengths, 9999, parts=[(1, 0.5), (2, 2.5)]) == [(6, 41)]


def test_a_batch_is_looked_at_that_is_fuller_or_behind_which_memory_falls() -> None:
    lengths = np.array([[5, 37], [41, 11], [2, 2]] * 100, np.int32)
    assert largest_batches(lengths, 81) == [(1, 41), (2, 37)]
    assert largest_batches(lengths, 82) == [(2, 41)]
    assert largest_batches(lengths, 82, bounds=[40, 1]) == [(2, 41), (2, 37)]


@given(LENGTHS, st.integers(31, 307))
def test_no_batch_has_many_more_tokens_than_the_largest(
    pairs: list[tuple[int, int]], batch_tokens: int
) -> None:
    lengths = np.array(pairs, np.int32)
    most = max(count * width for count, width in largest_batches(lengths, batch_tokens))
    for batch in plan_epoch(lengths, batch_tokens, 1, 0):
        assert lengths[batch].max() * len(batch) <= most / 0.9
