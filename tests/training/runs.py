"""Training runs that take a second: toy tasks as text, and settings for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.config import Config
from dragoman.data.tasks import make_task
from dragoman.settings import build_config
from dragoman.training.loop import train
from dragoman.training.metrics import Event

Pairs = Sequence[tuple[str, str]]
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "d_model": 12,
        "d_ff": 13,
        "num_heads": 3,
    },
    "data": {"vocab_size": 300, "drop_identical": False},
    "training": {
        "batch_tokens": 151,
        "max_steps": 7,
        "schedule": "constant",
        "warmup_steps": 0,
        "peak_learning_rate": 1e-3,
        "precision": "float32",
        "log_every": 3,
        "validate_every": 5,
        "validation_lines": 7,
        "keep_checkpoints": 3,
        "average_last": 2,
    },
}
PAIRS = make_task("reverse", 151, 2, 7, 5, seed=1)


class FinishedRun(NamedTuple):
    """A model's folder and what was told while it was trained."""

    path: Path
    events: list[Event]

    def of(self, kind: str) -> list[Event]:
        """Returns the events of one kind."""
        return [event for event in self.events if event["event"] == kind]


def write_pairs(path: Path, pairs: Pairs) -> str:
    """Writes pairs as TSV; returns the file's name."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    return str(path)


def toy_run(
    folder: Path, pairs: Pairs = PAIRS, valid: Pairs = PAIRS[:11], **changes: dict[str, Any]
) -> Config:
    """Writes training and validation pairs into a folder; returns the settings of a run."""
    files = {
        "pairs": write_pairs(folder / "training.tsv", pairs),
        "valid_pairs": write_pairs(folder / "validation.tsv", valid),
    }
    return build_config(SETTINGS, {"data": files}, changes)


def run_and_listen(
    path: Path, config: Config, stop_at: int | None = None, **options: Any
) -> list[Event]:
    """Trains on the CPU and returns what was reported; a run can be killed at a step's log."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if event["event"] == "log" and event["step"] == stop_at:
            raise KeyboardInterrupt

    train(path, config, device="cpu", report=listen, **options)
    return events
