from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dragoman.config import InputError
from dragoman.training.tensorboard import TensorBoard

from .runs import FinishedRun


def test_every_number_of_a_run_is_a_curve(finished: FinishedRun, tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    for event in finished.events:
        board(event)
    curves = EventAccumulator(str(tmp_path)).Reload()
    losses = [(each.step, each.value) for each in curves.Scalars("training/loss")]
    assert losses == [(log["step"], pytest.approx(log["loss"])) for log in finished.of("log")]
    assert {"latest/bleu", "average/perplexity"} <= set(curves.Tags()["scalars"])


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="needs the package tensorboard") as caught:
        TensorBoard(tmp_path)
    assert caught.value.hint == "install it: pip install 'dragoman[tensorboard]'"
