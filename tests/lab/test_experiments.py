"""What every experiment has, and what must hold by mathematics, whatever is trained."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable

import pytest
import torch

from dragoman.config import PAD
from dragoman.lab.experiment import Experiment, Measured, Results, Text, Trial, flatten
from dragoman.lab.experiments import EXPERIMENTS, find_experiments, scaling
from dragoman.lab.experiments.cross_attention import source_effect
from dragoman.lab.experiments.positions import equivariance_error, learned_stop
from dragoman.lab.experiments.scaling import growth, unit_scores
from dragoman.lab.leaks import drift
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.settings import build_config

every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
Untrained = Callable[..., Trained]


def test_all_names_those_that_bring_their_text_once_and_in_order() -> None:
    in_full_size = {"table3-full", "size-full"}
    assert find_experiments(["length", "all"])[1:] == [
        each for each in EXPERIMENTS.values() if each.name not in {"length", *in_full_size}
    ]
    assert {each.name for each in EXPERIMENTS.values() if each.needs_text} == in_full_size
    assert [each.number for each in EXPERIMENTS.values()] == list(range(1, 26))


@every_experiment
def test_a_variant_differs_in_one_setting_from_the_one_it_is_compared_with(
    experiment: Experiment,
) -> None:
    assert all(variant.change is None for variant in experiment.variants[:1])
    for variant in experiment.variants[1:]:
        before, after = (
            flatten(build_config(*experiment.layers(each)))
            for each in (experiment.variant(variant.of), variant)
        )
        assert variant.change is not None
        differing = {name for name in before if before[name] != after[name]}
        derived = {"model.d_k", "model.d_v"}  # they follow num_heads and d_model
        assert differing - (derived - variant.change.all.keys()) == variant.change.all.keys()
        assert experiment.difference(variant).startswith(f"{variant.change.setting} = ")


@every_experiment
def test_of_a_variant_s_name_terms_alone_stay_english_in_chinese(experiment: Experiment) -> None:
    terms = {
        *("ReLU", "SwiGLU", "Transformer", "LSTM", "ALiBi", "Noam", "RMS", "N", "dropout", "norm"),
        *("post", "pre", "eps", "e", "beta", "d_k", "d_model", "d_ff", "tiny", "small", "paper"),
        *("A", "B", "C", "D", "E"),  # the parts of Table 3
    }
    names = [variant.label.zh.removesuffix("-base") for variant in experiment.variants]
    assert {word for name in names for word in re.findall(r"[A-Za-z_]+", name)} <= terms
    assert len(set(names)) == len(names)


@every_experiment
def test_an_experiment_has_claims_with_predictions_in_both_languages(
    experiment: Experiment,
) -> None:
    assert experiment.claims
    texts: list[Text] = [experiment.title, experiment.question, experiment.why]
    for claim in experiment.claims:
        texts += [claim.statement, claim.prediction]
        assert claim.source
    for text in texts:
        assert text.en.isascii()
        assert any("\u4e00" <= character <= "\u9fff" for character in text.zh)


@every_experiment
def test_numbers_come_in_a_fixed_order_and_names_are_unique(experiment: Experiment) -> None:
    names = [variant.name for variant in experiment.variants]
    assert len(set(names)) == len(names)
    others = [each.number for each in EXPERIMENTS.values()]
    assert others == sorted(set(others))


def test_unit_variance_gives_scores_a_deviation_of_the_root_of_d_k() -> None:
    found = unit_scores()
    for d_k in (16, 64, 512):
        assert found[f"std_plain_{d_k}"] == pytest.approx(math.sqrt(d_k), rel=0.02)
        assert found[f"std_divided_{d_k}"] == pytest.approx(1.0, rel=0.02)
    assert all(math.isfinite(value) for value in found.values())
    assert found["entropy_plain_512"] < found["entropy_plain_16"] < found["entropy_divided_16"]


def test_the_size_of_softmax_s_derivative_is_that_of_its_jacobian() -> None:
    scores = torch.tensor([[0.0, 1.0, -2.0], [900.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = scaling._slope(scores.softmax(-1))
    for row, value in zip(scores, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), row)
        assert value == pytest.approx(jacobian.norm().item(), abs=1e-6)


def test_in_a_fresh_model_scores_grow_as_the_root_of_d_k(untrained: Untrained) -> None:
    found = {}
    for d_k in (16, 512):
        trained = untrained(num_heads=1, d_k=d_k, scale_scores=False)
        encoded = trained.tokenizers.source.encode_batch(pair[0] for pair in trained.data.train)
        source = end_and_pad([ids for ids in encoded if len(ids) == len(encoded[0])])
        starts = [growth(trained.untrained(seed), source) for seed in range(8)]
        found[d_k] = sum(starts) / len(starts)
    assert found[512] / found[16] == pytest.approx(math.sqrt(512 / 16), rel=0.1)


def test_without_positions_alone_the_encoder_is_permutation_equivariant() -> None:
    assert equivariance_error("none") < 1e-12
    for kind in ("sinusoidal", "learned", "rotary", "alibi"):
        assert equivariance_error(kind) > 1e-3


@pytest.mark.parametrize("limit", [1, 7, 13])
def test_learned_positions_stop_where_they_end(limit: int) -> None:
    assert learned_stop(limit)


@pytest.mark.parametrize("longer", [1, 13])
def test_a_neighbour_is_heard_without_the_padding_mask_only(
    untrained: Untrained, longer: int
) -> None:
    assert drift(untrained(), longer) < 1e-9
    assert drift(untrained(padding_mask=False), longer) > 1e-3


def test_the_source_matters_to_the_last_bit_through_cross_attention_only(
    untrained: Untrained,
) -> None:
    assert source_effect(untrained(cross_attention=False)) == 0.0
    assert source_effect(untrained()) > 0.1


def test_unpadded_batches_hold_every_test_sentence_once_and_no_padding(
    untrained: Untrained,
) -> None:
    trained = untrained()
    found = []
    for source, target in trained.unpadded:
        assert (source != PAD).all()
        assert (target != PAD).all()
        found += zip(source[:, :-1].tolist(), target[:, :-1].tolist(), strict=True)
    assert sorted(found) == sorted(zip(*trained.ids, strict=True))


@pytest.mark.parametrize("head_transpose", ["both", "merge", "none"])
def test_forced_accuracy_is_the_share_of_tokens_that_are_right_sentence_by_sentence(
    untrained: Untrained, head_transpose: str
) -> None:
    trained = untrained(head_transpose=head_transpose)
    right = tokens = 0
    for ids in zip(*trained.ids, strict=True):
        source, target = (end_and_pad([side]) for side in ids)
        best = trained.model(source, trained.model.decoder_input(target)).argmax(-1)
        right += (best == target).sum().item()
        tokens += target.numel()
    assert trained.forced_accuracy() == right / tokens


def test_what_is_right_to_the_letter_is_counted(untrained: Untrained) -> None:
    trained = untrained()
    texts = [each.text for each in trained.translations]
    pairs = [(source, text) for (source, _), text in zip(trained.data.test, texts, strict=True)]
    right = dataclasses.replace(trained.data, test=[*pairs[:5], *trained.data.test[5:]])
    told = dataclasses.replace(trained, data=right)
    assert told.items[:5] == [1.0] * 5
    assert told.exact(right.test) == sum(told.items) / len(told.items)


def results_of(experiment: Experiment, found: dict[str, tuple[int, dict[str, float]]]) -> Results:
    """Returns results in which variants translate so many of 20 sentences; the others broke off."""
    trials = [Trial(each.name, 1, [(1, 1.0)], failed="no luck") for each in experiment.variants]
    whole = [
        Trial(name, 1, [(1, 1.0)], {"exact": n / 20, **measures}, [1.0] * n + [0.0] * (20 - n))
        for name, (n, measures) in found.items()
    ]
    return Results({}, [*whole, *(trial for trial in trials if trial.variant not in found)])


def outcome(experiment: Experiment, number: int, results: Results) -> str:
    return experiment.judge(experiment.claims[number], results).outcome


@pytest.mark.parametrize(
    ("without", "sinusoidal", "measures", "expected"),
    [
        (0, 15, {"beyond": 0.0}, "confirmed"),
        (3, 15, {"beyond": 0.0}, "not confirmed"),  # above what can be guessed
        (0, 0, {"beyond": 0.0}, "no result"),
        (0, 15, {}, "no result"),  # no strings
    ],
)
def test_a_model_without_positions_can_guess_but_not_reverse(
    without: int, sinusoidal: int, measures: dict[str, float], expected: str
) -> None:
    experiment = EXPERIMENTS["positions"]
    found = {"none": (without, measures), "sinusoidal": (sinusoidal, measures)}
    assert outcome(experiment, 1, results_of(experiment, found)) == expected


@pytest.mark.parametrize(
    ("free", "masked", "forced", "expected"),
    [
        (0, 15, 0.95, "confirmed"),
        (0, 15, 0.85, "not confirmed"),
        (15, 15, 0.95, "not confirmed"),
        (0, 0, 0.95, "no result"),
    ],
)
def test_cheating_is_seen_beside_a_masked_model_that_has_learnt(
    free: int, masked: int, forced: float, expected: str
) -> None:
    experiment = EXPERIMENTS["causal-mask"]
    found = {"no causal mask": (free, {"forced": forced}), "causal mask": (masked, {})}
    assert outcome(experiment, 0, results_of(experiment, found)) == expected


@pytest.mark.parametrize(
    ("without", "whole", "expected"),
    [(0, 15, "confirmed"), (1, 15, "not confirmed"), (0, 1, "within noise"), (0, 0, "no result")],
)
def test_nothing_is_left_where_clearly_more_was(without: int, whole: int, expected: str) -> None:
    experiment = EXPERIMENTS["cross-attention"]
    found = {"no cross-attention": (without, {}), "cross-attention": (whole, {})}
    assert outcome(experiment, 1, results_of(experiment, found)) == expected


def test_a_neighbour_s_padding_is_judged_at_the_longest() -> None:
    experiment = EXPERIMENTS["padding-mask"]
    for longest, expected in ((0.5, "confirmed"), (1e-4, "not confirmed")):
        measures = {"drift": {"1": 0.7, "32": longest}, "changed": 0.0}
        trial = Trial("no padding mask", 1, [], measures)  # type: ignore[arg-type]
        assert outcome(experiment, 1, Results({}, [trial])) == expected


class NotObservedError(Exception):
    pass


class Unobserved(dict[str, Measured]):
    def __missing__(self, name: str) -> Measured:
        raise NotObservedError


@every_experiment
def test_where_all_trials_broke_off_no_verdict_takes_their_numbers(experiment: Experiment) -> None:
    results = results_of(experiment, {})
    results = dataclasses.replace(results, observed=Unobserved())
    for claim in experiment.claims:
        with contextlib.suppress(NotObservedError):  # this claim takes no trials
            assert experiment.judge(claim, results).outcome == "no result"
