from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.checkpoint import ModelFolder

from .runs import FinishedRun, run_and_listen, toy_run


def averaged(path: Path) -> dict[str, Any]:
    return ModelFolder(path).average_last(2)


def best(path: Path) -> dict[str, Any]:
    folder = ModelFolder(path)
    return folder.read_checkpoint(dict(folder.checkpoints())[4]).weights


@pytest.mark.parametrize(
    ("rate", "kept", "weights"),
    [
        (1e-2, "step 4, the best checkpoint", best),  # it still learns fast: older weights harm
        (1e-30, "the average of the last 2 checkpoints", averaged),
    ],
)
def test_the_card_says_which_weights_were_kept_and_they_are(
    tmp_path: Path, rate: float, kept: str, weights: Callable[[Path], dict[str, Any]]
) -> None:
    training = {"peak_learning_rate": rate, "best_by": "loss", "max_steps": 4, "validate_every": 1}
    *_, end = run_and_listen(tmp_path / "m", toy_run(tmp_path, training=training))
    card = (tmp_path / "m" / "card.md").read_text("utf-8")
    assert end["weights"] == kept
    assert f"| Weights | {kept} |" in card
    found = ModelFolder(tmp_path / "m").read_weights()
    wanted = weights(tmp_path / "m")
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_the_card_has_data_size_and_scores_with_their_signature(finished: FinishedRun) -> None:
    card = (finished.path / "card.md").read_text("utf-8")
    scored = finished.of("validation")
    assert finished.events[0]["report"] in card
    assert f"| Parameters | {finished.of('start')[0]['parameters']:,} |" in card
    assert any(f"| BLEU | {each['bleu']:.2f} | `{each['signature']}` |" in card for each in scored)
    assert any(f"| perplexity | {each['perplexity']:.3f} per piece" in card for each in scored)
