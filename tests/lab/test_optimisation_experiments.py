"""Warm-up, place of the norm, Adam's numbers, first weights: measures and verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from dragoman.config import EOS, TrainingConfig
from dragoman.lab.early_steps import draw_batches, first_steps, learns, unigram_entropy
from dragoman.lab.experiment import Experiment, Measured, Results, Trial, Verdict
from dragoman.lab.experiments import adam, initialisation, norm_place, warm_up
from dragoman.lab.experiments.adam import adam_steps, epsilon_share, recovery, rescaling_error
from dragoman.lab.experiments.initialisation import input_sizes
from dragoman.lab.experiments.norm_place import gradients, growth_exponent, name_of
from dragoman.lab.experiments.warm_up import second_moments
from dragoman.lab.judging import judge_equal, judge_gain
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.architecture import build_model
from dragoman.settings import build_config

Untrained = Callable[..., Trained]
ITEMS = 31


def trial(name: str, right: int = 0, end: float = 0.1, **measures: Measured) -> Trial:
    """A run that translates so many of 31 sentences and whose loss ends there."""
    items = [1.0] * right + [0.0] * (ITEMS - right)
    kept: dict[str, Measured] = {"exact": right / ITEMS, "unigram": 2.0, **measures}
    return Trial(name, 1, [(1, 5.0), (7, end)], kept, items)


def broken(name: str) -> Trial:
    return Trial(name, 1, [(1, 5.0), (2, 0.1)], failed="not finite")


def judge(
    experiment: Experiment, number: int, trials: Sequence[Trial], **observed: Measured
) -> Verdict:
    """Returns the verdict on a claim, by its number, on made-up results."""
    return experiment.judge(experiment.claims[number], Results(observed, list(trials)))


def with_training(trained: Trained, **training: Any) -> Trained:
    changed = dataclasses.replace(trained.config.training, **training)
    return dataclasses.replace(
        trained, config=dataclasses.replace(trained.config, training=changed)
    )


@pytest.mark.parametrize("warm_up_steps", [0, 13])
def test_adam_moves_every_parameter_by_the_rate_at_its_first_step(
    untrained: Untrained, warm_up_steps: int
) -> None:
    trained = with_training(untrained(), warmup_steps=warm_up_steps)
    assert next(first_steps(trained)).size == pytest.approx(1.0, rel=0.02)


def test_first_steps_are_the_same_each_time_and_leave_the_trained_model_alone(
    untrained: Untrained,
) -> None:
    trained = untrained()
    before = trained.model.to_arrays()
    first, second = (
        [(step.nll, step.size) for step in islice(first_steps(trained), 3)] for _ in range(2)
    )
    assert first == second
    after = trained.model.to_arrays()
    assert all((before[name] == after[name]).all() for name in before)


def test_frozen_weights_stay_where_they_are_while_moments_gather(untrained: Untrained) -> None:
    steps = list(islice(first_steps(untrained(), frozen=True), 3))
    assert [step.size for step in steps] == [0.0, 0.0, 0.0]
    assert not torch.equal(steps[0].second_moments, steps[2].second_moments)


def test_the_first_corrected_second_moments_add_up_to_the_square_of_the_gradient(
    untrained: Untrained,
) -> None:
    step = next(first_steps(with_training(untrained(), clip_norm=0.0), frozen=True))
    assert step.second_moments.double().sum().sqrt().item() == pytest.approx(
        step.gradient_norm, rel=1e-4
    )


def test_second_moments_end_at_themselves(
    untrained: Untrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "_FROZEN", 5)
    for by_step in second_moments(untrained()).values():
        assert list(by_step) == ["1", "2", "3", "4", "5"]
        assert by_step["5"] == 1.0
        assert by_step["1"] > 0


def test_drawn_batches_are_pairs_of_the_training_text(untrained: Untrained) -> None:
    trained = untrained()
    source, target = next(draw_batches(trained, pairs=5))
    sides = zip(*trained.data.train, strict=True)
    tokenizers = trained.tokenizers.source, trained.tokenizers.target
    encoded = [t.encode_batch(side) for t, side in zip(tokenizers, sides, strict=True)]
    pairs = list(zip(*encoded, strict=True))
    for row, answer in zip(source.tolist(), target.tolist(), strict=True):
        assert ([n for n in row if n > EOS], [n for n in answer if n > EOS]) in pairs


def test_unigram_entropy_is_the_loss_of_the_frequencies(untrained: Untrained) -> None:
    trained = untrained()
    ended = end_and_pad(trained.ids[1])
    real = ended[ended != 0]
    frequencies = real.bincount().double() / real.numel()
    assert unigram_entropy(trained) == pytest.approx(-frequencies.log()[real].mean().item())


def test_a_run_learns_below_half_of_what_frequencies_give() -> None:
    assert learns(trial("a", end=0.99))
    assert not learns(trial("a", end=1.01))
    assert not learns(trial("a", end=math.nan))
    assert not learns(broken("a"))


@pytest.mark.parametrize(
    ("better", "worse", "outcome"),
    [
        (29, 2, "confirmed"),
        (2, 29, "not confirmed"),
        (13, 13, "within noise"),
        (0, 0, "no result"),
    ],
)
def test_a_gain_is_clear_or_not(better: int, worse: int, outcome: str) -> None:
    results = Results({}, [trial("a", better), trial("b", worse)])
    assert judge_gain("a", "b", results).outcome == outcome


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(13, 13, "confirmed"), (29, 2, "not confirmed"), (0, 0, "no result"), (2, 2, "no result")],
)
def test_two_variants_are_equal_where_they_have_learnt(
    first: int, second: int, outcome: str
) -> None:
    verdict = judge_equal("a", "b", 0.03, Results({}, [trial("a", first), trial("b", second)]))
    assert verdict.outcome == outcome
    assert verdict.seen.en.endswith("too little is learnt to compare") == (outcome == "no result")


def test_each_seed_starts_from_models_of_its_own(untrained: Untrained) -> None:
    def starts(seed: int) -> list[float]:
        models = with_training(untrained(), seed=seed).starts(3)
        return [parameters_to_vector(model.parameters()).sum().item() for model in models]

    assert starts(1) == starts(1)
    assert len({*starts(1), *starts(2)}) == 6


@pytest.mark.parametrize(
    ("first", "late", "outcome"),
    [(1.0, 0.2, "confirmed"), (0.5, 0.2, "not confirmed"), (1.0, 0.9, "not confirmed")],
)
def test_first_steps_are_large_or_not(first: float, late: float, outcome: str) -> None:
    found = trial("no warm-up", first_size=first, late_size=late)
    assert judge(warm_up.EXPERIMENT, 0, [found]).outcome == outcome


@pytest.mark.parametrize(
    ("median", "mean", "outcome"),
    [(0.3, 1.0, "confirmed"), (0.9, 1.0, "not confirmed"), (0.3, 0.3, "not confirmed")],
)
def test_the_second_moment_starts_scattered_or_not(
    median: float, mean: float, outcome: str
) -> None:
    found = trial("Noam", first_moment_median=median, first_moment_mean=mean)
    assert judge(warm_up.EXPERIMENT, 1, [found]).outcome == outcome


@pytest.mark.parametrize(
    ("highest", "end", "outcome"),
    [
        (9.0, 1.9, "confirmed"),  # up, and it stays
        (9.0, 0.1, "not confirmed"),  # up and down again
        (3.0, 1.9, "not confirmed"),  # never up
    ],
)
def test_a_loss_shoots_up_and_stays_or_not(highest: float, end: float, outcome: str) -> None:
    found = trial("no warm-up", end=end, highest_loss=highest, first_loss=3.0)
    assert judge(warm_up.EXPERIMENT, 2, [found, trial("constant rate", end=0.1)]).outcome == outcome
    too_short = [found, trial("constant rate", end=1.9)]
    assert judge(warm_up.EXPERIMENT, 2, too_short).outcome == "no result"


def test_a_run_that_breaks_off_has_shot_up_and_stayed() -> None:
    trials = [broken("no warm-up"), trial("constant rate", end=0.1)]
    verdict = judge(warm_up.EXPERIMENT, 2, trials)
    assert verdict.outcome == "confirmed"
    assert "rises by inf nats" in verdict.seen.en
    control = [trial("no warm-up", highest_loss=9.0, first_loss=3.0), broken("constant rate")]
    assert judge(warm_up.EXPERIMENT, 2, control).outcome == "no result"


@pytest.mark.parametrize(("end", "outcome"), [(0.5, "confirmed"), (1.5, "not confirmed")])
def test_a_low_rate_learns_without_warm_up_or_not(end: float, outcome: str) -> None:
    trials = [trial("no warm-up / 3", end=end), trial("constant rate", end=0.1)]
    assert judge(warm_up.EXPERIMENT, 5, trials).outcome == outcome


@pytest.mark.parametrize("power", [-0.5, 0.0, 3.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    by_depth = {str(depth): 7.0 * depth**power for depth in (2, 3, 11)}
    assert growth_exponent(by_depth) == pytest.approx(power)


def test_each_layer_has_a_gradient_that_post_norm_lets_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(norm_place, "_STARTS", 2)
    found = {place: gradients(place, 5) for place in ("post", "pre", "none")}
    for norms in found.values():
        assert len(norms) == 5
        assert all(norm > 0 for norm in norms)
    assert found["post"][-1] / found["post"][0] > found["pre"][-1] / found["pre"][0]


def test_gradients_before_training_are_judged_by_their_ratios() -> None:
    def outcome(number: int, **observed: Measured) -> str:
        return judge(norm_place.EXPERIMENT, number, [], **observed).outcome

    even, steep = {"2": 1.0, "18": 1.1}, {"2": 1.0, "18": 1000.0}
    assert outcome(0, last_post=even) == "confirmed"
    assert outcome(0, last_post=steep) == "not confirmed"
    assert outcome(1, exponent_pre=-0.5, last_pre=even) == "confirmed"
    assert outcome(1, exponent_pre=0.0, last_pre=even) == "not confirmed"
    assert outcome(2, layers_post=steep, layers_pre=even) == "confirmed"
    assert outcome(2, layers_post=steep, layers_pre=steep) == "not confirmed"
    assert outcome(3, last_none=steep, last_post=even) == "confirmed"
    assert outcome(3, last_none=even, last_post=even) == "not confirmed"


def norm_trials(*not_learnt: str) -> list[Trial]:
    """Every variant of norm-place learns but those named."""
    names = [variant.name for variant in norm_place.EXPERIMENT.variants]
    assert set(not_learnt) <= set(names)
    return [trial(name, end=1.5 if name in not_learnt else 0.1) for name in names]


def test_a_deep_model_needs_its_warm_up_or_not() -> None:
    post = name_of("post", 12, 0)
    pre = name_of("pre", 12, 0)
    assert judge(norm_place.EXPERIMENT, 4, norm_trials(post)).outcome == "confirmed"
    assert judge(norm_place.EXPERIMENT, 4, norm_trials(pre)).outcome == "not confirmed"
    assert judge(norm_place.EXPERIMENT, 5, norm_trials(post)).outcome == "confirmed"
    assert judge(norm_place.EXPERIMENT, 5, norm_trials(pre)).outcome == "not confirmed"
    assert judge(norm_place.EXPERIMENT, 6, norm_trials(post)).outcome == "confirmed"
    assert judge(norm_place.EXPERIMENT, 6, norm_trials(pre)).outcome == "not confirmed"
    assert judge(norm_place.EXPERIMENT, 6, norm_trials()).outcome == "not confirmed"


@pytest.mark.parametrize(
    ("with_it", "without", "outcome"),
    [
        ((1, 1, 1), (0, 0, 1), "confirmed"),
        ((1, 1, 1), (0, 1, 1), "within noise"),
        ((0, 1, 1), (0, 0, 0), "within noise"),
        ((1, 1, 1), (1, 1, 1), "not confirmed"),
        ((0, 0, 0), (0, 0, 1), "not confirmed"),
        ((0, 0, 0), (0, 0, 0), "no result"),
    ],
)
def test_one_seed_that_does_not_learn_is_an_accident(
    with_it: Sequence[int], without: Sequence[int], outcome: str
) -> None:
    trials = [
        dataclasses.replace(trial(name, end=0.1 if learnt else 1.5), seed=seed)
        for name, runs in ((name_of("post", 12), with_it), (name_of("post", 12, 0), without))
        for seed, learnt in enumerate(runs)
    ]
    trials.append(trial(name_of("post", 2, 0)))
    assert judge(norm_place.EXPERIMENT, 4, trials).outcome == outcome


def test_the_shortest_warm_up_is_infinite_where_none_trains() -> None:
    never = [name_of("post", 12, steps) for steps in (0, 25, 100)]
    verdict = judge(norm_place.EXPERIMENT, 6, norm_trials(*never))
    assert verdict.outcome == "confirmed"
    assert "post-norm inf, pre-norm 0" in verdict.seen.en


def test_a_run_that_breaks_off_counts_as_one_that_does_not_learn() -> None:
    name = name_of("none", 12)
    trials = [broken(name) if each.variant == name else each for each in norm_trials()]
    verdict = judge(norm_place.EXPERIMENT, 8, trials)
    assert verdict.outcome == "confirmed"
    assert verdict.seen.en.endswith("0% and 100%")
    assert judge(norm_place.EXPERIMENT, 8, norm_trials()).outcome == "not confirmed"


@pytest.mark.parametrize("claim", [4, 5, 6, 8])
def test_a_text_that_nothing_learns_gives_no_result(claim: int) -> None:
    names = [variant.name for variant in norm_place.EXPERIMENT.variants]
    verdict = judge(norm_place.EXPERIMENT, claim, norm_trials(*names))
    assert verdict.outcome == "no result"


def test_what_pre_norm_costs_needs_both_runs() -> None:
    post, pre = name_of("post", 2), name_of("pre", 2)
    both = [trial(post, 29), trial(pre, 3)]
    assert judge(norm_place.EXPERIMENT, 7, both).outcome == "confirmed"
    assert judge(norm_place.EXPERIMENT, 7, [both[0], broken(pre)]).outcome == "no result"


@pytest.mark.parametrize("gradient", [1e-3, -7.0, 1000.0])
def test_adam_s_first_step_is_the_rate_whatever_the_gradient(gradient: float) -> None:
    assert adam_steps(TrainingConfig(), [gradient]) == pytest.approx([1.0], rel=1e-5)


def test_epsilon_halves_the_step_of_a_gradient_of_its_size() -> None:
    config = TrainingConfig(adam_epsilon=1e-6)
    assert adam_steps(config, [1e-6]) == pytest.approx([0.5])


def test_adam_s_steps_do_not_depend_on_the_gradients_common_size() -> None:
    assert rescaling_error(1000.0) < 1e-12


def test_adam_forgets_a_large_gradient_when_the_formula_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adam, "_LARGE", 500)
    monkeypatch.setattr(adam, "_AFTER", 500)
    steps = recovery(0.98)
    after = 1 + max(n for n, size in enumerate(steps, start=1) if size < 0.5)
    assert after == math.ceil(adam._expected_half(0.98))


def test_epsilon_is_noticed_where_gradients_are_as_small(untrained: Untrained) -> None:
    trained = untrained()
    shares = [
        epsilon_share(with_training(trained, adam_epsilon=epsilon))
        for epsilon in (1e-30, 1e-6, 1e-4, 1e9)
    ]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0


def test_adam_s_numbers_are_judged() -> None:
    def outcome(number: int, *trials: Trial, **observed: Measured) -> str:
        return judge(adam.EXPERIMENT, number, trials, **observed).outcome

    assert outcome(0, **{"half_0.98": 402.0, "half_0.999": 8108.0}) == "confirmed"
    assert outcome(0, **{"half_0.98": 402.0, "half_0.999": 402.0}) == "not confirmed"
    assert outcome(1, rescaling_error=1e-15) == "confirmed"
    assert outcome(1, rescaling_error=0.1) == "not confirmed"
    names = [adam.name_of(epsilon) for epsilon in (1e-9, 1e-8, 1e-6)]
    assert names == ["eps 1e-9, beta2 .98", "eps 1e-8", "eps 1e-6"]
    for share, verdict in ((0.9, "confirmed"), (0.1, "not confirmed")):
        shares = [
            trial(name, epsilon_share=x) for name, x in zip(names, (0, 0, share), strict=True)
        ]
        assert outcome(2, *shares) == verdict
    assert outcome(3, *(trial(name, 17) for name in names)) == "within noise"
    worse = [trial(names[0], 29), trial(names[1], 29), trial(names[2], 2)]
    assert outcome(3, *worse) == "confirmed"
    assert "intervals of 97.5%" in judge(adam.EXPERIMENT, 3, worse).seen.en
    paper = trial(names[0], 29, long_gradients=0.5)
    assert outcome(4, paper, trial("beta2 .999", 2)) == "confirmed"
    assert outcome(5, paper, trial("clipping", 2)) == "not confirmed"


def test_the_scale_multiplies_tokens_by_the_root_of_d_model_and_positions_by_nothing(
    untrained: Untrained,
) -> None:
    sizes = []
    for scaled in (True, False):
        trained = untrained(embedding_scale=scaled)
        sizes.append(input_sizes(trained.untrained(1), end_and_pad(trained.ids[0])))
    (tokens, positions), (unscaled, same) = sizes
    assert tokens / unscaled == pytest.approx(math.sqrt(64))
    assert positions == same == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("architecture", ["transformer", "recurrent"])
def test_the_embedding_gain_multiplies_the_first_embeddings_alone(architecture: str) -> None:
    def start(gain: float) -> dict[str, torch.Tensor]:
        sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), 17)
        config = build_config(
            {"model": {**sizes, "architecture": architecture, "d_model": 16, "num_heads": 2}},
            {"model": {"d_ff": 13, "embedding_gain": gain}},
        )
        torch.manual_seed(1)
        return {name: each.detach() for name, each in build_model(config.model).named_parameters()}

    plain, larger = start(1.0), start(4.0)
    for name in plain:
        factor = 4.0 if "token" in name else 1.0
        assert torch.equal(larger[name], plain[name] * factor), name


def test_an_embedding_gain_of_the_root_of_d_model_gives_variance_1() -> None:
    sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), 1009)
    config = build_config({"model": {**sizes, "d_model": 64, "d_ff": 7, "embedding_gain": 8.0}})
    model = build_model(config.model)
    assert model.output_weight.std().item() == pytest.approx(1.0, rel=0.02)


def test_first_weights_are_judged() -> None:
    def outcome(number: int, *trials: Trial) -> str:
        return judge(initialisation.EXPERIMENT, number, trials).outcome

    def start(name: str, size: float, loss: float) -> Trial:
        found = {"token_size": size, "position_size": math.sqrt(0.5), "first_loss": loss}
        return trial(name, 29, uniform_loss=3.0, **found)

    paper, unscaled = start("as the paper", 1.0, 3.5), start("no scale", 1 / 8, 3.5)
    unit = start("embeddings N(0, 1)", 8.0, 17.0)
    assert outcome(0, paper, unscaled, unit) == "confirmed"
    assert outcome(0, paper, start("no scale", 1.0, 3.5), unit) == "not confirmed"
    assert outcome(1, paper, unit) == "confirmed"
    assert outcome(1, paper, start("embeddings N(0, 1)", 8.0, 3.5)) == "not confirmed"
    others = [variant.name for variant in initialisation.EXPERIMENT.variants[1:]]
    for number, other in enumerate(others, start=2):
        assert outcome(number, paper, trial(other, 2)) == "confirmed"
        assert outcome(number, trial("as the paper", 2), trial(other, 29)) == "not confirmed"
