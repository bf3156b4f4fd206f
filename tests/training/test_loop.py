from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.checkpoint import ModelFolder
from dragoman.config import InputError
from dragoman.decoding.loader import load
from dragoman.settings import build_config, read_settings
from dragoman.training import loop
from dragoman.training.metrics import read_metrics

from .runs import PAIRS, FinishedRun, run_and_listen, toy_run

KEYS = {
    "data": "report counts validation_pairs validation_long held_out source_vocab_size "
    "target_vocab_size",
    "start": "step parameters pairs batches precision device processes",
    "log": "step epoch loss nll learning_rate gradient_norm tokens_per_second waiting seconds "
    "seconds_left",
    "validation": "step weights loss nll perplexity accuracy bleu chrf signature samples seconds",
    "end": "step reason weights seconds",
}


def test_every_event_has_its_documented_keys_and_no_other(finished: FinishedRun) -> None:
    assert {event["event"] for event in finished.events} == KEYS.keys()
    for event in finished.events:
        assert event.keys() == {"event", *KEYS[event["event"]].split()}


def test_metrics_hold_what_was_reported_row_by_row(finished: FinishedRun) -> None:
    assert read_metrics(finished.path / "run" / "metrics.jsonl") == finished.events[1:]


def test_logs_come_every_few_steps_with_the_rate_of_the_schedule(finished: FinishedRun) -> None:
    logs = finished.of("log")
    assert [log["step"] for log in logs] == [3, 6]
    assert all(log["learning_rate"] == 1e-3 for log in logs)
    assert logs[1]["nll"] < logs[0]["nll"]
    assert all(log["loss"] > 0 and log["tokens_per_second"] > 0 for log in logs)


def test_validations_come_every_few_steps_at_the_end_and_for_the_average(
    finished: FinishedRun,
) -> None:
    found = [(each["step"], each["weights"]) for each in finished.of("validation")]
    assert found == [(5, "latest"), (7, "latest"), (7, "average")]
    first = finished.of("validation")[0]
    assert first["perplexity"] == pytest.approx(np.exp(first["nll"]))
    assert first["loss"] != first["nll"]
    assert [each["source"] for each in first["samples"]] == [source for source, _ in PAIRS[:3]]


def test_the_folder_holds_all_that_its_contract_names(finished: FinishedRun) -> None:
    names = {path.name for path in (finished.path).iterdir()}
    assert names == {"config.toml", "weights.safetensors", "tokenizer.model", "card.md", "run"}
    run = {path.name for path in (finished.path / "run").iterdir()}
    assert run == {"data", "data.json", "environment.json", "metrics.jsonl", "checkpoints"}
    config = build_config(read_settings(finished.path / "config.toml"))
    assert config.model.source_vocab_size == finished.events[0]["source_vocab_size"] != 37000
    assert config == ModelFolder(finished.path).read_config()


def test_a_model_translates_without_its_run(finished: FinishedRun, tmp_path: Path) -> None:
    copy = shutil.copytree(finished.path, tmp_path / "m", ignore=lambda *_: ["run"])
    [translation] = load(copy, device="cpu").translate([PAIRS[0][0]])
    assert np.isfinite(translation.score)


def test_an_existing_folder_is_never_overwritten(finished: FinishedRun, tmp_path: Path) -> None:
    weights = (finished.path / "weights.safetensors").read_bytes()
    with pytest.raises(InputError, match="exists already") as caught:
        run_and_listen(finished.path, toy_run(tmp_path))
    assert caught.value.hint is not None
    assert "--resume" in caught.value.hint
    assert (finished.path / "weights.safetensors").read_bytes() == weights


def test_the_last_checkpoints_and_the_best_are_kept(tmp_path: Path) -> None:
    def kept(**training: Any) -> list[int]:
        path = tmp_path / str(training["peak_learning_rate"])
        settings = {"max_steps": 5, "validate_every": 1, "best_by": "loss", **training}
        run_and_listen(path, toy_run(tmp_path, training={**settings, "keep_checkpoints": 2}))
        return [step for step, _ in ModelFolder(path).checkpoints()]

    assert kept(peak_learning_rate=1e-3) == [4, 5]
    assert kept(peak_learning_rate=1e-30) == [1, 4, 5]  # nothing is better than the first


def test_training_stops_where_no_validation_is_better_for_as_long_as_patience_lasts(
    tmp_path: Path,
) -> None:
    training = {"validate_every": 1, "patience": 2, "best_by": "loss", "peak_learning_rate": 1e-30}
    *_, end = run_and_listen(tmp_path / "m", toy_run(tmp_path, training=training))
    assert end["step"] == 3
    assert end["reason"] == "no better loss for 2 validations, training.patience is 2"


def test_training_stops_when_its_hours_are_over(tmp_path: Path) -> None:
    config = toy_run(tmp_path, training={"max_hours": 1e-9})
    *_, end = run_and_listen(tmp_path / "m", config)
    assert end["reason"] == "reached training.max_hours (1e-09)"
    assert ModelFolder(tmp_path / "m").has_weights()


@pytest.mark.parametrize(("warmup", "warned"), [(10**12, True), (100, False)])
def test_a_warm_up_that_takes_longer_than_the_hours_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warmup: int, warned: bool
) -> None:
    monkeypatch.setattr(loop, "_SETTLED", 5)
    training = {"max_hours": 5.0, "warmup_steps": warmup, "max_steps": 9}
    events = run_and_listen(tmp_path / "m", toy_run(tmp_path, training=training))
    told = [each["step"] for each in events if "warmup_steps is" in each.get("message", "")]
    assert told == ([6] if warned else [])


def test_a_model_can_start_from_anothers_weights_and_tokenizer(
    finished: FinishedRun, tmp_path: Path
) -> None:
    training = {"max_steps": 1, "peak_learning_rate": 1e-30}
    config = toy_run(tmp_path, PAIRS[50:], training=training)
    run_and_listen(tmp_path / "child", config, from_model=finished.path)
    parent, child = ModelFolder(finished.path), ModelFolder(tmp_path / "child")
    assert child.read_tokenizers().fingerprint == parent.read_tokenizers().fingerprint
    weights = child.read_weights()
    assert all(np.array_equal(weights[key], each) for key, each in parent.read_weights().items())


def test_a_model_of_another_size_can_not_start_from_it(
    finished: FinishedRun, tmp_path: Path
) -> None:
    config = toy_run(tmp_path, model={"d_ff": 17})
    with pytest.raises(InputError, match=r"feed_forward\.in_proj\.weight has the shape"):
        run_and_listen(tmp_path / "child", config, from_model=finished.path)
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"batch_tokens": 7}}, "longest sentence has 8 tokens, .*at least 8"),
        ({"data": {"max_length": 2}}, "no pair is left of the 151 read: too long 151"),
        (
            {"model": {"positions": "learned", "max_positions": 7}},
            "longest training sentence has 8 tokens, model.max_positions is 7, .*at least 8",
        ),
        ({"data": {"valid_pairs": ["absent.tsv"]}}, "absent.tsv"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    tmp_path: Path, changes: dict[str, dict[str, Any]], message: str
) -> None:
    config = toy_run(tmp_path, **changes)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message) as caught:
        run_and_listen(tmp_path / "m", config)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_files_of_unequal_length_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("a b\nc d\n", "utf-8")
    (tmp_path / "target").write_text("a b\nc d\ne f\n", "utf-8")
    config = toy_run(tmp_path)
    files = {"source": (str(tmp_path / "source"),), "target": (str(tmp_path / "target"),)}
    data = dataclasses.replace(config.data, pairs=(), **files)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"2 .*3"):
        run_and_listen(tmp_path / "m", dataclasses.replace(config, data=data))
    assert sorted(tmp_path.iterdir()) == before
