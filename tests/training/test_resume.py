from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.checkpoint import Checkpoint, ModelFolder
from dragoman.config import Config, InputError
from dragoman.kernels.process import product_route
from dragoman.training import computing
from dragoman.training.loop import train
from dragoman.training.metrics import Event, read_metrics

from .runs import run_and_listen, toy_run

TIMES = ("seconds", "seconds_left", "tokens_per_second", "waiting", "metrics_bytes")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


def config_of(place: Path, max_steps: int = 20) -> Config:
    training = {"accumulation": 2, "label_smoothing": 0.1, "max_steps": max_steps}
    dropout = dict.fromkeys(("dropout", "attention_dropout", "feed_forward_dropout"), 0.2)
    return toy_run(place, training=training, model=dropout)


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A run of 20 steps in one sitting."""
    run_and_listen(place / "whole", config_of(place))
    return place / "whole"


def last(path: Path) -> Checkpoint:
    folder = ModelFolder(path)
    return folder.read_checkpoint(folder.checkpoints()[-1][1])


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: without_times(value) if isinstance(value, dict) else value
        for key, value in row.items()
        if key not in TIMES
    }


def told(path: Path) -> list[Event]:
    events = read_metrics(path / "run" / "metrics.jsonl")
    return [without_times(each) for each in events if each["event"] in ("log", "validation")]


def assert_equal_to_the_last_bit(path: Path, whole: Path) -> None:
    ours, theirs = last(path), last(whole)
    for mine, other in ((ours.weights, theirs.weights), (ours.optimizer, theirs.optimizer)):
        assert mine.keys() == other.keys()
        assert all(np.array_equal(mine[name], other[name]) for name in mine)
    assert without_times(ours.state) == without_times(theirs.state)
    assert told(path) == told(whole)
    weights = (ModelFolder(each).path / "weights.safetensors" for each in (path, whole))
    first, second = (each.read_bytes() for each in weights)
    assert first == second


def test_the_tested_run_ends_inside_a_later_epoch(whole: Path) -> None:
    start, *_ = read_metrics(whole / "run" / "metrics.jsonl")
    state = last(whole).state
    assert state["epoch"] >= 1
    assert 0 < state["position"] < start["batches"]


def test_ten_steps_and_ten_more_are_twenty_steps_bit_for_bit(place: Path, whole: Path) -> None:
    run_and_listen(place / "halves", config_of(place, max_steps=10))
    run_and_listen(place / "halves", config_of(place), resume=True)
    assert_equal_to_the_last_bit(place / "halves", whole)


@pytest.mark.parametrize("killed_at", [3, 18])
def test_a_run_killed_at_any_step_goes_on_from_its_last_checkpoint(
    place: Path, whole: Path, killed_at: int
) -> None:
    path = place / f"killed-at-{killed_at}"
    with pytest.raises(KeyboardInterrupt):
        run_and_listen(path, config_of(place), stop_at=killed_at)
    run_and_listen(path, config_of(place), resume=True)
    assert_equal_to_the_last_bit(path, whole)


@pytest.mark.parametrize("max_steps", [5, 7])
def test_resume_of_a_finished_run_changes_nothing(tmp_path: Path, max_steps: int) -> None:
    config = toy_run(tmp_path, training={"max_steps": max_steps})
    run_and_listen(tmp_path / "m", config)
    weights, state = (
        (tmp_path / "m" / "weights.safetensors").read_bytes(),
        last(tmp_path / "m").state,
    )
    rows = told(tmp_path / "m")
    events = run_and_listen(tmp_path / "m", config, resume=True)
    assert [each["event"] for each in events] == ["start", "validation", "end"]
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == weights
    assert last(tmp_path / "m").state == state
    assert told(tmp_path / "m") == rows


def test_resume_of_a_finished_run_leaves_an_average_of_the_users_own(tmp_path: Path) -> None:
    config = toy_run(tmp_path, training={"max_steps": 6, "validate_every": 2, "average_last": 2})
    run_and_listen(tmp_path / "m", config)
    folder = ModelFolder(tmp_path / "m")
    folder.write_weights(folder.average_last(3))
    folder.amend_card("The weights were replaced.")
    files = [tmp_path / "m" / name for name in ("weights.safetensors", "card.md")]
    before = [file.read_bytes() for file in files]
    run_and_listen(tmp_path / "m", config, resume=True)
    assert [file.read_bytes() for file in files] == before


def test_a_card_goes_with_the_weights_that_it_describes(tmp_path: Path) -> None:
    training = {"validate_every": 2, "best_by": "loss"}
    run_and_listen(tmp_path / "m", toy_run(tmp_path, training={**training, "max_steps": 4}))
    folder, weights = ModelFolder(tmp_path / "m"), tmp_path / "m" / "weights.safetensors"
    described = weights.read_bytes()
    seen = []

    def listen(event: Event) -> None:
        seen.append((folder.has_card(), weights.read_bytes() == described))

    config = toy_run(tmp_path, training={**training, "max_steps": 8})
    train(tmp_path / "m", config, resume=True, device="cpu", report=listen)
    assert (False, False) in seen  # it got better
    assert all(kept or not card for card, kept in seen)
    assert "8 steps" in (tmp_path / "m" / "card.md").read_text("utf-8")


def test_resume_where_there_is_no_model_starts_one(tmp_path: Path) -> None:
    run_and_listen(tmp_path / "new", toy_run(tmp_path, training={"max_steps": 1}), resume=True)
    assert ModelFolder(tmp_path / "new").has_weights()


def test_resume_with_another_setting_names_it_and_both_values(place: Path, whole: Path) -> None:
    other = toy_run(place, model={"d_ff": 17})
    with pytest.raises(InputError, match=r"model\.d_ff is 17, but .* was started with 13"):
        run_and_listen(whole, other, resume=True)


def test_a_run_with_a_tokenizer_for_each_side_can_be_resumed(tmp_path: Path) -> None:
    data = {"joint_vocabulary": False}
    run_and_listen(tmp_path / "m", toy_run(tmp_path, data=data, training={"max_steps": 2}))
    events = run_and_listen(tmp_path / "m", toy_run(tmp_path, data=data), resume=True)
    assert events[-1]["step"] == 7
    assert ModelFolder(tmp_path / "m").read_config().model.tie == "target-output"


def damage(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    file = path / "run" / name
    file.write_bytes(change(file.read_bytes()))


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "no state": ("checkpoints/step-5/state.json", lambda _: b"{}", "checkpoint is damaged"),
    "a list": ("checkpoints/step-5/state.json", lambda _: b"[]", "damaged|not a sound"),
    "a negative epoch": (
        "checkpoints/step-5/state.json",
        lambda text: re.sub(rb'"epoch": \d+', b'"epoch": -1', text),
        r"epoch is -1",
    ),
    "a negative step": (
        "checkpoints/step-5/state.json",
        lambda text: re.sub(rb'"step": 5', b'"step": -2', text),
        r"step is -2",
    ),
    "a word for a score": (
        "checkpoints/step-5/state.json",
        lambda text: re.sub(rb'"best_score": [-.e0-9]+', b'"best_score": "x"', text),
        r"best_score is 'x'",
    ),
    "a number for a list": (
        "checkpoints/step-5/state.json",
        lambda text: re.sub(rb'"skipped_in_row": \[\]', b'"skipped_in_row": 5', text),
        r"skipped_in_row is 5",
    ),
    "a word": (
        "checkpoints/step-5/state.json",
        lambda text: text.replace(b'"step": 5', b'"step": "x"'),
        "step is 'x'",
    ),
    "a moment of another name": (
        "checkpoints/step-5/optimizer.safetensors",
        lambda text: text.replace(b"q_proj.weight/exp_avg_sq", b"q_proj.weight/exp_avg_xx"),
        "not what state.json was written with",
    ),
    "no lengths": ("data/training/lengths.npy", lambda _: b"", "encoded text is damaged"),
    "lengths of zero": (
        "data/training/lengths.npy",
        lambda text: text[:128] + bytes(len(text) - 128),
        "encoded text is damaged",
    ),
    "ids beyond the vocabulary": (
        "data/training/tokens.bin",
        lambda text: b"\xff" * len(text),
        "training: the encoded text is damaged: id 65535, the vocabulary has",
    ),
    "zeros, as a crash may leave them": (
        "data/training/tokens.bin",
        lambda text: bytes(len(text)),
        "training: the encoded text is damaged: sentences don't end",
    ),
    "validation beyond the vocabulary": (
        "data/validation/tokens.bin",
        lambda text: b"\xff" * len(text),
        "validation: the encoded text is damaged: id 65535",
    ),
    "a format that is no number": (
        "data/training/encoded.json",
        lambda text: re.sub(rb'"format_version": \d+', b'"format_version": "x"', text),
        "encoded text is damaged",
    ),
    "tokens that are no number": (
        "data/training/encoded.json",
        lambda text: re.sub(rb'"tokens": \d+', b'"tokens": null', text),
        "encoded text is damaged",
    ),
    "metrics of noise": ("metrics.jsonl", lambda text: b"\xff" * len(text), "1: not an event"),
    "metrics cut short": ("metrics.jsonl", lambda text: text[:99], "it should have"),
    "a summary of noise": ("data.json", lambda _: b"\x80", "data.json: damaged"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_run_is_refused_before_its_first_step(
    finished_at_five: Path, tmp_path: Path, case: str
) -> None:
    copy = shutil.copytree(finished_at_five, tmp_path / "m")
    name, change, message = DAMAGES[case]
    damage(copy, name, change)
    config = ModelFolder(copy).read_config()
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, max_steps=9))
    with pytest.raises(InputError, match=message):
        run_and_listen(copy, config, resume=True)


@pytest.fixture(scope="module")
def finished_at_five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("five")
    run_and_listen(folder / "m", toy_run(folder, training={"max_steps": 5}))
    return folder / "m"


def test_a_file_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    run_and_listen(tmp_path / "m", toy_run(tmp_path, training={"max_steps": 10}))
    (_, earlier), (_, later) = ModelFolder(tmp_path / "m").checkpoints()
    for name in ("optimizer.safetensors", "weights.safetensors"):
        own = (later / name).read_bytes()
        shutil.copy(earlier / name, later)
        with pytest.raises(
            InputError, match=rf"{name}: not what state\.json was written with"
        ) as caught:
            run_and_listen(tmp_path / "m", toy_run(tmp_path), resume=True)
        assert "remove that checkpoint's folder" in (caught.value.hint or "")
        (later / name).write_bytes(own)


def test_the_state_of_an_older_version_has_no_digests(tmp_path: Path) -> None:
    run_and_listen(tmp_path / "m", toy_run(tmp_path, training={"max_steps": 5}))
    state = tmp_path / "m" / "run" / "checkpoints" / "step-5" / "state.json"
    content = json.loads(state.read_text("utf-8"))
    del content["sha256"]
    state.write_text(json.dumps(content), "utf-8")
    assert run_and_listen(tmp_path / "m", toy_run(tmp_path), resume=True)[-1]["step"] == 7


@pytest.mark.parametrize(("offers", "then"), [(True, "bfloat16"), (False, "float32")])
def test_a_run_on_auto_goes_on_in_the_precision_that_it_began_with(
    place: Path, monkeypatch: pytest.MonkeyPatch, offers: bool, then: str
) -> None:
    def auto(max_steps: int) -> Config:
        config = config_of(place, max_steps)
        training = dataclasses.replace(config.training, precision="auto")
        return dataclasses.replace(config, training=training)

    path = place / f"auto-{then}"
    monkeypatch.setattr(computing, "resolve_precision", lambda *_: "bfloat16")
    run_and_listen(path, auto(2))
    monkeypatch.setattr(computing, "resolve_precision", lambda *_: "float32")
    monkeypatch.setattr(computing, "offers_bfloat16", lambda _: offers)
    events = run_and_listen(path, auto(4), resume=True)
    assert next(each for each in events if each["event"] == "start")["precision"] == then
    warned = any("goes on in" in str(each) for each in events)
    assert warned is (then == "float32")


@pytest.mark.parametrize(
    "name",
    [
        "data.json",
        "metrics.jsonl",
        "data/training/encoded.json",
        "data/training/tokens.bin",
        "data/training/lengths.npy",
        "data/validation.jsonl",
        "checkpoints/step-5/state.json",
    ],
)
def test_a_folder_in_the_place_of_a_file_is_one_line(
    finished_at_five: Path, tmp_path: Path, name: str
) -> None:
    copy = shutil.copytree(finished_at_five, tmp_path / "m")
    (copy / "run" / name).unlink()
    (copy / "run" / name).mkdir()
    with pytest.raises(InputError, match=re.escape(str((copy / "run" / name).parent))):
        run_and_listen(copy, ModelFolder(copy).read_config(), resume=True)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_keeps_its_way_of_products_and_one_that_kept_none_takes_todays(
    place: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    def of(max_steps: int) -> Config:
        config = config_of(place, max_steps)
        return dataclasses.replace(
            config, training=dataclasses.replace(config.training, precision=precision)
        )

    path, taken = place / f"route-{precision}", list[str]()
    run_and_listen(path, of(2))
    route = product_route()
    monkeypatch.setattr(computing, "use_product_route", taken.append)
    events = run_and_listen(path, of(3), resume=True)
    damage(
        path,
        "checkpoints/step-3/state.json",
        lambda text: re.sub(rb", products by \w+", b"", text),
    )
    events += run_and_listen(path, of(4), resume=True)
    assert taken == [route, route]
    assert not any("goes on in" in str(each) for each in events)
