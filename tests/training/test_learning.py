"""What a sound Transformer learns in seconds, and what it can't without one of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dragoman.data.tasks import Task, make_task
from dragoman.decoding.loader import load

from .runs import FinishedRun, Pairs, run_and_listen, toy_run

UNSEEN = 501


def learn(
    folder: Path, task: Task, lengths: tuple[int, int], steps: int, alphabet: int = 5, **model: Any
) -> tuple[FinishedRun, Pairs]:
    """Trains on 1,200 strings; returns the run and 501 others that it hasn't seen."""
    pairs = make_task(task, 1200 + 101 + UNSEEN, *lengths, alphabet, seed=1)
    config = toy_run(
        folder,
        pairs[:1200],
        pairs[1200:1301],
        model={
            **{"d_model": 64, "d_ff": 256, "num_heads": 4},
            **{"dropout": 0.0, "embedding_dropout": 0.0, **model},
        },
        training={
            "batch_tokens": 503,
            "schedule": "inverse-square-root",
            "warmup_steps": 101,
            "peak_learning_rate": 3e-3,
            "label_smoothing": 0.0,
            "max_steps": steps,
            "validate_every": 100,
            "validation_lines": 101,
            "best_by": "loss",
        },
    )
    return FinishedRun(folder / "m", run_and_listen(folder / "m", config)), pairs[1301:]


def share_exact(run: FinishedRun, pairs: Pairs) -> float:
    found = load(run.path, device="cpu").translate([source for source, _ in pairs], beam_size=1)
    return float(np.mean([each.text == pair[1] for each, pair in zip(found, pairs, strict=True)]))


def test_copying_is_learnt_to_the_last_symbol(tmp_path: Path) -> None:
    assert share_exact(*learn(tmp_path, "copy", (3, 5), steps=300)) >= 0.999


def test_reversing_is_learnt_to_the_last_symbol(tmp_path: Path) -> None:
    assert share_exact(*learn(tmp_path, "reverse", (3, 5), steps=500)) >= 0.999


def test_reversing_can_not_be_learnt_without_positions(tmp_path: Path) -> None:
    run, unseen = learn(tmp_path, "reverse", (3, 5), steps=150, positions="none")
    assert share_exact(run, unseen) < 0.3


def test_without_cross_attention_nothing_of_the_source_arrives(tmp_path: Path) -> None:
    run, unseen = learn(tmp_path, "copy", (3, 5), steps=31, cross_attention=False)
    found = load(run.path, device="cpu").translate([source for source, _ in unseen], beam_size=1)
    assert len({(each.text, each.score) for each in found}) == 1


def test_without_the_causal_mask_the_decoder_learns_to_peek_and_a_warning_says_so(
    tmp_path: Path,
) -> None:
    run, unseen = learn(tmp_path, "reverse", (5, 7), steps=200, alphabet=11, causal_mask=False)
    latest = [each for each in run.of("validation") if each["weights"] == "latest"][-1]
    assert latest["accuracy"] > 0.75
    assert latest["bleu"] < 1
    assert share_exact(run, unseen) < 0.1
    messages = [each["message"] for each in run.of("warning") if each["step"] == 200]
    assert any("a mask that lets the decoder see" in message for message in messages)
