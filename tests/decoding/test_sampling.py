from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import BOS, EOS, DecodingConfig
from dragoman.decoding.penalties import length_penalty
from dragoman.decoding.sampling import draw, sample

A, B, C = 4, 5, 6
SHARES = [0.0, 0.05, 0.0, 0.13, 0.31, 0.4, 0.11]
FACES = [0.0, 0.05, 0.0, 0.0, 0.34, 0.5, 0.11]
CHI_SQUARED = 23.5  # four degrees of freedom exceed it once in ten thousand


def drawing(**fields: object) -> DecodingConfig:
    return DecodingConfig(sample=True, **fields)  # type: ignore[arg-type]


def draw_all(weights: Sequence[float], uniforms: Sequence[float], **fields: object) -> list[int]:
    log_probs = torch.tensor(weights, dtype=torch.float64).log()
    rows = log_probs.expand(len(uniforms), -1)
    return draw(rows, torch.tensor(uniforms, dtype=torch.float64), drawing(**fields)).tolist()


def keep_exactly(weights: list[int], top_k: int, top_p: Fraction) -> list[tuple[int, Fraction]]:
    """Returns the tokens that remain and their shares, by the definition in exact numbers.

    They come in the order of the inverse: the most probable first, or, where all remain, by id.
    """
    if not top_k and top_p == 1:
        return [(token, Fraction(each, sum(weights))) for token, each in enumerate(weights)]
    ranked = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    ranked = ranked[: top_k or None]
    total, kept = sum(weights[token] for token in ranked), []
    for token in ranked:
        kept.append(token)
        if Fraction(sum(weights[each] for each in kept), total) >= top_p:
            break
    mass = sum(weights[token] for token in kept)
    return [(token, Fraction(weights[token], mass)) for token in kept]


class Dice:
    """A stepper with the same probabilities at every step, whoever asks."""

    start_token, max_length, device = BOS, None, torch.device("cpu")

    def start(self, sources: Sequence[Sequence[int]]) -> None:
        return None

    def step(self, state: None, tokens: Tensor) -> Tensor:
        return torch.tensor(FACES).log().expand(*tokens.shape, -1)

    def select(self, state: None, rows: Tensor) -> None:
        return None


def chi_squared(tokens: Sequence[int], shares: Sequence[float]) -> float:
    counts = np.bincount(tokens, minlength=len(shares))
    expected = len(tokens) * np.array(shares) / sum(shares)
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    return float(((counts - expected) ** 2 / np.where(possible, expected, 1))[possible].sum())


def test_a_hundred_thousand_draws_come_as_often_as_they_should() -> None:
    config = drawing(n_best=100, max_output_factor=0.0, max_output_extra=20)
    found = sample(Dice(), [[A, EOS]] * 50, config, [], range(50))  # type: ignore[arg-type]
    tokens = [token for draws in found for each in draws for token in each.tokens]
    assert len(tokens) == 100_000
    assert chi_squared(tokens, FACES) < CHI_SQUARED


@pytest.mark.parametrize(
    ("fields", "shares"),
    [
        ({"temperature": 0.5}, [share**2 for share in SHARES]),
        ({"temperature": 3.0}, [share ** (1 / 3) for share in SHARES]),
        ({"top_k": 3}, [0, 0, 0, 0.13, 0.31, 0.4, 0]),
        ({"top_p": 0.72}, [0, 0, 0, 0.13, 0.31, 0.4, 0]),
        ({"top_k": 4, "top_p": 0.6}, [0, 0, 0, 0, 0.31, 0.4, 0]),
    ],
)
def test_draws_are_as_frequent_as_what_remains_is_probable(
    fields: dict[str, float], shares: list[float]
) -> None:
    uniforms = np.random.default_rng(1).random(100_000).tolist()
    assert chi_squared(draw_all(SHARES, uniforms, **fields), shares) < CHI_SQUARED


@settings(deadline=None, max_examples=200)
@given(
    weights=st.lists(st.integers(1, 4), min_size=1, max_size=11),
    top_k=st.integers(0, 13),
    top_p=st.integers(1, 20).map(lambda numerator: Fraction(numerator, 20)),
)
def test_exactly_the_most_probable_remain_and_of_equals_the_lower_ids(
    weights: list[int], top_k: int, top_p: Fraction
) -> None:
    kept = keep_exactly(weights, top_k, top_p)
    starts = [sum((share for _, share in kept[:at]), Fraction(0)) for at in range(len(kept))]
    middles = [float(start + share / 2) for start, (_, share) in zip(starts, kept, strict=True)]
    found = draw_all(weights, [0.0, *middles, 1 - 2**-53], top_k=top_k, top_p=float(top_p))
    tokens = [token for token, _ in kept]
    assert found == [tokens[0], *tokens, tokens[-1]]


def test_the_smallest_top_p_still_leaves_the_likeliest_token() -> None:
    assert draw_all([1, 3, 3], [0.0, 0.5, 0.999], top_p=1e-300) == [1, 1, 1]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), top_p=st.floats(0.1, 1), temperature=st.floats(0.3, 3))
def test_whatever_is_drawn_has_the_log_probability_that_the_model_gives_it(
    scripted: SimpleNamespace, seed: int, top_p: float, temperature: float
) -> None:
    script, config = scripted.random(seed), drawing(top_p=top_p, temperature=temperature, n_best=3)
    [found] = sample(scripted.Stepper(script), [[A, EOS]], config, [], [7])
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    for each in found:
        steps = [script((A, EOS), tuple(each.tokens[:at]))[x] for at, x in enumerate(each.tokens)]
        assert each.log_probability == pytest.approx(sum(steps))
        assert each.score == each.log_probability / length_penalty(len(each.tokens), 0.6)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), lines=st.permutations(range(5)))
def test_the_draws_of_a_line_depend_on_no_neighbour_and_no_order(
    scripted: SimpleNamespace, seed: int, lines: list[int]
) -> None:
    stepper, config = scripted.Stepper(scripted.random(3)), drawing(seed=seed, n_best=2)
    sources = [[A] * line + [EOS] for line in lines]
    together = sample(stepper, sources, config, [], lines)
    for source, line, found in zip(sources, lines, together, strict=True):
        assert found == sample(stepper, [source], config, [], [line])[0]


def test_lines_draws_and_seeds_have_streams_of_their_own(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [-math.log(97)] * 97)
    draws = [
        tuple(each.tokens)
        for seed in (1, 2)
        for found in sample(
            stepper, [[A, EOS]] * 3, drawing(seed=seed, n_best=2, max_output_extra=3), [], range(3)
        )
        for each in found
    ]
    assert len(set(draws)) == 12


def test_a_prefix_is_taken_and_a_dead_end_is_cut(scripted: SimpleNamespace) -> None:
    table = {(): {A: 0.5, B: 0.5}, (A,): {EOS: 1.0}, (B,): {C: 0.25}}
    [[found]] = sample(scripted.Stepper(scripted.table(table)), [[A, EOS]], drawing(), [[B]], [0])
    assert (found.tokens, found.flags) == ([B, C], ("cut",))
    assert found.log_probability == pytest.approx(math.log(0.125))
