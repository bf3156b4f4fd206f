from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.lab import sparkline
from dragoman.cli.main import main
from dragoman.lab import experiments
from dragoman.lab.experiment import Experiment


@pytest.fixture
def folder(toy: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(experiments, "EXPERIMENTS", {"toy": toy})
    monkeypatch.setattr("dragoman.kernels.process.tune_process", lambda frugal: None)
    return str(tmp_path / "lab")


def test_list_names_each_experiment_and_its_question(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "list"]) == 0
    assert capsys.readouterr().out.split(maxsplit=1) == ["toy", "Does it run?\n"]


def test_a_run_shows_curves_and_verdicts_and_a_report_can_be_written(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "run", "toy", "--quick", "--output", folder]) == 0
    shown = capsys.readouterr()
    assert "verdict:   confirmed" in shown.out
    assert "changed              seed 1  step     3" in shown.err
    assert main(["lab", "report", "--output", folder]) == 0
    assert capsys.readouterr().out.strip() == str(Path(folder) / "report.html")
    assert "<html" in (Path(folder) / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("lab run scalling", "NAME is scalling, accepted is one of scaling,", "scaling?"),
        ("lab runs", "ACTION is runs, accepted is one of list, run, report", "run?"),
        ("lab run", "NAME: required", ""),
        ("lab run scaling --quik", "--quik is not an option", "--quick?"),
        ("lab run scaling --seeds 0", "--seeds: '0', accepted is a whole number of 1", ""),
        ("lab run scaling --language xx-yy", "'xx-yy' is not a locale", ""),
        ("lab run scaling --source a", "--source has 1 files and --target 0", ""),
        ("lab run scaling --language de --pairs a.tsv", "--language and files are both given", ""),
        ("lab report --output nowhere", "nowhere: no experiment has been run", "dragoman lab run"),
    ],
)
def test_wrong_use_gives_one_line_that_says_what_is_right(
    capsys: pytest.CaptureFixture[str], line: str, error: str, hint: str
) -> None:
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {error}")
    assert hint in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([0.0, 1.0, 2.0], "▁▅█"),
        ([3.0], "█"),
        ([0.0, 0.0], "▁▁"),
        ([1.0, float("nan"), float("inf")], "█xx"),
        ([], ""),
        ([1.0] * 31, "█" * 20),
    ],
)
def test_a_sparkline_shows_the_last_values(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn
