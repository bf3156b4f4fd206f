"""What recurrence, length and the cache cost: the measuring itself, and what becomes of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from dragoman.config import ModelConfig
from dragoman.kernels import resources
from dragoman.lab.experiment import Measured, Results, Trial, Verdict
from dragoman.lab.experiments import cache, length, recurrence
from dragoman.lab.trained import Trained
from dragoman.model.recurrent import Recurrent

Untrained = Callable[..., Trained]
Judge = Callable[[Results], Verdict]
RIGHT, WRONG = [1.0] * 20, [0.0] * 20


def trials(**variants: tuple[list[float], dict[str, Measured]]) -> Results:
    """Makes results of three seeds; the names of variants have _ for a blank."""
    made = [
        Trial(name.replace("_", " "), seed, [], {"exact": sum(items[:1]), **measures}, items)
        for name, (items, measures) in variants.items()
        for seed in (1, 2, 3)
    ]
    return Results({}, made)


def observed(**found: Measured) -> Results:
    return Results(found, [])


# 16: recurrence


def test_the_first_word_says_whether_a_string_is_copied_or_reversed() -> None:
    data = recurrence.marked_data()
    for source, target in [*data.train, *data.test]:
        mark, *symbols = source.split()
        assert target.split() == {">": symbols, "<": symbols[::-1]}[mark]
    assert not {*data.train} & {*data.test}
    for task in ("copy", "reverse"):
        assert list(recurrence._of_task(data.test, task)) == list(range(2, 13))


@pytest.mark.parametrize("forget", [0.5, 0.75])
def test_a_gradient_fades_by_the_forget_gate_at_each_step_where_nothing_else_passes(
    forget: float,
) -> None:
    config = ModelConfig(
        architecture="recurrent",
        source_vocab_size=5,  # one symbol: all tokens are the same
        target_vocab_size=5,
        d_model=6,
        num_encoder_layers=1,
        num_decoder_layers=1,
        cross_attention=False,
    )
    model = Recurrent(config).double().eval()
    weights = dict(model.decoder.lstm.named_parameters())
    with torch.no_grad():
        weights["weight_hh_l0"].zero_()
        weights["weight_ih_l0"][6:12] = 0
        weights["bias_ih_l0"][6:12] = torch.tensor(forget).logit()
    for steps, share in recurrence.gradient_back(model).items():
        assert share == pytest.approx(forget ** (steps - 1), rel=1e-6)


def test_a_fresh_transformer_s_gradient_reaches_all_tokens_alike(untrained: Untrained) -> None:
    found = recurrence.gradient_back(untrained().untrained(seed=1))
    assert found[1] == 1.0
    assert all(0.2 < share < 5 for share in found.values())


def test_rates_are_had_for_each_model_at_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "_TOKENS", 13)
    rates = recurrence.training_rates((5, 7))
    assert rates.keys() == {"transformer", "recurrent", "attentive"}
    for rate in rates.values():
        assert rate.keys() == {"5", "7"}
        assert min(rate.values()) > 0


_judge_quality = next(
    each.judge for each in recurrence.EXPERIMENT.claims if "learns better" in each.statement.en
)


def strings(**measures: float) -> dict[str, Measured]:
    return {"short_copy": 1.0, "long_copy": 0.1, "highest_norm": 3.0, **measures}


@pytest.mark.parametrize(
    ("judge", "results", "outcome"),
    [
        (recurrence._judge_copy, {"attentive": (RIGHT, strings(short_copy=0.96))}, "confirmed"),
        (recurrence._judge_copy, {"attentive": (RIGHT, strings(short_copy=0.94))}, "not confirmed"),
        (recurrence._judge_copy, {"attentive": (RIGHT, {})}, "no result"),
        (recurrence._judge_bottleneck, {"plain": (WRONG, strings())}, "confirmed"),
        (recurrence._judge_bottleneck, {"plain": (WRONG, strings(long_copy=1.0))}, "not confirmed"),
        (recurrence._judge_bottleneck, {"plain": (RIGHT, strings())}, "within noise"),
        (recurrence._judge_bottleneck, {"plain": (RIGHT, {})}, "no result"),
        (
            recurrence._judge_wear,
            {"attentive": (RIGHT, {"first_reach": 0.001}), "other": (RIGHT, {"first_reach": 0.5})},
            "confirmed",
        ),
        (
            recurrence._judge_wear,
            {"attentive": (RIGHT, {"first_reach": 0.1}), "other": (RIGHT, {"first_reach": 0.5})},
            "not confirmed",
        ),
        (_judge_quality, {"attentive": (WRONG, {})}, "confirmed"),
        (_judge_quality, {"other": (WRONG, {})}, "not confirmed"),
        (_judge_quality, {}, "within noise"),
        (recurrence._judge_clipping, {"unclipped": (WRONG, strings())}, "confirmed"),
        (recurrence._judge_clipping, {"attentive": (WRONG, {})}, "not confirmed"),
        (recurrence._judge_clipping, {}, "within noise"),
    ],
)
def test_trained_models_decide_about_recurrence(
    judge: Judge, results: dict[str, Any], outcome: str
) -> None:
    usual = (RIGHT, strings())
    found = trials(
        LSTM_with_attention=results.get("attentive", usual),
        LSTM=results.get("plain", usual),
        Transformer=results.get("other", usual),
        no_clipping=results.get("unclipped", usual),
    )
    assert judge(found).outcome == outcome


def rates(transformer: float, recurrent: float, attentive: float = 1.0) -> Results:
    """Makes rates of 10 at 16 tokens, and these at 512."""
    ends = {"transformer": transformer, "recurrent": recurrent, "attentive": attentive}
    curves: dict[str, Measured] = {
        f"rate_{name}": {"16": 10.0, "512": last} for name, last in ends.items()
    }
    return Results({**curves, "threads": 1.0}, [])


def test_one_length_at_which_the_lstm_is_ahead_refutes_that_the_transformer_is() -> None:
    assert recurrence._judge_rates(rates(5.0, 10.0)).outcome == "not confirmed"
    assert recurrence._judge_rates(rates(10.0, 10.0)).outcome == "within noise"
    ahead = Results(
        {**rates(9.0, 3.0).observed, "rate_transformer": {"16": 12.0, "512": 9.0}}, trials=[]
    )
    assert recurrence._judge_rates(ahead).outcome == "confirmed"


def test_a_rate_that_stays_is_one_that_loses_a_fifth_at_most() -> None:
    assert recurrence._judge_constant(rates(5.0, 8.0, 4.0)).outcome == "confirmed"
    assert recurrence._judge_constant(rates(5.0, 7.0, 4.0)).outcome == "not confirmed"
    assert recurrence._judge_constant(rates(5.0, 8.0, 6.0)).outcome == "not confirmed"


# 17: length


@pytest.mark.parametrize("tokens", [2, 3, 7])
def test_the_ends_are_one_step_apart_for_attention_and_all_tokens_for_recurrence(
    tokens: int,
) -> None:
    assert length.path_length("attention", tokens) == 1
    assert length.path_length("recurrence", tokens) == tokens - 1


def test_blocks_take_less_memory_than_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    if resources.peak_bytes() is None:
        pytest.skip("this system doesn't tell a process's memory")
    monkeypatch.setattr(length, "tune_process", lambda frugal: None)
    threads = torch.get_num_threads()
    peaks = {name: length.cost(way, 1024, threads)[0] or 0 for name, way in length._WAYS.items()}
    assert 2 * peaks["blockwise"] < peaks["reference"]


def test_the_exponent_of_growth_is_2_for_squares_and_1_for_lines() -> None:
    squares = {str(n): 1e-6 * n * n for n in length._LENGTHS}
    lines = {str(n): 3.0 * n for n in length._LENGTHS}
    results = observed(peak_reference=squares, peak_blockwise=lines)
    assert length.growth(results, "reference") == pytest.approx(2)
    assert length.growth(results, "blockwise") == pytest.approx(1)


def costs(way: str, power: float, factor: float = 1.0) -> dict[str, Measured]:
    curve = {str(n): factor * n**power for n in length._LENGTHS}
    return {f"{what}_{way}": curve for what in ("peak", "seconds")}


@pytest.mark.parametrize(
    ("judge", "found", "outcome"),
    [
        (length._judge_quadratic, costs("reference", 2), "confirmed"),
        (length._judge_quadratic, costs("reference", 1.5), "not confirmed"),
        (length._judge_quadratic, {"peak_reference": {}}, "no result"),
        (length._judge_sixty_four, costs("reference", 1.95), "confirmed"),
        (length._judge_sixty_four, costs("reference", 2.05), "not confirmed"),
        (length._judge_sixty_four, costs("reference", 1.8), "not confirmed"),
        (length._judge_sixty_four, {"peak_reference": {}}, "no result"),
        (length._judge_linear, costs("blockwise", 1), "confirmed"),
        (length._judge_linear, costs("blockwise", 1.5), "not confirmed"),
        (length._judge_linear, {"peak_blockwise": {}}, "no result"),
        (length._judge_time, costs("reference", 2) | costs("blockwise", 2, 0.5), "confirmed"),
        (length._judge_time, costs("reference", 2) | costs("blockwise", 2), "within noise"),
        (length._judge_time, costs("reference", 2) | costs("blockwise", 2, 2), "not confirmed"),
        (
            length._judge_checkpointing,
            costs("reference", 2)
            | {
                "peak_reference_again": costs("reference", 2, 0.5)["peak_reference"],
                "seconds_reference_again": costs("reference", 2, 1.3)["peak_reference"],
            },
            "confirmed",
        ),
        (
            length._judge_checkpointing,
            costs("reference", 2)
            | {
                "peak_reference_again": costs("reference", 2, 0.5)["peak_reference"],
                "seconds_reference_again": costs("reference", 2, 1.53)["peak_reference"],
            },
            "within noise",
        ),
        (
            length._judge_checkpointing,
            costs("reference", 2) | costs("reference_again", 2),
            "not confirmed",
        ),
        (length._judge_checkpointing, {"peak_reference": {}}, "no result"),
    ],
)
def test_measured_costs_decide_about_length(
    judge: Judge, found: dict[str, Measured], outcome: str
) -> None:
    assert judge(observed(**found)).outcome == outcome


@pytest.mark.parametrize(("longest", "outcome"), [(31.0, "confirmed"), (30.0, "not confirmed")])
def test_paths_have_to_be_right_at_every_length(longest: float, outcome: str) -> None:
    paths = {"2": 1.0, "4": 3.0, "8": 7.0, "16": 15.0, "32": longest}
    results = observed(path_attention=dict.fromkeys(paths, 1.0), path_recurrence=paths)
    assert length._judge_paths(results).outcome == outcome


# 18: cache


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("architecture", ["transformer", "recurrent"])
def test_the_cache_changes_no_text(untrained: Untrained, search: str, architecture: str) -> None:
    assert cache.same_texts(untrained(architecture=architecture), search) == 1.0


def test_what_is_cached_would_change_were_it_not_for_the_causal_mask(
    untrained: Untrained,
) -> None:
    assert cache.same_texts(untrained(causal_mask=False), "greedy") < 1.0


def test_a_state_that_was_timed_can_be_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_POSITIONS", (5, 11))
    measures = cache._measures()
    assert set(measures) == {"cached 5", "cached 11", "uncached 5", "uncached 11"}
    for name, measure in measures.items():
        assert measure() > 0
        assert isinstance(measure, partial)
        way, position = name.split()
        _, state, _ = measure.args
        read = state.length if way == "cached" else state.tokens.shape[1]
        assert read == int(position) - cache._AROUND


def test_operations_are_linear_in_the_position_with_the_cache_and_quadratic_without() -> None:
    model = cache._model()
    cached, uncached = cache.operations(model, 7)
    config = model.config
    more = 4 * config.d_model * config.num_decoder_layers  # multiplied and added, for QK^T and AV
    assert {after - before for before, after in itertools.pairwise(cached)} == {more}
    slopes = [after - before for before, after in itertools.pairwise(uncached)]
    assert {after - before for before, after in itertools.pairwise(slopes)} == {2 * more}


@pytest.mark.parametrize(("beam", "outcome"), [(1.0, "confirmed"), (0.99, "not confirmed")])
def test_one_text_that_differs_is_too_many(beam: float, outcome: str) -> None:
    results = trials(Transformer=([], {"same_greedy": 1.0, "same_beam": beam}))
    assert cache._judge_same(results).outcome == outcome


@pytest.mark.parametrize(
    ("cached", "uncached", "outcome"),
    [(1.5, 4.0, "confirmed"), (1.6, 4.0, "not confirmed"), (1.0, 3.9, "not confirmed")],
)
def test_the_last_token_s_time_decides_about_the_cache(
    cached: float, uncached: float, outcome: str
) -> None:
    results = observed(
        ms_cached={"16": 1.0, "256": cached},
        ms_uncached={"16": 1.0, "256": uncached},
    )
    assert cache._judge_times(results).outcome == outcome


@pytest.mark.parametrize(
    ("least", "most", "outcome"),
    [(5.0, 5.0, "confirmed"), (0.0, 0.0, "not confirmed"), (5.0, 7.0, "not confirmed")],
)
def test_a_sum_is_quadratic_where_each_token_takes_as_many_more(
    least: float, most: float, outcome: str
) -> None:
    curve: dict[str, float] = {"16": 1.0, "256": 2.0}
    results = observed(operations_cached=curve, least_more=least, most_more=most)
    assert cache._judge_quadratic(results).outcome == outcome
