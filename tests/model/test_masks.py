from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import PAD
from dragoman.model.loss import training_loss
from dragoman.model.masks import AttentionMask, sequence_lengths
from dragoman.model.transformer import Transformer

from .toys import SWITCHES, toy_ids, toy_model

LENGTHS = st.lists(st.integers(1, 13), min_size=1, max_size=5)


def forced(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return model(source, model.decoder_input(target))


def test_a_length_is_where_padding_begins_even_where_pad_comes_first() -> None:
    ids = torch.tensor([[5, 7, 3, 0, 0], [0, 7, 0, 3, 0], [0, 0, 0, 0, 0]])
    assert sequence_lengths(ids).tolist() == [3, 4, 0]
    assert sequence_lengths(ids[:, :0]).tolist() == [0, 0, 0]


def test_a_mask_says_true_where_a_query_may_attend() -> None:
    queries, keys = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 5)
    mask = AttentionMask(torch.tensor([4, 2]), causal=True).realise(queries, keys)
    assert mask is not None
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask[1, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_no_matrix_is_made_where_all_see_all() -> None:
    x, one = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 1, 5)
    assert AttentionMask().realise(x, x) is None
    assert AttentionMask(torch.tensor([4, 4])).realise(x, x) is None
    assert AttentionMask(causal=True).realise(one, x) is None


@settings(deadline=None, max_examples=20)
@given(SWITCHES, LENGTHS, st.integers(1, 50))
def test_further_padding_changes_nothing(
    switches: dict[str, Any], lengths: list[int], columns: int
) -> None:
    switches = {**switches, "max_positions": 97}
    model, targets = toy_model(spread=0.25, **switches), lengths[::-1]
    narrow = forced(model, toy_ids(*lengths), toy_ids(*targets))
    wide = forced(
        model,
        toy_ids(*lengths, width=max(lengths) + columns),
        toy_ids(*targets, width=max(targets) + columns),
    )
    for row, length in enumerate(targets):
        difference = (narrow[row, :length] - wide[row, :length]).abs().max()
        assert difference < 1e-10


@settings(deadline=None, max_examples=20)
@given(SWITCHES, LENGTHS)
def test_a_sentence_depends_on_no_neighbour(switches: dict[str, Any], lengths: list[int]) -> None:
    model = toy_model(spread=0.25, **switches)
    source, target = toy_ids(*lengths), toy_ids(*lengths[::-1], seed=5)
    together = forced(model, source, target)
    for row, (length, other) in enumerate(zip(lengths[::-1], lengths, strict=True)):
        alone = forced(model, source[[row], :other], target[[row], :length])
        torch.testing.assert_close(together[[row], :length], alone, rtol=0, atol=1e-10)


def test_without_the_padding_mask_padding_is_attended_to() -> None:
    model = toy_model(padding_mask=False)
    narrow, wide = model.encode(toy_ids(5))[0], model.encode(toy_ids(5, width=7))[0]
    assert (narrow - wide[:, :5]).abs().max() > 1e-3


@pytest.mark.parametrize("lengths", [(3, 5), (5, 5), (1,)])
def test_columns_that_are_padding_everywhere_stay_and_evaluation_equals_training(
    lengths: tuple[int, ...],
) -> None:
    model, source = toy_model(), toy_ids(*lengths, width=7)
    trained, _ = model.train().encode(source)
    with torch.no_grad():
        evaluated, _ = model.eval().encode(source)
    assert evaluated.shape == (len(lengths), 7, 11)
    torch.testing.assert_close(evaluated, trained, rtol=0, atol=1e-12)


def test_a_source_of_padding_alone_harms_nobody() -> None:
    model = toy_model()
    source = torch.cat([toy_ids(5), torch.full((1, 5), PAD)])
    loss = training_loss(model, source, toy_ids(7, 3), 0.1).loss
    loss.backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())
    together = forced(model, source, toy_ids(7, 3))
    assert together.isfinite().all()
    torch.testing.assert_close(together[:1], forced(model, toy_ids(5), toy_ids(7)))


@settings(deadline=None, max_examples=20)
@given(SWITCHES.filter(lambda switches: switches["causal_mask"]), st.integers(0, 11))
def test_a_target_token_changes_no_logit_before_it_bit_for_bit(
    switches: dict[str, Any], position: int
) -> None:
    model, source, target = toy_model(spread=0.25, **switches), toy_ids(5), toy_ids(13)
    before = model(source, target)
    target[0, position + 1] = PAD
    after = model(source, target)
    assert torch.equal(before[:, : position + 1], after[:, : position + 1])


def test_a_target_token_changes_every_logit_from_its_position_on() -> None:
    model, source, target = toy_model(), toy_ids(5), toy_ids(7)
    changed = target.clone()
    changed[0, 3] = PAD
    differences = (model(source, target) - model(source, changed)).abs().amax(-1)[0]
    assert not differences[:3].any()
    assert (differences[3:] > 1e-6).all()


def test_without_the_causal_mask_the_future_is_seen() -> None:
    model, source, target = toy_model(causal_mask=False), toy_ids(5), toy_ids(7)
    changed = target.clone()
    changed[0, 6] = 4
    assert ((model(source, target) - model(source, changed)).abs().amax(-1) > 1e-6).all()


def test_without_cross_attention_every_source_gives_the_same_logits() -> None:
    model, target = toy_model(cross_attention=False), toy_ids(7)
    assert torch.equal(model(toy_ids(5), target), model(toy_ids(11, seed=5), target))
    with_it = toy_model()
    assert not torch.equal(with_it(toy_ids(5), target), with_it(toy_ids(11, seed=5), target))
