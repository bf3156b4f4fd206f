from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dragoman.checkpoint import Arrays, ModelFolder
from dragoman.config import Config, write_config
from dragoman.training.metrics import read_metrics

from .runs import run_and_listen, toy_run

FAILING_RANK = """
import os, sys
from dragoman.__main__ import main
from dragoman.training import loop

step = loop.training_step

def fail(*arguments):
    if os.environ["RANK"] == "1":
        raise RuntimeError("the second rank has had enough")
    return step(*arguments)

loop.training_step = fail
sys.argv[0] = "dragoman"
main()
"""


def torchrun(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python command as two processes."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return subprocess.run(
        [sys.executable, *launcher, *command],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def exact_run(folder: Path, *, bias: bool = False, batch_tokens: int = 151) -> Config:
    training = {
        "precision": "float64",
        "schedule": "inverse-square-root",
        "peak_learning_rate": 5e-3,
        "warmup_steps": 10,
        "max_steps": 20,
        "accumulation": 2,
        "batch_tokens": batch_tokens,
        "validate_every": 20,
    }
    still = dict.fromkeys(("dropout", "embedding_dropout"), 0.0)
    return toy_run(folder, training=training, model={**still, "attention_bias": bias})


def train_in_two(folder: Path, config: Config) -> Path:
    (folder / "recipe.toml").write_text(write_config(config), encoding="utf-8")
    recipe = ("--config", str(folder / "recipe.toml"))
    done = torchrun("-m", "dragoman", "train", str(folder / "two"), *recipe, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "in 2 processes" in done.stderr
    return folder / "two"


def parameters(path: Path) -> Arrays:
    folder = ModelFolder(path)
    return folder.read_checkpoint(folder.checkpoints()[-1][1]).weights


@pytest.mark.parametrize(
    ("bias", "batch_tokens"), [(True, 151), (False, 13)], ids=["biases", "single sentences"]
)
def test_two_processes_learn_what_one_learns(tmp_path: Path, bias: bool, batch_tokens: int) -> None:
    config = exact_run(tmp_path, bias=bias, batch_tokens=batch_tokens)
    run_and_listen(tmp_path / "one", config)
    train_in_two(tmp_path, config)
    ours, theirs = parameters(tmp_path / "two"), parameters(tmp_path / "one")
    assert {array.dtype for array in ours.values()} == {np.dtype(np.float64)}
    assert max(np.abs(ours[name] - theirs[name]).max() for name in theirs) < 1e-9
    losses = [
        [event["loss"] for event in read_metrics(path / "run" / "metrics.jsonl") if "loss" in event]
        for path in (tmp_path / "one", tmp_path / "two")
    ]
    np.testing.assert_allclose(*losses, rtol=1e-9)


def test_a_rank_that_fails_ends_all_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "fail.py").write_text(FAILING_RANK, encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(write_config(exact_run(tmp_path)), encoding="utf-8")
    recipe = ("--config", str(tmp_path / "recipe.toml"))
    failed = torchrun(
        str(tmp_path / "fail.py"), "train", str(tmp_path / "m"), *recipe, "--device", "cpu"
    )
    assert failed.returncode == 1
    assert "error: rank 1: RuntimeError: the second rank has had enough" in failed.stderr


def test_a_mistake_is_told_once_by_the_first_rank(tmp_path: Path) -> None:
    failed = torchrun("-m", "dragoman", "train", str(tmp_path / "m"), "--pairs", "absent.tsv")
    assert failed.returncode != 0
    assert failed.stderr.count("absent.tsv: no such file") == 1
    assert not (tmp_path / "m").exists()
