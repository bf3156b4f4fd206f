"""What a run does when something goes wrong around it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file

from dragoman import checkpoint
from dragoman.checkpoint import ModelFolder
from dragoman.config import InputError, RunError
from dragoman.training import loop, rehearsal, setup
from dragoman.training.interruption import interruptible
from dragoman.training.loop import train
from dragoman.training.metrics import Event, read_metrics
from dragoman.training.rehearsal import rehearse
from dragoman.training.step import TrainingLoss

from ..model.toys import toy_model
from .runs import run_and_listen, toy_run


@pytest.fixture(autouse=True)
def ctrl_c_means_something() -> Iterator[None]:
    """Undoes what a shell does for commands in its background: they ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_at(
    step: int,
    path: Path,
    config: Any,
    *,
    kind: str = "log",
    number: signal.Signals = signal.SIGINT,
    **options: Any,
) -> list[Event]:
    """Trains and presses Ctrl-C, or gives another signal, at an event of a step."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if event["event"] == kind and event["step"] == step:
            signal.raise_signal(number)

    train(path, config, device="cpu", report=listen, **options)
    return events


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_the_run_and_it_ends_as_it_would_have(
    tmp_path: Path, number: signal.Signals
) -> None:
    config = toy_run(tmp_path, training={"max_steps": 11, "log_every": 1, "validate_every": 5})
    run_and_listen(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        press_at(7, tmp_path / "m", config, number=number)
    assert [step for step, _ in ModelFolder(tmp_path / "m").checkpoints()] == [5, 7]
    last = read_metrics(tmp_path / "m" / "run" / "metrics.jsonl")[-1]
    assert (last["event"], last["step"]) == ("interrupted", 7)
    run_and_listen(tmp_path / "m", config, resume=True)
    whole, resumed = ModelFolder(tmp_path / "whole"), ModelFolder(tmp_path / "m")
    assert [step for step, _ in resumed.checkpoints()] == [5, 10, 11]
    weights = [(each.path / "weights.safetensors").read_bytes() for each in (whole, resumed)]
    assert weights[0] == weights[1]


def test_ctrl_c_in_the_closing_validation_loses_no_step(tmp_path: Path) -> None:
    config = toy_run(tmp_path, training={"max_steps": 7, "log_every": 1, "validate_every": 5})
    run_and_listen(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        press_at(7, tmp_path / "m", config, kind="validation")
    assert [step for step, _ in ModelFolder(tmp_path / "m").checkpoints()] == [5, 7]
    run_and_listen(tmp_path / "m", config, resume=True)
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "m")]
    assert weights[0] == weights[1]


def test_an_extended_run_that_is_interrupted_at_its_end_still_comes_to_it(tmp_path: Path) -> None:
    training = {"validate_every": 5, "best_by": "loss", "schedule": "constant"}
    run_and_listen(tmp_path / "m", toy_run(tmp_path, training={**training, "max_steps": 5}))
    still = {**training, "max_steps": 9, "peak_learning_rate": 1e-30}  # it gets no better
    config = toy_run(tmp_path, training=still)
    folder = ModelFolder(tmp_path / "m")
    made = folder.read_config()
    folder.replace_config(dataclasses.replace(made, training=config.training))
    for _ in range(2):  # in the validation that closes the run, and in that of the average
        with pytest.raises(KeyboardInterrupt):
            press_at(9, tmp_path / "m", config, kind="validation", resume=True)
    run_and_listen(tmp_path / "m", config, resume=True)
    assert "9 steps" in (tmp_path / "m" / "card.md").read_text("utf-8")


def test_the_second_ctrl_c_interrupts_at_once() -> None:
    with interruptible() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def poison(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    """Makes the loss of some steps, counted from 1, infinite."""
    real, count = loop.training_step, [0]

    def step(loss: torch.nn.Module, *arguments: Any) -> Any:
        count[0] += 1
        factor = float("inf") if count[0] in steps else 1.0
        hook = loss.register_forward_hook(
            lambda module, inputs, sums: sums._replace(loss=sums.loss * factor)
        )
        try:
            return real(loss, *arguments)
        finally:
            hook.remove()

    monkeypatch.setattr(loop, "training_step", step)


def test_a_step_without_a_finite_gradient_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, {2, 5})
    events = run_and_listen(tmp_path / "m", toy_run(tmp_path, training={"log_every": 1}))
    warnings = [event["message"] for event in events if event["event"] == "warning"]
    assert "step 2 isn't finite: skipped (epoch 0, pool 0, batch 2; 1 so far)" in warnings[0]
    assert "step 5 isn't finite" in warnings[1]
    folder = ModelFolder(tmp_path / "m")
    last = folder.read_checkpoint(folder.checkpoints()[-1][1])
    assert all(np.isfinite(array).all() for array in last.weights.values())
    steps = {float(step) for name, step in last.optimizer.items() if name.endswith("/step")}
    assert steps == {5}
    assert last.state["skipped_steps"] == 2
    assert [event["step"] for event in events if event["event"] == "log"] == [1, 3, 4, 6, 7]


def test_ten_such_steps_in_a_row_end_the_run_and_name_their_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, set(range(3, 99)))
    config = toy_run(tmp_path, training={"max_steps": 99, "validate_every": 2})
    with pytest.raises(RunError, match=r"in 10 steps in a row: .*epoch 0, pool 0, batch 3; epoch"):
        run_and_listen(tmp_path / "m", config)
    steps = [step for step, _ in ModelFolder(tmp_path / "m").checkpoints()]
    assert max(steps) == 10


def test_want_of_memory_shows_before_the_first_step_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate ...")

    monkeypatch.setattr(rehearsal.TrainingLoss, "forward", fail)
    with pytest.raises(RunError, match=r"not enough memory for the largest batch, 1. sentences of"):
        run_and_listen(tmp_path / "m", toy_run(tmp_path))
    assert not (tmp_path / "m").exists()


def test_a_rehearsal_leaves_no_trace() -> None:
    model = toy_model(norm="batch", dropout=0.3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    rehearse(TrainingLoss(model, 0.1), 3, 5, "float32", accumulation=2)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_full_disk_names_the_file_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(arrays: Any, path: Path, metadata: Any = None) -> None:
        if "step-4" in str(path):
            path.write_bytes(b"half of it")
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save_file(arrays, path, metadata)

    monkeypatch.setattr(checkpoint, "save_file", fill)
    with pytest.raises(OSError, match="No space left") as caught:
        run_and_listen(tmp_path / "m", toy_run(tmp_path, training={"validate_every": 2}))
    assert caught.value.errno == 28
    assert "step-4" in str(caught.value.filename)
    checkpoints = tmp_path / "m" / "run" / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["step-2"]
    monkeypatch.undo()
    run_and_listen(tmp_path / "m", toy_run(tmp_path, training={"validate_every": 2}), resume=True)


def test_a_kill_between_a_checkpoint_and_the_tidying_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_run(tmp_path, training={"max_steps": 8, "log_every": 1, "validate_every": 4})
    run_and_listen(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        press_at(6, tmp_path / "m", config)

    def die(run: loop.TrainingRun, _: Any) -> None:
        if run.state.step == 8:
            raise SystemExit("killed")

    monkeypatch.setattr(loop.TrainingRun, "_keep_if_best", die)
    with pytest.raises(SystemExit):
        run_and_listen(tmp_path / "m", config, resume=True)
    monkeypatch.undo()
    run_and_listen(tmp_path / "m", config, resume=True)
    weights = [tmp_path / name / "weights.safetensors" for name in ("m", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert [step for step, _ in ModelFolder(tmp_path / "m").checkpoints()] == [4, 8]


@pytest.mark.parametrize("norm", ["layer", "rms", "batch", "none"])
def test_a_run_comes_to_its_end_with_every_norm(tmp_path: Path, norm: str) -> None:
    run_and_listen(tmp_path / "m", toy_run(tmp_path, model={"norm": norm}))
    assert ModelFolder(tmp_path / "m").has_weights()


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as interrupted:
            signal.raise_signal(signal.SIGINT)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_name_that_is_taken_while_the_text_is_read_stays_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, theirs = setup.prepare, tmp_path / "m" / "theirs"

    def prepare(*arguments: Any) -> Any:
        theirs.mkdir(parents=True)
        return real(*arguments)

    monkeypatch.setattr(setup, "prepare", prepare)
    with pytest.raises(InputError, match="exists already"):
        run_and_listen(tmp_path / "m", toy_run(tmp_path))
    assert theirs.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"m", "training.tsv", "validation.tsv"}


def test_a_model_in_training_is_not_taken_up_by_another(tmp_path: Path) -> None:
    config = toy_run(tmp_path)
    seen = []

    def listen(event: Event) -> None:
        if event["event"] == "log":
            with pytest.raises(InputError, match="another process is at work there"):
                train(tmp_path / "m", config, resume=True, device="cpu")
            seen.append(event["step"])

    train(tmp_path / "m", config, device="cpu", report=listen)
    assert seen == [3, 6]


def test_a_best_checkpoint_that_somebody_removed_is_not_missed(tmp_path: Path) -> None:
    config = toy_run(tmp_path, training={"max_steps": 4, "validate_every": 1})
    run_and_listen(tmp_path / "m", config)
    (step, best), *_, (_, latest) = ModelFolder(tmp_path / "m").checkpoints()
    shutil.rmtree(best)
    state = json.loads((latest / "state.json").read_text("utf-8"))
    state |= {"best_step": step, "best_score": 101.0}
    (latest / "state.json").write_text(json.dumps(state), "utf-8")
    weights = (tmp_path / "m" / "weights.safetensors").read_bytes()
    longer = toy_run(tmp_path, training={"max_steps": 5, "validate_every": 1})
    end = run_and_listen(tmp_path / "m", longer, resume=True)[-1]
    assert (end["step"], end["weights"]) == (5, f"step {step}, the best checkpoint")
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == weights


def test_a_run_without_its_checkpoints_says_that_it_begins_again(tmp_path: Path) -> None:
    run_and_listen(tmp_path / "m", toy_run(tmp_path))
    for _, path in ModelFolder(tmp_path / "m").checkpoints():
        path.rename(tmp_path / path.name)
    again = run_and_listen(tmp_path / "m", toy_run(tmp_path), resume=True)
    [warning] = [event for event in again if event["event"] == "warning"]
    assert warning["message"].startswith("no checkpoint is left")
