"""What the experiments on smoothing, dropout, search, averaging and size measure and conclude."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from dragoman.checkpoint import ModelFolder, average_weights
from dragoman.config import PAD, RunError
from dragoman.decoding.translator import Translation
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.experiment import BrokenOff, Experiment, Measured, Results, Trial
from dragoman.lab.experiments import averaging, beam, dropout, label_smoothing, size
from dragoman.lab.scores import Predictions, bleu, bleu_parts, predict, translate
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.loss import training_loss
from dragoman.settings import build_config
from dragoman.training.loop import train

Untrained = Callable[..., Trained]
Levels = tuple[float, float, float]
SEEDS = (1, 2, 3)


def shares(value: float, count: int = 20) -> dict[str, float]:
    """Returns parts that differ, but by the same in all variants."""
    return {str(n): value + (n % 5) / 8 for n in range(count)}


def make_results(found: Mapping[str, Mapping[str, Measured]]) -> Results:
    """Returns results in which every seed of a variant has the same measures."""
    return Results(
        {}, [Trial(name, seed, [], dict(each)) for name, each in found.items() for seed in SEEDS]
    )


def outcomes(experiment: Experiment, results: Results) -> list[str]:
    return [experiment.judge(claim, results).outcome for claim in experiment.claims]


def predictions(confidence: list[float], correct: list[bool], lengths: list[int]) -> Predictions:
    sure = torch.tensor(confidence, dtype=torch.float64)
    return Predictions(-sure.log(), sure, torch.tensor(correct), lengths)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model that has trained for twenty steps, with a checkpoint after each."""
    path = tmp_path_factory.mktemp("lab")
    data = task_data("reverse", (2, 4), alphabet=7, count=101, held_out=3)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 12, "num_heads": 3}
    every_step = dict.fromkeys(("validate_every", "validation_lines", "average_last"), 1)
    budget = {**every_step, "max_steps": 20, "keep_checkpoints": 20}
    config = build_config(SMALL, data.write(path), {"model": sizes, "training": budget})
    train(path / "model", config, device="cpu")
    return Trained.open(ModelFolder(path / "model"), data)


def test_predictions_agree_with_the_loss_and_the_accuracy_of_training(untrained: Untrained) -> None:
    fresh = untrained()
    source, target = (end_and_pad(side) for side in fresh.ids)
    sums = training_loss(fresh.model, source, target, 0.0)
    found = predict(fresh.model, fresh, fresh.data.test)
    assert sum(found.lengths) == int((target != PAD).sum())
    assert found.nll.sum().item() == pytest.approx(sums.nll.item(), rel=1e-5)
    assert found.correct.double().mean().item() == fresh.forced_accuracy()
    assert bool((found.confidence >= (-found.nll).exp()).all())


def test_the_mean_of_the_sentences_shares_is_the_mean_over_tokens() -> None:
    found = predictions([0.9, 0.5, 0.3, 0.2, 0.7], [True, False, True, False, True], [2, 3])
    values = torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0])
    assert np.mean(list(found.shares(values).values())) == pytest.approx(28 / 5)


def test_the_calibration_error_is_weighted_by_bin() -> None:
    # bin 9: sure at 0.95, right 3 of 4 times; bin 2: sure at 0.25, right both times
    found = predictions(
        [0.95, 0.95, 0.25, 0.95, 0.25, 0.95], [True, False, True, True, True, True], [1, 2, 3]
    )
    error = np.mean(list(found.calibration_shares().values()))
    assert error == pytest.approx(4 / 6 * 0.20 + 2 / 6 * 0.75)
    assert found.reliability() == {"25": 1.0, "95": 0.75}


def test_a_model_as_sure_as_it_is_right_has_no_calibration_error() -> None:
    found = predictions([0.5] * 6 + [1.0], [True, False] * 3 + [True], [3, 4])
    assert np.mean(list(found.calibration_shares().values())) == pytest.approx(0.0)
    assert found.reliability() == {"55": 0.5, "95": 1.0}


def test_right_translations_have_a_bleu_of_100_in_all_parts(untrained: Untrained) -> None:
    fresh = untrained()
    long = [(source, "a b c d e") for source, _ in fresh.data.test]
    told = dataclasses.replace(fresh, data=dataclasses.replace(fresh.data, test=long))
    right = [Translation(target, 0.0, 0.0, []) for _, target in long]
    wrong = [Translation("f g h i j", 0.0, 0.0, []), *right[1:]]
    parts = bleu_parts(told, wrong)
    assert bleu(told, right) == pytest.approx(100)
    assert list(parts) == [str(n) for n in range(11)]
    assert parts["0"] < 1
    assert all(parts[str(n)] == pytest.approx(100) for n in range(1, 11))


def test_thinning_out_leaves_the_test_text_alone(untrained: Untrained) -> None:
    data = untrained().data
    less = data.thin_out(10)
    assert less.test == data.test
    assert list(less.train) == [data.train[n] for n in range(0, 101, 10)]


def test_a_higher_length_penalty_shortens_no_output(untrained: Untrained) -> None:
    fresh = untrained()
    few = dataclasses.replace(fresh.data, test=fresh.data.test[:5])
    fresh, model = dataclasses.replace(fresh, data=few), fresh.in_float64()
    for form in ("gnmt", "power"):
        found = [
            translate(model, fresh, beam_size=3, length_penalty=penalty, length_penalty_form=form)
            for penalty in (-2.0, 0.0, 0.7, 1.0, 3.0)
        ]
        assert beam.count_shortened(found) == 0
        assert beam.count_shortened(found[::-1]) > 0


def test_outputs_that_get_shorter_are_counted_sentence_by_sentence() -> None:
    def outputs(*lengths: int) -> list[Translation]:
        return [Translation("x" * length, 0.0, 0.0, ["x"] * length) for length in lengths]

    assert beam.count_shortened([outputs(2, 5), outputs(3, 4), outputs(2, 3)]) == 3
    assert beam.empty_share(outputs(0, 3, 0, 5)) == 0.5


def test_the_average_of_one_checkpoint_is_the_last_and_of_more_their_mean(trained: Trained) -> None:
    steps = [trained.at(step).to_arrays() for step in (18, 19, 20)]
    last, three = (averaging.average(trained, count).to_arrays() for count in (1, 3))
    mean = average_weights(steps)
    for name, values in steps[-1].items():
        assert np.array_equal(last[name], values)
        assert np.array_equal(three[name], mean[name])
        assert np.allclose(mean[name], np.mean([step[name] for step in steps], axis=0), atol=1e-6)


def test_a_model_of_less_text_has_the_same_vocabulary_and_test_text(trained: Trained) -> None:
    less = size.train_on_less(trained, 10)
    assert less.tokenizers.fingerprint == trained.tokenizers.fingerprint
    assert less.data.test == trained.data.test
    assert len(less.data.train) == 11
    assert less.config.model == trained.config.model
    assert less.config.training == trained.config.training


def test_the_last_step_counts_though_another_was_better(trained: Trained) -> None:
    folder, last = ModelFolder(trained.folder), trained.at(20).to_arrays()
    folder.write_weights(trained.at(1).to_arrays())
    for name, values in Trained.open(folder, trained.data).model.to_arrays().items():
        assert np.array_equal(last[name], values)


def test_a_model_of_less_text_that_breaks_off_says_so(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*arguments: Any, report: Callable[[Any], None], **options: Any) -> None:
        report({"event": "start", "step": 0})
        report({"event": "warning", "step": 1})
        raise RunError("not finite: batch 1")

    monkeypatch.setattr("dragoman.lab.trained.train", diverge)
    with pytest.raises(BrokenOff, match=r"^not finite$"):
        size.train_on_less(trained, 7)


UP, DOWN, LEVEL = (1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (2.0, 2.0, 2.0)
"""A measure of three variants, in their order."""


@pytest.mark.parametrize(
    ("nll", "bleu", "sureness", "calibration", "expected"),
    [
        (UP, UP, DOWN, DOWN, ["confirmed"] * 4),
        (DOWN, DOWN, UP, UP, ["not confirmed"] * 4),
        (LEVEL, LEVEL, LEVEL, LEVEL, ["within noise"] * 4),
    ],
)
def test_smoothing_costs_perplexity_and_is_to_win_bleu_and_calibration(
    nll: Levels, bleu: Levels, sureness: Levels, calibration: Levels, expected: list[str]
) -> None:
    found: dict[str, dict[str, Measured]] = {
        variant.name: {
            "perplexity": nll[at],
            "bleu": 10 + bleu[at],
            "overconfidence": sureness[at],
            "calibration_error": calibration[at],
            "nll_shares": shares(nll[at]),
            "bleu_parts": shares(bleu[at]),
            "overconfidence_shares": shares(sureness[at]),
            "calibration_shares": shares(calibration[at]),
        }
        for at, variant in enumerate(label_smoothing.EXPERIMENT.variants)
    }
    assert outcomes(label_smoothing.EXPERIMENT, make_results(found)) == expected


@pytest.mark.parametrize("experiment", [beam, averaging, label_smoothing, size])
def test_no_bleu_is_compared_where_hardly_a_word_is_right(experiment: ModuleType) -> None:
    names = [variant.name for variant in experiment.EXPERIMENT.variants]
    measures: dict[str, Measured] = defaultdict(lambda: {str(n): 0.0 for n in range(80)})
    numbers = ("bleu", "bleu_all", "bleu_little", "bleu_1", "bleu_5", "bleu_20")
    measures |= dict.fromkeys(numbers, 4.9)
    results = Results({}, [Trial(name, seed, [], measures) for name in names for seed in SEEDS])
    for claim in experiment.EXPERIMENT.claims:
        if "BLEU" in claim.prediction.en:
            assert experiment.EXPERIMENT.judge(claim, results).outcome == "no result"


def test_one_step_that_is_clearly_the_wrong_way_refutes_all() -> None:
    for levels, expected in (((3, 3, 2), "within noise"), ((3, 3, 4), "not confirmed")):
        found: dict[str, dict[str, Measured]] = {
            variant.name: {"overconfidence": level, "overconfidence_shares": shares(level)}
            for variant, level in zip(label_smoothing.EXPERIMENT.variants, levels, strict=True)
        }
        [claim] = [
            each for each in label_smoothing.EXPERIMENT.claims if "less sure" in each.statement.en
        ]
        verdict = label_smoothing.EXPERIMENT.judge(claim, make_results(found))
        assert verdict.outcome == expected


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((5, 4, 1, 2, 3), ["confirmed"] * 6),
        ((1, 2, 4, 3, 5), ["not confirmed"] * 6),
        ((1, 1, 1, 1, 1), ["within noise"] * 6),
    ],
)
def test_dropout_is_judged_by_the_test_loss_at_the_end(
    losses: tuple[float, ...], expected: list[str]
) -> None:
    found: dict[str, dict[str, Measured]] = {
        variant.name: {
            "test_loss": loss,
            "gap": loss - 1,
            "test_shares": shares(loss),
            "gap_shares": shares(loss - 1),
        }
        for variant, loss in zip(dropout.EXPERIMENT.variants, losses, strict=True)
    }
    assert outcomes(dropout.EXPERIMENT, make_results(found)) == expected


@pytest.mark.parametrize(
    ("greedy", "plain", "paper", "widest", "lost", "shortened", "expected"),
    [
        (1, 2, 3, 1, 1, 0, ["confirmed"] * 5),
        (3, 2, 1, 3, -1, 1, ["not confirmed"] * 5),
        (2, 2, 2, 2, 0, 0, [*["within noise"] * 4, "confirmed"]),
    ],
)
def test_a_search_is_judged_by_parts_and_lengths(
    greedy: float,
    plain: float,
    paper: float,
    widest: float,
    lost: float,
    shortened: float,
    expected: list[str],
) -> None:
    by_beam, by_penalty = {"1": 10.0, "4": 10.0, "64": 10.0}, {"0": 1.0, "2": 1.5}
    found: dict[str, Measured] = {
        "bleu_by_beam": by_beam,
        "paper_bleu_by_beam": by_beam,
        "ratio_by_beam": by_beam,
        "empty_by_beam": by_beam,
        "ratio_by_gnmt": by_penalty,
        "ratio_by_power": by_penalty,
        "shortened": shortened,
        "parts_greedy": shares(greedy),
        "parts_plain": shares(plain),
        "parts_paper": shares(paper),
        "parts_widest": shares(widest),
        "lengths_plain": shares(5),
        "lengths_widest": shares(5 - lost),
    }
    assert outcomes(beam.EXPERIMENT, make_results({"base": found})) == expected


@pytest.mark.parametrize(
    ("loss", "bleu", "expected"),
    [
        (DOWN, UP, ["confirmed"] * 3),
        (UP, DOWN, ["not confirmed"] * 3),
        (LEVEL, LEVEL, ["within noise"] * 3),
    ],
)
def test_averages_are_judged_against_the_last_and_against_fewer(
    loss: Levels, bleu: Levels, expected: list[str]
) -> None:
    found: dict[str, Measured] = {}
    for at, count in enumerate((1, 5, 20)):
        found |= {f"loss_{count}": loss[at], f"loss_shares_{count}": shares(loss[at])}
        found |= {f"bleu_{count}": 10 + bleu[at], f"bleu_parts_{count}": shares(bleu[at])}
    assert outcomes(averaging.EXPERIMENT, make_results({"base": found})) == expected


@pytest.mark.parametrize(
    ("everything", "little", "expected"),
    [
        ((5, 4, 6), (2, 1, 3), ["confirmed", "within noise", "confirmed"]),
        ((5, 4, 9), (2, 1, 3), ["confirmed", "confirmed", "confirmed"]),
        ((5, 6, 4), (7, 2, 9), ["not confirmed"] * 3),
    ],
)
def test_sizes_are_judged_on_all_of_the_text_and_on_a_tenth(
    everything: Levels, little: Levels, expected: list[str]
) -> None:
    found: dict[str, dict[str, Measured]] = {
        variant.name: {
            "bleu_all": everything[at],
            "bleu_little": little[at],
            "parts_all": shares(everything[at]),
            "parts_little": shares(little[at]),
        }
        for at, variant in enumerate(size.EXPERIMENT.variants)
    }
    assert outcomes(size.EXPERIMENT, make_results(found)) == expected


@pytest.mark.parametrize("module", [label_smoothing, dropout, beam, averaging, size])
def test_everything_that_the_report_shows_is_measured(module: ModuleType, trained: Trained) -> None:
    experiment: Experiment = module.EXPERIMENT
    measured = {**experiment.measure(trained), "exact": 0.0}
    for measure in experiment.measures:
        assert isinstance(measured[measure.name], dict if measure.x else float)
    json.dumps(measured, allow_nan=False)
