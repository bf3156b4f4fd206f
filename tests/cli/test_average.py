from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.checkpoint import ModelFolder
from dragoman.data.atomic import held_alone


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> ModelFolder:
    return ModelFolder(shutil.copytree(model, tmp_path / "m"))


def test_the_weights_become_the_mean_of_the_last_checkpoints(run: Any, folder: ModelFolder) -> None:
    finished = run("average", folder.path, "--last", 2)
    assert (finished.status, finished.out) == (0, "")
    assert "average of the checkpoints of steps 2, 3" in finished.err
    last = [folder.read_checkpoint(path).weights for _, path in folder.checkpoints()[-2:]]
    for name, weights in folder.read_weights().items():
        np.testing.assert_allclose(weights, (last[0][name] + last[1][name]) / 2, atol=1e-7)


def test_the_card_says_that_the_weights_are_others_now(run: Any, folder: ModelFolder) -> None:
    run("average", folder.path)
    card = (folder.path / "card.md").read_text("utf-8")
    assert "replaced by the average of the checkpoints of steps 1, 2, 3" in card


def test_a_model_without_checkpoints_or_in_training_is_refused(
    run: Any, folder: ModelFolder
) -> None:
    with held_alone(folder.path):
        assert "another process is at work there" in run("average", folder.path).error
    shutil.rmtree(folder.run)
    finished = run("average", folder.path)
    assert finished.status == 2
    assert "no checkpoints are kept here" in finished.error


def test_more_checkpoints_than_are_kept_are_refused(run: Any, folder: ModelFolder) -> None:
    before = (folder.path / "weights.safetensors").read_bytes()
    finished = run("average", folder.path, "--last", 4)
    assert finished.status == 2
    assert "the average of 4 checkpoints was asked for, accepted is 1 to the 3" in finished.error
    assert (folder.path / "weights.safetensors").read_bytes() == before
