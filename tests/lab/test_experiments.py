"""What every experiment has, and what must hold by mathematics, whatever is trained."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from dragoman.lab.experiment import Experiment, Text, flatten
from dragoman.lab.experiments import EXPERIMENTS, find_experiments, scaling
from dragoman.lab.experiments.cross_attention import source_effect
from dragoman.lab.experiments.positions import equivariance_error, learned_stop
from dragoman.lab.experiments.scaling import growth, unit_scores
from dragoman.lab.leaks import drift
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.settings import build_config

every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
Untrained = Callable[..., Trained]


def test_all_names_every_experiment_once_and_in_order() -> None:
    assert find_experiments(["length", "all"])[1:] == [
        each for each in EXPERIMENTS.values() if each.name != "length"
    ]
    assert [each.number for each in EXPERIMENTS.values()] == list(range(1, 24))


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


def test_forced_accuracy_is_the_share_of_real_tokens_that_are_right(untrained: Untrained) -> None:
    trained = untrained()
    source, target = (end_and_pad(side) for side in trained.ids)
    best = trained.model(source, trained.model.decoder_input(target)).argmax(-1)
    right = ((best == target) & (target != 0)).sum().item()
    assert trained.forced_accuracy() == right / (target != 0).sum().item()
