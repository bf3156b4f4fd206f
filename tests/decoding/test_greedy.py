from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS, DecodingConfig
from dragoman.decoding.greedy import greedy_search
from dragoman.decoding.penalties import length_penalty

A, B, C = 4, 5, 6
GREEDY = DecodingConfig(beam_size=1)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_greedy_search_takes_the_likeliest_token_at_every_step(
    scripted: SimpleNamespace, seed: int
) -> None:
    script = scripted.random(seed)
    [[found]] = greedy_search(scripted.Stepper(script), [[A, EOS]], GREEDY)
    total = 0.0
    for place, token in enumerate(found.tokens):
        log_probs = script((A, EOS), tuple(found.tokens[:place]))
        assert token == max((1, EOS, A, B), key=lambda each: log_probs[each])
        total += log_probs[token]
    assert found.log_probability == pytest.approx(total)
    assert found.score == found.log_probability / length_penalty(len(found.tokens), 0.6)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    lengths=st.lists(st.integers(1, 11), min_size=2, max_size=5),
)
def test_sentences_of_a_batch_are_searched_as_if_alone(
    scripted: SimpleNamespace, seed: int, lengths: list[int]
) -> None:
    stepper = scripted.Stepper(scripted.random(seed))
    sources = [[A] * length for length in lengths]
    together = greedy_search(stepper, sources, GREEDY)
    assert together == [greedy_search(stepper, [source], GREEDY)[0] for source in sources]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), forced=st.lists(st.sampled_from([A, B]), max_size=11))
def test_behind_a_prefix_greedy_search_goes_on_as_if_it_had_chosen_it(
    scripted: SimpleNamespace, seed: int, forced: list[int]
) -> None:
    script = scripted.random(seed)
    [[found], _] = greedy_search(
        scripted.Stepper(script), [[A, EOS], [B, A, EOS]], GREEDY, [forced, []]
    )
    assert found.tokens[: len(forced)] == forced
    [[rest]] = greedy_search(
        scripted.Stepper(lambda source, prefix: script(source, (*forced, *prefix))),
        [[A, EOS]],
        DecodingConfig(beam_size=1, max_output_extra=50 - len(forced)),
    )
    assert found.tokens == [*forced, *rest.tokens]
    steps = [script((A, EOS), tuple(forced[:at]))[each] for at, each in enumerate(forced)]
    assert found.log_probability == pytest.approx(sum(steps) + rest.log_probability)


def test_of_equally_likely_tokens_the_lower_is_taken(scripted: SimpleNamespace) -> None:
    table = {(): {B: 0.5, A: 0.5}, (A,): {C: 0.5, EOS: 0.5}}
    [[found]] = greedy_search(scripted.Stepper(scripted.table(table)), [[A, EOS]], GREEDY)
    assert found.tokens == [A, EOS]


def test_an_output_without_eos_ends_at_its_limit_and_is_flagged(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [0, -3, 0, -math.inf, -0.1], max_length=8)
    [[found]] = greedy_search(stepper, [[A, EOS]], GREEDY)
    assert (found.tokens, found.flags) == ([A] * 8, ("cut",))


def test_a_hypothesis_that_nothing_can_follow_is_returned_as_cut(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(scripted.table({(): {A: 0.5}, (A,): {B: 0.5}}))
    [[found]] = greedy_search(stepper, [[A, EOS]], GREEDY)
    assert (found.tokens, found.flags) == ([A, B], ("cut",))
    assert found.log_probability == pytest.approx(math.log(0.25))


def test_an_output_may_have_no_token_at_all(scripted: SimpleNamespace) -> None:
    [[found]] = greedy_search(scripted.Stepper(scripted.table({})), [[A, EOS]], GREEDY)
    assert (found.tokens, found.score, found.flags) == ([], 0.0, ("cut",))
