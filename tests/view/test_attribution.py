"""Gradient x input and leave-one-out beside attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.translator import Translator
from dragoman.model import hooks
from dragoman.view.attribution import compare, gradient_x_input, leave_one_out, spearman
from dragoman.view.reading import model_of, read, read_ids

TEXT, TARGET = "the cat saw a dog", "die katze"


def test_leaving_a_token_out_is_reading_the_shorter_source(translator: Translator) -> None:
    reading = read(translator, TEXT, TARGET)
    source, target = reading.source.ids, reading.target.ids
    effects = leave_one_out(model_of(translator), source, target)
    assert effects.shape == (len(target), len(source))
    for j, effect in enumerate(effects.sum(axis=0)):
        shorter = read_ids(translator, source[:j] + source[j + 1 :], target)
        fall = reading.log_probability - shorter.log_probability
        assert effect == pytest.approx(fall, abs=1e-3)


def test_gradient_x_input_is_the_slope_along_an_embedding(
    make_translator: Callable[..., Translator],
) -> None:
    model = model_of(make_translator()).double()
    source, target = [7, 11, 13, 3], [5, 17, 3]
    effects = gradient_x_input(model, source, target)
    twin, step = model.readable(), 1e-6

    def log_probs(j: int, factor: float) -> np.ndarray:
        factors = torch.ones(4, 1, dtype=torch.float64)
        factors[j] = factor
        targets = torch.tensor([target])
        with (
            torch.inference_mode(),
            hooks.replace(twin, "source_embedding.token", lambda x: x * factors),
        ):
            logits = twin(torch.tensor([source]), twin.decoder_input(targets))
        return logits.log_softmax(-1).gather(2, targets[..., None])[0, :, 0].numpy()

    for j in range(4):
        slope = (log_probs(j, 1 + step) - log_probs(j, 1 - step)) / (2 * step)
        np.testing.assert_allclose(effects[:, j], slope, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"architecture": "recurrent", "d_model": 10}])
def test_measuring_leaves_the_model_as_it_was(
    make_translator: Callable[..., Translator], settings: dict
) -> None:
    translator = make_translator(**settings)
    before = read(translator, TEXT, TARGET)
    assert compare(model_of(translator), before) is not None
    assert read(translator, TEXT, TARGET).log_probability == before.log_probability
    assert all(parameter.grad is None for parameter in model_of(translator).parameters())


def test_without_cross_attention_there_is_nothing_to_compare_and_no_source_token_matters(
    make_translator: Callable[..., Translator],
) -> None:
    translator = make_translator(cross_attention=False)
    assert compare(model_of(translator), read(translator, TEXT, TARGET)) is None
    effects = leave_one_out(model_of(translator), [7, 11, 3], [5, 3])
    np.testing.assert_allclose(effects, 0.0, atol=1e-5)


def test_every_pair_of_measures_has_a_correlation_for_each_target_token(
    translator: Translator,
) -> None:
    reading = read(translator, TEXT, TARGET)
    comparison = compare(model_of(translator), reading)
    assert comparison is not None
    pairs = comparison.spearman()
    assert len({tuple(each["pair"]) for each in pairs}) == 3
    for each in pairs:
        assert len(each["by_target"]) == len(reading.target.ids)
        assert each["mean"] == pytest.approx(np.mean(each["by_target"]))


@given(st.permutations(range(7)), st.permutations(range(7)))
def test_spearman_of_distinct_values_is_the_formula_of_squared_differences(
    one: list[int], other: list[int]
) -> None:
    squares = sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
    expected = 1 - 6 * squares / (7 * (7**2 - 1))
    rows = (np.array(one) ** 3.0, np.exp(np.array(other)))  # only the order counts
    assert spearman(*rows) == pytest.approx(expected)


def test_equal_values_share_a_rank_and_a_constant_has_no_correlation() -> None:
    # ranks (1, 2.5, 2.5, 4) against (1, 2, 3, 4): 4.5 / sqrt(4.5 x 5)
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4])) == pytest.approx(0.9**0.5)
    assert spearman(np.ones(4), np.arange(4.0)) is None
