from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS, DecodingConfig
from dragoman.decoding.beam import beam_search
from dragoman.decoding.constraints import extend
from dragoman.decoding.greedy import greedy_search

A, B, C = 4, 5, 6


def search(stepper: object, config: DecodingConfig) -> list[list[int]]:
    run = greedy_search if config.beam_size == 1 else beam_search
    [found] = run(stepper, [[A, EOS]], config)  # type: ignore[arg-type]
    assert all(math.isfinite(each.score) for each in found)
    return [each.tokens for each in found]


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_occurs_twice(scripted: SimpleNamespace, beam_size: int, n: int) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [-9.0, -7, -9, -7, -0.1, -2])
    config = DecodingConfig(
        beam_size=beam_size, n_best=beam_size, no_repeat_ngram=n, max_output_extra=11
    )
    for tokens in search(stepper, config):
        grams = [tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)]
        assert len(set(grams)) == len(grams)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_output_to_which_all_else_is_forbidden_ends(
    scripted: SimpleNamespace, beam_size: int
) -> None:
    usable = {A: 0.6, B: 0.39, EOS: 0.01}
    stepper = scripted.Stepper(lambda _, prefix: scripted.table({prefix: usable})((), prefix))
    config = DecodingConfig(beam_size=beam_size, no_repeat_ngram=1, length_penalty=9.0)
    assert search(stepper, config) == [[A, B, EOS]]
    assert search(stepper, config) == search(stepper, config)


def test_a_token_that_is_there_already_costs_more_and_no_other_does() -> None:
    tokens = torch.tensor([[[4, 6, 4]]])
    extended = extend(torch.tensor([[-1.0]]), tokens, torch.full((1, 1, 7), -2.0), 0, 1.5)
    assert extended[0, 0].tolist() == [-math.inf, -3.0, -math.inf, -3.0, -4.0, -3.0, -4.0]


def test_a_prefix_goes_on_at_the_model_s_price_even_where_it_repeats_itself() -> None:
    tokens = torch.tensor([[[4]], [[4]], [[4]]])
    prefixes = torch.tensor([[4, 4, 5], [4, 5, 0], [4, 0, 0]])
    extended = extend(torch.zeros(3, 1), tokens, torch.full((3, 1, 7), -2.0), 1, 1.5, prefixes)
    assert extended[0, 0].tolist() == [-math.inf] * 4 + [-2.0] + [-math.inf] * 2
    assert extended[1, 0].tolist() == [-math.inf] * 5 + [-2.0, -math.inf]
    assert extended[2, 0].tolist() == [-math.inf, -2.0, -math.inf, -2.0, -math.inf, -2.0, -2.0]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_prefix_that_the_model_has_no_room_for_is_cut(
    scripted: SimpleNamespace, beam_size: int
) -> None:
    run = greedy_search if beam_size == 1 else beam_search
    stepper = scripted.Stepper(lambda source, prefix: [-2.0] * 7, max_length=3)
    [[found]] = run(stepper, [[A, EOS]], DecodingConfig(beam_size=beam_size), [[A, B, C, A, B]])
    assert (found.tokens, found.flags) == ([A, B, C], ("cut",))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(4, 6), max_size=11), st.integers(1, 4))
def test_exactly_the_tokens_that_would_repeat_an_ngram_are_impossible(
    tokens: list[int], n: int
) -> None:
    prefix = torch.tensor(tokens, dtype=torch.int64).view(1, 1, -1)
    extended = extend(torch.zeros(1, 1), prefix, torch.full((1, 1, 7), -2.0), n)
    grams = {tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)}
    repeats = {x for x in range(4, 7) if (*tokens[len(tokens) - n + 1 :], x)[-n:] in grams}
    impossible = {token for token in range(7) if extended[0, 0, token] == -math.inf}
    assert impossible == repeats | {0, 2}
