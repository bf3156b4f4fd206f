"""What every contestant is given: a size, sentences, threads. No torch needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dragoman.config import Config
from dragoman.presets import PRESETS
from dragoman.settings import Settings, build_config

BEAM_SIZE = 4
OUTPUT_LENGTH = 20
"""Tokens of every output in decoding; nobody may end earlier."""


@dataclass(frozen=True)
class Size:
    """A model and its batches."""

    settings: Settings
    vocab_size: int
    batch_tokens: int
    """Of each side, padding included."""


SIZES = {
    "S": Size(PRESETS["small"].settings, vocab_size=8000, batch_tokens=2048),
    "B": Size(PRESETS["paper-base"].settings, vocab_size=8000, batch_tokens=2048),
}
"""What a CPU can do: the preset small, and the paper's base with a smaller vocabulary."""
PAPER_SIZES = {
    name: Size(PRESETS[name].settings, vocab_size=37000, batch_tokens=25000)
    for name in ("paper-base", "paper-big")
}
"""What takes a GPU."""


def config_of_size(size: str, vocab_size: int | None = None) -> Config:
    """Returns the settings that the command line would train a model of this size with.

    Args:
        size: of `SIZES` or `PAPER_SIZES`.
        vocab_size: another one than the size's own.
    """
    chosen = {**SIZES, **PAPER_SIZES}[size]
    entries = vocab_size or chosen.vocab_size
    changes: Settings = {
        "model": {"source_vocab_size": entries, "target_vocab_size": entries},
        "data": {"vocab_size": entries},
        "training": {"batch_tokens": chosen.batch_tokens},
    }
    return build_config(chosen.settings, changes)


@dataclass(frozen=True)
class Setting:
    """What a contestant works on."""

    size: str
    sentences: Path
    """The file of a `dragoman.bench.sentences.Workload`."""
    threads: int | None = None
    """CPU threads; None leaves them to the contestant."""
    device: str = "cpu"


@dataclass(frozen=True)
class Run:
    """What a contestant did while the clock ran."""

    count: int
    """Real target tokens in training, sentences in decoding."""
    notes: dict[str, Any]
    """What it found on the way, such as its loss; JSON."""


class Performance(Protocol):
    """A contestant at work. Its constructor takes a `Setting` and the options of its entry."""

    @property
    def facts(self) -> dict[str, Any]:
        """What is worth knowing of how it works, such as its precision; JSON."""
        ...

    def warm_up(self) -> None:
        """Does a little of `run`, so that caches and memory are as in the middle of a long one."""
        ...

    def run(self) -> Run:
        """Does what is measured."""
        ...
