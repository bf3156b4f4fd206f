from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.decoding.beam import attainable_scores
from dragoman.decoding.penalties import length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"), [(1, 0.6, 1.0), (10, 0.6, 1.73286), (20, 0.6, 2.35436)]
)
def test_the_paper_s_penalty_has_its_published_values(
    length: int, alpha: float, penalty: float
) -> None:
    assert length_penalty(length, alpha, "gnmt") == pytest.approx(penalty, abs=5e-6)


def test_the_power_form_with_1_gives_the_log_probability_of_a_token() -> None:
    assert [length_penalty(length, 1.0, "power") for length in (1, 2, 7)] == [1, 2, 7]


@pytest.mark.parametrize("form", ["gnmt", "power"])
def test_a_penalty_of_0_compares_log_probabilities(form: str) -> None:
    assert {length_penalty(length, 0.0, form) for length in (1, 5, 50)} == {1.0}


@settings(deadline=None, max_examples=50)
@given(st.floats(-50, 0), st.floats(-3, 3), st.sampled_from(["gnmt", "power"]), st.integers(1, 11))
def test_no_length_reaches_more_than_the_attainable_score(
    log_prob: float, alpha: float, form: str, next_length: int
) -> None:
    limit = next_length + 13
    penalties = [length_penalty(length, alpha, form) for length in range(next_length, limit + 1)]
    bound = attainable_scores(
        torch.tensor([[log_prob]]).double(), penalties[0], torch.tensor([penalties[-1]]).double()
    ).item()
    reached = [(log_prob + cost) / p for p, cost in itertools.product(penalties, (0.0, -0.5))]
    assert max(reached) == pytest.approx(bound)
