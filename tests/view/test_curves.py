"""Curves of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dragoman.config import TrainingConfig
from dragoman.training.schedule import learning_rate
from dragoman.view.curves import draw_curves, draw_schedule, read_schedule

PNG = b"\x89PNG\r\n\x1a\n"
LOGS: list[dict[str, Any]] = [
    {"event": "log", "step": step, "loss": 7 / step, "learning_rate": 1e-3} for step in (2, 3, 5, 7)
]
VALIDATIONS: list[dict[str, Any]] = [
    {"event": "validation", "step": step, "loss": 8 / step, "bleu": 3.0 * step, "chrf": 5.0 * step}
    for step in (3, 7)
]


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """Collects the axes of every figure that is saved."""
    found: list[Axes] = []
    save = Figure.savefig

    def look(figure: Figure, *args: Any, **options: Any) -> None:
        found.extend(figure.axes)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", look)
    return found


def test_the_curves_have_the_points_of_the_rows(tmp_path: Path, panels: list[Axes]) -> None:
    draw_curves([*LOGS, *VALIDATIONS], tmp_path / "curves.png")
    lines = {line.get_label(): line for axes in panels for line in axes.lines}
    assert list(lines) == ["train", "validation", "BLEU, validation", "chrF, validation"]
    assert np.asarray(lines["train"].get_xdata()).tolist() == [2, 3, 5, 7]
    assert np.asarray(lines["BLEU, validation"].get_ydata()).tolist() == [9.0, 21.0]


def test_both_panels_have_a_legend_axes_with_units_and_a_grid(
    tmp_path: Path, panels: list[Axes]
) -> None:
    draw_curves([*LOGS, *VALIDATIONS], tmp_path / "curves.png")
    assert [axes.get_ylabel() for axes in panels] == ["loss (nats/token)", "score (0-100)"]
    assert all(axes.get_xlabel() == "step" and axes.get_legend() for axes in panels)
    assert all(line.get_visible() for axes in panels for line in axes.get_xgridlines())


@pytest.mark.parametrize("rows", [[], LOGS, VALIDATIONS, [{"event": "stop", "step": 7}]])
def test_what_a_run_has_not_got_is_left_out(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    draw_curves(rows, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG)


def test_a_score_that_was_not_measured_makes_no_point(tmp_path: Path, panels: list[Axes]) -> None:
    draw_curves([{**VALIDATIONS[0], "bleu": None}, VALIDATIONS[1]], tmp_path / "curves.png")
    assert np.asarray(panels[1].lines[0].get_xdata()).tolist() == [7]
    assert np.asarray(panels[1].lines[1].get_xdata()).tolist() == [3, 7]


@pytest.mark.parametrize("schedule", ["noam", "inverse-square-root", "constant"])
def test_a_schedule_is_what_the_optimizer_is_given_and_peaks_as_the_warm_up_ends(
    schedule: str, tmp_path: Path
) -> None:
    config = TrainingConfig(schedule=schedule, warmup_steps=37, max_steps=5)  # type: ignore[arg-type]
    found = read_schedule(config, 512)
    assert (found.steps[0], found.steps[-1]) == (1, 4 * 37)
    for step, rate in zip(found.steps, found.learning_rates, strict=True):
        assert rate == learning_rate(step, config, 512)
    assert max(found.learning_rates) == found.learning_rates[found.steps.index(37)]
    draw_schedule(found, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
