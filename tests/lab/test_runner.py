from __future__ import annotations

import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragoman.config import InputError, RunError
from dragoman.data.atomic import held_alone
from dragoman.lab import trained
from dragoman.lab.data import user_data
from dragoman.lab.experiment import (
    BrokenOff,
    Change,
    Experiment,
    Results,
    Text,
    Trial,
    Variant,
    holds,
)
from dragoman.lab.experiments import EXPERIMENTS
from dragoman.lab.runner import Plan, is_unfinished, run_experiment, stored_results


def ignore(trial: Trial) -> None:
    pass


def forbid(*arguments: Any, **options: Any) -> None:
    raise AssertionError("trained again")


@pytest.fixture
def diverging(toy: Experiment) -> Experiment:
    """The toy whose changed variant isn't finite any more after some steps."""
    settings = {**toy.settings, "training": {**toy.settings["training"], "clip_norm": 0.0}}
    wild = Variant("changed", Change("training.peak_learning_rate", 1e30))
    return dataclasses.replace(toy, settings=settings, steps=60, variants=(toy.base, wild))


def test_each_variant_has_each_seed_and_a_curve_to_the_last_step(
    toy: Experiment, tmp_path: Path
) -> None:
    told: list[Trial] = []
    found = run_experiment(toy, Plan(tmp_path, seeds=2), told.append)
    assert [(trial.variant, trial.seed) for trial in found.trials] == [
        ("base", 1),
        ("changed", 1),
        ("base", 2),
        ("changed", 2),
    ]
    for trial in found.trials:
        assert [step for step, _ in trial.curve] == [1, 2, 3, 4, 5]
        assert trial.measures["exact"] == sum(trial.items) / len(trial.items)
        assert trial in told
    assert found.observed == {"two": 2.0}
    assert not list((tmp_path / "toy").glob("*/"))  # no model is left


def test_several_processes_find_the_same_to_the_last_bit_and_in_the_same_order(
    toy: Experiment, fakes: ModuleType, tmp_path: Path
) -> None:
    toy = dataclasses.replace(toy, measure=fakes.measure)
    told: list[Trial] = []
    alone = run_experiment(toy, Plan(tmp_path / "alone", seeds=2), ignore)
    several = run_experiment(toy, Plan(tmp_path / "several", seeds=2, processes=2), told.append)
    assert several == alone
    for trial in several.trials:
        heard = [each for each in told if (each.variant, each.seed) == (trial.variant, trial.seed)]
        assert heard[-1] == trial
        assert [len(each.curve) for each in heard] == [1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_what_every_experiment_measures_can_be_sent_to_another_process(
    experiment: Experiment,
) -> None:
    if experiment.variants:
        pickle.dumps(experiment.measure)


def test_what_was_run_is_not_run_again_and_reads_the_same(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    monkeypatch.setattr(trained, "train", forbid)
    assert run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore) == first
    assert stored_results(toy, tmp_path) == first


@pytest.mark.parametrize("change", [{"version": 2}, {"quick_steps": 4}])
def test_what_has_changed_is_run_again(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    monkeypatch.setattr(trained, "train", forbid)
    with pytest.raises(AssertionError, match="trained again"):
        run_experiment(
            dataclasses.replace(toy, **change),  # type: ignore[arg-type]
            Plan(tmp_path, quick=True, seeds=1),
            ignore,
        )


def test_an_interrupted_trial_goes_on_and_ends_as_if_nothing_had_happened(
    toy: Experiment, tmp_path: Path
) -> None:
    def interrupt(trial: Trial) -> None:
        if trial.curve[-1][0] == 4 and trial.variant == "changed":
            raise KeyboardInterrupt

    plan = Plan(tmp_path / "broken", seeds=1)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, plan, interrupt)
    assert stored_results(toy, plan.folder) is None
    resumed = run_experiment(toy, plan, ignore)
    assert resumed == run_experiment(toy, Plan(tmp_path / "whole", seeds=1), ignore)


def test_a_run_that_breaks_off_is_a_result_which_no_claim_on_others_feels(
    diverging: Experiment, tmp_path: Path
) -> None:
    found = run_experiment(diverging, Plan(tmp_path, seeds=1), ignore)
    [on_base] = diverging.claims
    on_changed = dataclasses.replace(
        on_base, judge=lambda results: holds(results.mean("changed", "half") > 0, Text("", ""))
    )
    assert diverging.judge(on_base, found).outcome == "confirmed"
    verdict = diverging.judge(on_changed, found)
    assert verdict.outcome == "no result"
    assert "changed, seed 1: the gradient wasn't finite in 10 steps in a row" in verdict.seen.en


def test_a_trial_that_breaks_off_after_an_interruption_has_its_whole_curve(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trained.train

    def go_on(*arguments: Any, report: Callable[[Any], None], **options: Any) -> None:
        real(*arguments, **options)  # in an earlier process, of which nothing is heard
        report({"event": "start", "step": 5})
        report({"event": "warning", "step": 6})
        raise RunError("not finite")

    monkeypatch.setattr(trained, "train", go_on)
    for trial in run_experiment(toy, Plan(tmp_path, seeds=1), ignore).trials:
        assert trial.failed == "not finite"
        assert [step for step, _ in trial.curve] == [1, 2, 3, 4, 5]


def test_a_measure_that_trains_and_breaks_off_is_a_failed_trial(
    toy: Experiment, tmp_path: Path
) -> None:
    def measure(_: Any) -> dict[str, float]:
        raise BrokenOff("not finite")

    toy = dataclasses.replace(toy, measure=measure)
    found = run_experiment(toy, Plan(tmp_path, seeds=1), ignore)
    assert [trial.failed for trial in found.trials] == ["not finite"] * 2
    assert [len(trial.curve) for trial in found.trials] == [5, 5]


@pytest.mark.parametrize("begun", [0, 7])
def test_want_of_memory_before_the_first_step_is_no_result(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: int
) -> None:
    def starve(*arguments: Any, report: Callable[[Any], None], **options: Any) -> None:
        report({"event": "start", "step": begun})
        report({"event": "warning", "step": begun})
        raise RunError("not enough memory")

    monkeypatch.setattr(trained, "train", starve)
    with pytest.raises(RunError, match="not enough memory"):
        run_experiment(toy, Plan(tmp_path, seeds=1), ignore)
    assert stored_results(toy, tmp_path) is None


def test_a_claim_about_failures_is_judged_with_them(toy: Experiment) -> None:
    found = Results({}, [Trial(each.name, 1, [], failed="no luck") for each in toy.variants])
    claim = dataclasses.replace(
        toy.claims[0],
        judge=lambda results: holds(all(t.failed for t in results.of("base")), Text("", "")),
    )
    assert toy.judge(claim, found).outcome == "confirmed"


def test_a_text_is_thinned_out_whoever_gave_it(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    toy = dataclasses.replace(
        toy, thin_out=10, measure=lambda trained: {"half": float(len(trained.data.train))}
    )
    for data in (None, user_data((), (), [write_pairs(tmp_path / "p.tsv", 120)])):
        found = run_experiment(toy, Plan(tmp_path / str(len(seen)), seeds=1, data=data), ignore)
        seen += map(int, found.values("base", "half"))
    assert seen == [11, 11]


def test_what_is_made_for_a_user_s_text_takes_no_other_and_has_a_vocabulary_of_its_own(
    toy: Experiment, tmp_path: Path
) -> None:
    assert toy.data is not None
    data = dataclasses.replace(toy.data(), settings={"data": {"vocab_size": 310}})
    toy = dataclasses.replace(
        toy, measure=lambda trained: {"half": float(trained.config.data.vocab_size)}
    )
    own = dataclasses.replace(toy, data=None)
    with pytest.raises(InputError, match="no text is given, and this experiment brings none"):
        run_experiment(own, Plan(tmp_path, quick=True, seeds=1), ignore)
    assert not any(tmp_path.iterdir())
    plan = Plan(tmp_path, quick=True, seeds=1, data=data)
    sizes = [run_experiment(each, plan, ignore).mean("base", "half") for each in (toy, own)]
    assert sizes == [310.0, 300.0]


def test_results_that_tell_nothing_of_their_text_are_read(toy: Experiment, tmp_path: Path) -> None:
    found = run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    assert found.corpus is not None
    assert (found.corpus.train, found.corpus.test) == (101, 11)
    assert stored_results(toy, tmp_path) == found
    run = tmp_path / "toy" / "run.json"
    older = {k: v for k, v in json.loads(run.read_text("utf-8")).items() if k != "corpus"}
    run.write_text(json.dumps(older), "utf-8")
    assert stored_results(toy, tmp_path) == dataclasses.replace(found, corpus=None)


def test_variants_of_the_same_settings_keep_apart(toy: Experiment, tmp_path: Path) -> None:
    twin = Variant("twin", Change("model.residual", True))
    toy = dataclasses.replace(toy, variants=(*toy.variants, twin))
    found = run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    assert [trial.variant for trial in found.trials] == ["base", "changed", "twin"]
    assert found.trials[0].curve == found.trials[2].curve


def test_the_same_text_elsewhere_is_the_same_run(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_experiment(toy, Plan(tmp_path / "a", quick=True, seeds=1), ignore)
    (tmp_path / "a").rename(tmp_path / "b")
    monkeypatch.setattr(trained, "train", forbid)
    assert run_experiment(toy, Plan(tmp_path / "b", quick=True, seeds=1), ignore) == first


def test_two_do_not_run_an_experiment_in_one_folder(toy: Experiment, tmp_path: Path) -> None:
    plan = Plan(tmp_path)
    (tmp_path / toy.name).mkdir()
    with (
        held_alone(tmp_path / toy.name),
        pytest.raises(InputError, match="another process is at work there"),
    ):
        run_experiment(toy, plan, ignore)


def test_a_damaged_result_is_named(toy: Experiment, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "run.json").write_text("{", "utf-8")
    with pytest.raises(InputError, match=r"run\.json: not sound JSON"):
        stored_results(toy, tmp_path)


def test_a_longer_run_that_was_not_ended_does_not_hide_the_shorter_one(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_unfinished(toy, tmp_path)
    quick = run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    assert not is_unfinished(toy, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(trained, "train", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(toy, Plan(tmp_path, seeds=1), ignore)
    assert is_unfinished(toy, tmp_path)
    assert stored_results(toy, tmp_path) == quick
    whole = run_experiment(toy, Plan(tmp_path, seeds=1), ignore)
    assert not is_unfinished(toy, tmp_path)
    assert stored_results(toy, tmp_path) == whole


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_results_of_other_variants_are_not_read(toy: Experiment, tmp_path: Path) -> None:
    run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    renamed = dataclasses.replace(toy, variants=(toy.base, Variant("new", toy.variants[1].change)))
    assert stored_results(renamed, tmp_path) is None
    assert is_unfinished(renamed, tmp_path)


def test_results_of_another_version_are_not_read(toy: Experiment, tmp_path: Path) -> None:
    run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    newer = dataclasses.replace(toy, version=2)
    assert stored_results(newer, tmp_path) is None
    assert is_unfinished(newer, tmp_path)


def test_a_laboratory_can_be_moved_in_the_middle_of_a_trial(
    toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trained.train

    def stop(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trained, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(toy, Plan(tmp_path / "here", seeds=1), ignore)
    (tmp_path / "here").rename(tmp_path / "there")
    found = run_experiment(toy, Plan(tmp_path / "there", seeds=1), ignore)
    assert [trial.failed for trial in found.trials] == ["", ""]


def test_verdicts_are_computed(toy: Experiment, tmp_path: Path) -> None:
    found = run_experiment(toy, Plan(tmp_path, quick=True, seeds=1), ignore)
    assert toy.judge(toy.claims[0], found).outcome == "confirmed"
    for trial in found.trials:
        trial.measures["half"] = math.nan
    assert toy.judge(toy.claims[0], found).outcome == "not confirmed"


def write_pairs(path: Path, count: int) -> str:
    path.write_text("".join(f"s {n}\tt {n}\n" for n in range(count)), "utf-8")
    return str(path)


@pytest.mark.parametrize("count", [100, 5003])
def test_a_user_s_text_is_split_without_overlap(tmp_path: Path, count: int) -> None:
    data = user_data((), (), [write_pairs(tmp_path / "p.tsv", count)])
    assert len(data.test) == min(200, count // 10)
    assert not set(data.train) & set(data.test)
    assert len(data.train) + len(data.test) == count


def test_long_lines_are_not_tested_with(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "p.tsv", 120)
    long = "ü" * 501
    path_of_all = tmp_path / "all.tsv"
    lines = f"{long}\ta\nb\t{long}\n" + Path(path).read_text("utf-8")
    path_of_all.write_text(lines, "utf-8")
    data = user_data((), (), [str(path_of_all)])
    assert len(data.test) == 12
    assert not [pair for pair in data.test if long in pair]
    assert len([pair for pair in data.train if long in pair]) == 2


def test_a_text_of_many_characters_gets_as_large_a_vocabulary(tmp_path: Path) -> None:
    characters = [chr(0x4E00 + n) for n in range(3001)]
    lines = (f"s {n}\t{character}\n" for n, character in enumerate(characters))
    (tmp_path / "p.tsv").write_text("".join(lines), "utf-8")
    data = user_data((), (), [str(tmp_path / "p.tsv")], "zh")
    assert data.settings["data"]["vocab_size"] >= 2 * 3001
    assert data.settings["data"]["target_language"] == "zh"


def test_too_little_text_says_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="99 distinct pairs, accepted is 100 or more"):
        user_data((), (), [write_pairs(tmp_path / "p.tsv", 99)])
