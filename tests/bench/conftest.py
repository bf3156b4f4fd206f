"""Sentences of toy words, and contestants of our own that run in worker processes."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from dragoman.bench.sentences import Workload, batch_pairs
from dragoman.bench.setting import SIZES, Setting, Size
from dragoman.config import EOS

FAKES = """
import os, sys, time
from dragoman.bench.setting import Run

class Fake:
    def __init__(self, setting, name="fake", count=7, fail=""):
        if fail == "at the start":
            raise ImportError("no such library")
        self.facts = {"name": name, "size": setting.size, "threads_wanted": setting.threads}
        self.setting, self.name, self.count, self.fail, self.runs = setting, name, count, fail, 0
        self.warm = 0

    def warm_up(self):
        self.warm += 1

    def run(self):
        print("a library that prints")
        self.runs += 1
        if self.fail == "later" and self.runs > 1:
            raise RuntimeError("it broke")
        with open(self.setting.sentences.with_suffix(".log"), "a") as file:
            file.write(self.name)
        time.sleep(0.001)
        return Run(self.count, {"runs": self.runs, "warm": self.warm})

class Hungry(Fake):
    def run(self):
        taken = bytearray(64 << 20)
        return Run(len(taken), {})
"""


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes S a model that costs nothing, and leaves the tests' own process as it is."""
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 8, "d_ff": 7}
    for module in ("machine", "memory", "ours", "step_times"):
        monkeypatch.setattr(f"dragoman.bench.{module}.tune_process", lambda: None)
    settings = {"model": {**sizes, "num_heads": 2}}
    monkeypatch.setitem(SIZES, "S", Size(settings, vocab_size=8000, batch_tokens=2048))


@pytest.fixture
def workload() -> Workload:
    """Three batches of pairs of 2 to 13 tokens."""
    lengths = [[(2, 3), (3, 3), (3, 2)], [(5, 7), (7, 7)], [(13, 11), (11, 13), (13, 13)]]
    return batch_pairs(
        [
            [([5] * (source - 1) + [EOS], [6] * (target - 1) + [EOS]) for source, target in batch]
            for batch in lengths
        ]
    )


@pytest.fixture
def setting(tmp_path: Path, workload: Workload) -> Setting:
    workload.save(tmp_path / "sentences.json")
    return Setting("S", tmp_path / "sentences.json", threads=1)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `fakes:Fake` a home that can be imported, in workers and here."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fakes", raising=False)
    (tmp_path / "fakes.py").write_text(textwrap.dedent(FAKES))
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
