from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dragoman.checkpoint import Arrays, ModelFolder
from dragoman.config import Config
from dragoman.settings import write_config
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

LEAVING_RANK = """
import os, sys
from dragoman.__main__ import main

sys.argv[0] = "dragoman"
main()
print("threads left:", len(os.listdir("/proc/self/task")) - 1)
"""


def torchrun(*command: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Runs a Python command as several processes."""
    count = ("--nproc-per-node", str(processes))
    launcher = ("-m", "torch.distributed.run", "--standalone", *count)
    return subprocess.run(
        [sys.executable, *launcher, *command],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
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


def train_together(path: Path, config: Config, *options: str, processes: int = 2) -> None:
    recipe = path.with_suffix(".toml")
    recipe.write_text(write_config(config), encoding="utf-8")
    given = ("train", str(path), "--config", str(recipe), "--device", "cpu", *options)
    done = torchrun("-m", "dragoman", *given, processes=processes)
    assert done.returncode == 0, done.stderr
    assert f"in {processes} processes" in done.stderr


def parameters(path: Path) -> Arrays:
    folder = ModelFolder(path)
    return folder.read_checkpoint(folder.checkpoints()[-1][1]).weights


@pytest.mark.parametrize(
    ("bias", "batch_tokens"), [(True, 151), (False, 13)], ids=["biases", "single sentences"]
)
def test_two_processes_learn_what_one_learns(tmp_path: Path, bias: bool, batch_tokens: int) -> None:
    config = exact_run(tmp_path, bias=bias, batch_tokens=batch_tokens)
    run_and_listen(tmp_path / "one", config)
    train_together(tmp_path / "two", config)
    ours, theirs = parameters(tmp_path / "two"), parameters(tmp_path / "one")
    assert {array.dtype for array in ours.values()} == {np.dtype(np.float64)}
    assert max(np.abs(ours[name] - theirs[name]).max() for name in theirs) < 1e-9
    losses = [
        [event["loss"] for event in read_metrics(path / "run" / "metrics.jsonl") if "loss" in event]
        for path in (tmp_path / "one", tmp_path / "two")
    ]
    np.testing.assert_allclose(*losses, rtol=1e-9)


def test_three_processes_resume_to_the_last_bit(tmp_path: Path) -> None:
    training = {"max_steps": 6, "validate_every": 3, "batch_tokens": 151, "keep_checkpoints": 2}
    config = toy_run(tmp_path, training=training, model={"dropout": 0.2})
    train_together(tmp_path / "whole", config, processes=3)
    # As a kill leaves it. Two runs from the start may choose, by a timing, to round differently.
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    last = Path("run", "checkpoints", "step-6")
    shutil.rmtree(tmp_path / "killed" / last)
    train_together(tmp_path / "killed", config, "--resume", processes=3)
    for name in ("weights.safetensors", "optimizer.safetensors"):
        found, expected = (tmp_path / run / last / name for run in ("killed", "whole"))
        assert found.read_bytes() == expected.read_bytes()


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="threads are counted as Linux does"
)
def test_no_rank_leaves_a_thread_behind(tmp_path: Path) -> None:
    (tmp_path / "leave.py").write_text(LEAVING_RANK, encoding="utf-8")
    config = exact_run(tmp_path)
    (tmp_path / "recipe.toml").write_text(write_config(config), encoding="utf-8")
    given = ("train", str(tmp_path / "m"), "--config", str(tmp_path / "recipe.toml"))
    done = torchrun(str(tmp_path / "leave.py"), *given, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("threads left: 0") == 2, done.stdout


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
