"""Runs that are killed, really, at moments that nobody chose.

DRAGOMAN_KILLS=50 kills as often as that; the default keeps the tests quick.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dragoman
from dragoman.checkpoint import ModelFolder
from dragoman.config import Config
from dragoman.settings import write_config
from dragoman.training.metrics import read_metrics

from .runs import PAIRS, run_and_listen, toy_run, write_pairs

KILLS = int(os.environ.get("DRAGOMAN_KILLS", "2"))
TIMES = {"seconds", "seconds_left", "tokens_per_second", "waiting"}


def careful_run(folder: Path) -> Config:
    """A run with all that is hard to resume: dropout, accumulation, two weighted corpora."""
    dropout = dict.fromkeys(("dropout", "attention_dropout", "feed_forward_dropout"), 0.2)
    corpora = [
        {"pairs": write_pairs(folder / "much.tsv", PAIRS[11:]), "weight": 0.4},
        {"pairs": write_pairs(folder / "little.tsv", PAIRS[:11]), "weight": 3.0},
    ]
    return toy_run(
        folder,
        model=dropout,
        data={"pairs": (), "corpora": corpora},
        training={
            "accumulation": 2,
            "max_steps": 40,
            "validate_every": 2,
            "validation_lines": 1,
            "log_every": 1,
        },
    )


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dragoman", "train", str(folder / "m"), "--resume"]
    options = ["--config", str(folder / "recipe.toml"), "--device", "cpu", "--threads", "1"]
    return subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)


def kill_somewhere(folder: Path, chance: random.Random) -> None:
    """Kills a run a moment after it has begun to train."""
    with start(folder) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(("training: ", "going on after")):
                break
        time.sleep(chance.uniform(0, 0.4))
        process.kill()


def assert_sound(path: Path) -> None:
    folder = ModelFolder(path)
    for _, checkpoint in folder.checkpoints():
        folder.read_checkpoint(checkpoint)
    if folder.has_weights():
        dragoman.load(path, device="cpu")


@pytest.mark.parametrize("seed", [1])
def test_a_run_killed_again_and_again_ends_as_it_would_have(tmp_path: Path, seed: int) -> None:
    config = careful_run(tmp_path)
    (tmp_path / "recipe.toml").write_text(write_config(config), encoding="utf-8")
    run_and_listen(tmp_path / "whole", config)
    chance = random.Random(seed)
    for _ in range(KILLS):
        kill_somewhere(tmp_path, chance)
        assert_sound(tmp_path / "m")
    with start(tmp_path) as process:
        assert process.communicate()[1].endswith(f"translate {tmp_path / 'm'} < FILE\n")
    ours, theirs = (ModelFolder(tmp_path / name) for name in ("m", "whole"))
    assert [step for step, _ in ours.checkpoints()] == [step for step, _ in theirs.checkpoints()]
    for (_, mine), (_, other) in zip(ours.checkpoints(), theirs.checkpoints(), strict=True):
        for name in ("weights.safetensors", "optimizer.safetensors"):
            assert (mine / name).read_bytes() == (other / name).read_bytes()
    rows = [
        [
            {key: value for key, value in event.items() if key not in TIMES}
            for event in read_metrics(folder.run / "metrics.jsonl")
            if event["event"] in ("log", "validation")
        ]
        for folder in (ours, theirs)
    ]
    assert rows[0] == rows[1]
    weights = [folder.read_weights() for folder in (ours, theirs)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
