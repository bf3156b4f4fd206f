from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import demo
from dragoman.data.cldr import KINDS
from dragoman.data.corpus import read_pairs
from dragoman.training.loop import TrainingRun


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the quick demo take seconds."""
    model = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 32}
    training = {"max_steps": 2, "validate_every": 2, "validation_lines": 3}
    monkeypatch.setattr(demo, "_QUICK", {"model": model, "training": training})
    monkeypatch.setattr(demo, "_QUICK_PHRASES", 500)


@pytest.mark.usefixtures("hurried")
def test_the_demo_shows_shares_by_kind_samples_scores_and_pictures(
    run: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    finished = run("demo", "--quick", "--language", "zh", "--output", folder, "--device", "cpu")
    assert finished.status == 0
    for kind in (*KINDS, "all"):
        assert f"\n  {kind} " in finished.out
    assert "tok:zh" in finished.out
    for name in ("attention.png", "curves.png"):
        assert str(folder / name) in finished.out
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("hurried")
def test_no_phrase_is_in_two_parts_of_the_data(run: Any, tmp_path: Path) -> None:
    run("demo", "--quick", "--output", tmp_path / "d", "--device", "cpu")
    data = tmp_path / "d" / "data"
    parts = [
        {source for source, _ in read_pairs([], [], [str(data / f"{name}.tsv")])}
        for name in ("train", "valid", "test")
    ]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert min(map(len, parts)) > 50


def test_an_existing_folder_is_left_alone(run: Any, tmp_path: Path) -> None:
    finished = run("demo", "--output", tmp_path)
    assert finished.status == 2
    assert finished.error.startswith(f"error: {tmp_path} exists already\nhint: ")


def test_bad_settings_leave_nothing_behind(run: Any, tmp_path: Path) -> None:
    given = ("--quick", "--batch-tokens", 10, "--device", "cpu", "--output", tmp_path / "d")
    finished = run("demo", *given)
    assert finished.status == 2
    assert not (tmp_path / "d").exists()


@pytest.mark.usefixtures("hurried")
def test_an_interrupted_demo_says_how_its_model_learns_on(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingRun, "_agree_to_stop", lambda run, interrupted: (None, True))
    finished = run("demo", "--quick", "--device", "cpu", "--output", tmp_path / "d")
    assert finished.status == 130
    monkeypatch.undo()
    assert f"to go on, dragoman train {tmp_path / 'd' / 'model'} --resume" in finished.err
    assert run("train", tmp_path / "d" / "model", "--resume", "--device", "cpu").status == 0


def test_an_unknown_language_leaves_nothing_behind(run: Any, tmp_path: Path) -> None:
    finished = run("demo", "--language", "klingon", "--output", tmp_path / "d")
    assert finished.status == 2
    assert "'klingon' is not a locale" in finished.error
    assert not (tmp_path / "d").exists()
