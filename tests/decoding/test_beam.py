from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import BOS, EOS, PAD, DecodingConfig
from dragoman.decoding.beam import beam_search, take_best
from dragoman.decoding.penalties import length_penalty

A, B, C = 4, 5, 6
SOURCE = [A, EOS]
ALPHAS = (-1.0, 0.0, 0.6, 2.0)
FORMS = ("gnmt", "power")


def config(beam_size: int, **fields: object) -> DecodingConfig:
    return DecodingConfig(beam_size=beam_size, **{"n_best": beam_size, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alpha", ALPHAS)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_a_beam_as_wide_as_the_tree_finds_what_exhaustive_search_finds(
    scripted: SimpleNamespace, alpha: float, form: str, seed: int
) -> None:
    script = scripted.random(seed)
    # Outputs of at most 4 tokens from 3 types and EOS: at most 27 hypotheses live at once.
    wide = config(27, length_penalty=alpha, length_penalty_form=form, max_output_extra=2)
    [found] = beam_search(scripted.Stepper(script), [SOURCE], wide)
    expected = scripted.exhaustive(script, tuple(SOURCE), wide)[:27]
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected])


@pytest.mark.parametrize("alpha", ALPHAS)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), beam_size=st.integers(2, 5), spread=st.integers(1, 9))
def test_stopping_early_loses_nothing_that_the_beam_would_have_found(
    scripted: SimpleNamespace, alpha: float, seed: int, beam_size: int, spread: int
) -> None:
    script = scripted.random(seed, spread=spread)
    narrow = config(beam_size, length_penalty=alpha, max_output_extra=9)
    live, pool = [(0.0, ())], []
    longest = narrow.max_output_length(len(SOURCE))
    for length in range(1, longest + 1):
        steps = [(total, prefix, script(tuple(SOURCE), prefix)) for total, prefix in live]
        penalty = length_penalty(length, alpha)
        longer = [(t + s[token], (*p, token)) for t, p, s in steps for token in (1, A, B)]
        longer.sort(reverse=True)
        live, pruned = longer[:beam_size], longer[beam_size:]
        ends = [(total + step[EOS], (*prefix, EOS)) for total, prefix, step in steps]
        bar = pruned[0][0] if pruned and length < longest else -math.inf
        pool += [(log_prob / penalty, tokens) for log_prob, tokens in ends if log_prob >= bar]
    [found] = beam_search(scripted.Stepper(script), [SOURCE], narrow)
    best = sorted(pool, reverse=True)[:beam_size]
    assert [tuple(each.tokens) for each in found] == [tokens for _, tokens in best]


@pytest.mark.parametrize("forced", [(), (A,), (B, B, A), (A, B, A, B, A)])
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), penalty=st.sampled_from([0.5, 1.0, 1.7]))
def test_with_a_prefix_and_repetition_at_a_price_it_still_finds_what_exhaustive_search_finds(
    scripted: SimpleNamespace, forced: tuple[int, ...], seed: int, penalty: float
) -> None:
    script = scripted.random(seed)
    wide = config(27, max_output_extra=2, repetition_penalty=penalty)
    [found] = beam_search(scripted.Stepper(script), [SOURCE], wide, [forced])
    expected = scripted.exhaustive(script, tuple(SOURCE), wide, forced)[:27]
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected])


@pytest.mark.parametrize("alpha", ALPHAS)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), beta=st.floats(0.01, 3))
def test_with_a_coverage_penalty_it_still_finds_what_exhaustive_search_finds(
    scripted: SimpleNamespace, alpha: float, seed: int, beta: float
) -> None:
    script, attend = scripted.random(seed), scripted.attention(seed)
    wide = config(27, length_penalty=alpha, max_output_extra=0, coverage_penalty=beta)
    sources = [[A, B, A, EOS], [A, EOS], [B, A, EOS]]
    together = beam_search(scripted.AttentiveStepper(script, attend), sources, wide)
    for source, found in zip(sources, together, strict=True):
        expected = scripted.exhaustive(script, tuple(source), wide, attend=attend)[:27]
        assert [each.tokens for each in found] == [tokens for _, tokens in expected]
        assert [each.score for each in found] == pytest.approx([score for score, _ in expected])


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), beam_size=st.integers(2, 5), data=st.data())
def test_prefixes_of_all_lengths_share_a_batch_and_disturb_nobody(
    scripted: SimpleNamespace, seed: int, beam_size: int, data: st.DataObject
) -> None:
    prefix = st.lists(st.sampled_from([A, B, C]), max_size=11)
    prefixes = data.draw(st.lists(prefix, min_size=2, max_size=5))
    stepper = scripted.Stepper(scripted.random(seed, vocab=7))
    few = config(beam_size, max_output_extra=3, no_repeat_ngram=2)
    together = beam_search(stepper, [SOURCE] * len(prefixes), few, prefixes)
    assert together == [beam_search(stepper, [SOURCE], few, [each])[0] for each in prefixes]
    for best, forced in zip(together, prefixes, strict=True):
        assert all(each.tokens[: len(forced)] == forced for each in best)
        assert all(len(each.tokens) > len(forced) for each in best)


def test_attention_that_never_comes_makes_no_score_infinite(scripted: SimpleNamespace) -> None:
    stepper = scripted.AttentiveStepper(
        scripted.table({(): {EOS: 1.0}}), lambda source, prefix: [1.0] + [0.0] * (len(source) - 1)
    )
    [[best]] = beam_search(stepper, [SOURCE], config(2, coverage_penalty=1.0))
    assert math.isfinite(best.score)
    assert best.score < -50


def test_what_is_cut_is_ranked_with_its_coverage(scripted: SimpleNamespace) -> None:
    stepper = scripted.AttentiveStepper(
        scripted.table({(): {A: 0.6, B: 0.4}, (A,): {A: 1.0}, (B,): {B: 1.0}}),
        lambda source, prefix: [0.5, 0.5] if prefix == (B,) else [0.9, 0.1],
    )
    found = beam_search(stepper, [SOURCE], config(2, coverage_penalty=2.0, max_output_extra=0))[0]
    assert [each.tokens for each in found] == [[B, B], [A, A]]
    assert found[0].score > found[1].score


def test_a_longer_hypothesis_with_a_better_score_is_not_lost(scripted: SimpleNamespace) -> None:
    table = {
        (): {EOS: math.exp(-1.0), A: 1 - math.exp(-1.0)},
        (A,): {B: 1.0},
        (A, B): {C: 1.0},
        (A, B, C): {EOS: math.exp(-1.2) / (1 - math.exp(-1.0))},
    }
    best = []
    for n_best in (1, 2):
        stepper = scripted.Stepper(scripted.table(table))
        [found] = beam_search(stepper, [SOURCE], config(2, n_best=n_best, length_penalty=1.0))
        best.append(found[0])
    assert [each.score for each in found] == pytest.approx([-0.8, -1.0])
    assert found[0].tokens == [A, B, C, EOS]
    assert best[0] == best[1]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), n_best=st.integers(1, 4))
def test_the_n_best_are_the_first_of_the_beam_for_every_n(
    scripted: SimpleNamespace, seed: int, n_best: int
) -> None:
    stepper = scripted.Stepper(scripted.random(seed))
    [few] = beam_search(stepper, [SOURCE], config(5, n_best=n_best))
    [all_of_them] = beam_search(stepper, [SOURCE], config(5))
    assert few == all_of_them[:n_best]


@pytest.mark.parametrize("form", FORMS)
def test_the_score_is_the_log_probability_over_the_penalty_of_all_tokens_with_eos(
    scripted: SimpleNamespace, form: str
) -> None:
    table = {(): {A: 0.9}, (A,): {B: 0.9}, (A, B): {C: 0.9}, (A, B, C): {EOS: 0.9}}
    stepper = scripted.Stepper(scripted.table(table))
    [[best]] = beam_search(stepper, [SOURCE], config(2, length_penalty_form=form))
    assert best.tokens == [A, B, C, EOS]
    assert best.log_probability == pytest.approx(4 * math.log(0.9))
    assert best.score == best.log_probability / length_penalty(4, 0.6, form)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_sentences_of_a_batch_are_searched_as_if_alone(
    scripted: SimpleNamespace, seed: int, data: st.DataObject
) -> None:
    tokens = st.lists(st.sampled_from([A, B, C]), min_size=0, max_size=11)
    sources = [[*ids, EOS] for ids in data.draw(st.lists(tokens, min_size=2, max_size=5))]
    stepper = scripted.Stepper(scripted.random(seed, vocab=7))
    together = beam_search(stepper, sources, config(5, max_output_extra=0))
    alone = [beam_search(stepper, [source], config(5, max_output_extra=0))[0] for source in sources]
    assert together == alone


def test_a_sentence_that_is_done_leaves_the_batch(scripted: SimpleNamespace) -> None:
    long = [(), (A,), (A, A), (A, A, A)]

    def script(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        short = source[0] == B or prefix == long[-1]
        return scripted.table({prefix: {EOS: 1.0} if short else {A: 1.0}})(source, prefix)

    stepper = scripted.Stepper(script)
    found = beam_search(stepper, [[A, EOS], [B, EOS]], config(2))
    assert [each[0].tokens for each in found] == [[A, A, A, EOS], [EOS]]
    assert stepper.steps == [2, 1, 1, 1]


def test_an_output_is_as_long_as_its_own_source_allows(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [-9.0, -9, -9, -9, -0.1])
    few = config(2, max_output_extra=1, length_penalty=2.0, length_penalty_form="power")
    found = beam_search(stepper, [[A] * 2, [A] * 5], few)
    assert [len(best.tokens) for best, _ in found] == [3, 6]
    assert all(each.tokens[-1] == EOS for best in found for each in best)


@pytest.mark.parametrize(
    ("room", "flags"), [(0, ("cut",)), (1, ()), (5, ())], ids=["none", "just enough", "plenty"]
)
def test_an_end_for_want_of_room_is_flagged_and_one_that_was_meant_is_not(
    scripted: SimpleNamespace, room: int, flags: tuple[str, ...]
) -> None:
    def script(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        end = -0.1 if len(prefix) == 2 else -9.0
        return [-9, -9, -9, end, -0.1, -2.5, -3.0]

    stepper = scripted.Stepper(script)
    [[best]] = beam_search(stepper, [[A] * 2], config(2, n_best=1, max_output_extra=room))
    assert (best.tokens[-1], best.flags) == (EOS, flags)
    assert len(best.tokens) == min(3, 2 + room)


def test_without_any_end_in_reach_the_best_live_hypotheses_are_returned_as_cut(
    scripted: SimpleNamespace,
) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [-0.1, -9, -0.1, -math.inf, -0.5, -0.7])
    [found] = beam_search(stepper, [SOURCE], config(3, max_output_extra=1))
    assert [each.tokens for each in found] == [[A, A, A], [A, A, B], [A, B, A]]
    assert {each.flags for each in found} == {("cut",)}
    assert found[0].score == pytest.approx(-1.5 / length_penalty(3, 0.6))


def test_a_hypothesis_that_nothing_can_follow_is_returned_as_cut(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(scripted.table({(): {A: 0.5}, (A,): {B: 0.5}}))
    [[only]] = beam_search(stepper, [SOURCE], config(3))
    assert (only.tokens, only.flags) == ([A, B], ("cut",))


def test_padding_and_start_are_never_generated(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [-0.1, -4, -0.1, -4, -4])
    [found] = beam_search(stepper, [SOURCE], config(5))
    assert not {PAD, BOS} & {token for each in found for token in each.tokens}


def test_the_model_s_own_longest_output_is_a_limit(scripted: SimpleNamespace) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [0, -3, 0, -math.inf, -0.1], max_length=8)
    [found] = beam_search(stepper, [SOURCE], config(2))
    assert [(len(each.tokens), each.flags) for each in found] == [(8, ("cut",))] * 2


def test_numbers_that_a_diverged_model_gives_still_end_the_search(
    scripted: SimpleNamespace,
) -> None:
    stepper = scripted.Stepper(lambda source, prefix: [math.nan] * 6)
    [found] = beam_search(stepper, [SOURCE], config(2))
    assert len(found) == 2


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([-math.inf, -2.0, -1.0, 0.0]), min_size=1), st.integers(1, 7))
def test_of_equal_values_the_first_are_taken(values: list[float], count: int) -> None:
    best, places = take_best(torch.tensor([values]), count)
    expected = sorted(range(len(values)), key=lambda place: -values[place])[:count]
    finite = [place for place in expected if values[place] > -math.inf]
    assert best[0].tolist() == [values[place] for place in expected]
    assert places[0, : len(finite)].tolist() == finite


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    width=st.integers(127, 1200),
    kinds=st.sampled_from([2, 40, 2**30]),
    count=st.integers(1, 7),
)
def test_of_many_values_the_first_of_the_largest_are_taken(
    seed: int, width: int, kinds: int, count: int
) -> None:
    random = np.random.default_rng(seed)
    values = torch.tensor(random.integers(0, kinds, (3, width)).astype(np.float64))
    values[values < kinds // 3] = -math.inf
    best, places = take_best(values, count)
    for row, found, where in zip(values.tolist(), best.tolist(), places.tolist(), strict=True):
        expected = sorted(range(width), key=lambda place: -row[place])[:count]
        assert found == [row[place] for place in expected]
        assert where == expected
