from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest

from dragoman.cli.lab_progress import LabProgress, describe_trial, sparkline
from dragoman.cli.main import main
from dragoman.config import RunError
from dragoman.lab import experiments
from dragoman.lab.experiment import Experiment, Trial, Variant


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
    assert main(["lab", "run", "toy", "--quick", "--threads", "1", "--output", folder]) == 0
    shown = capsys.readouterr()
    assert "verdict:   confirmed, as predicted" in shown.out
    assert "changed              seed 1  step     3" in shown.err
    assert main(["lab", "report", "--output", folder]) == 0
    assert capsys.readouterr().out.strip() == str(Path(folder) / "report.html")
    assert "<html" in (Path(folder) / "report.html").read_text("utf-8")
    assert main(["lab", "report", "--output", folder, "--format", "json", "png"]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert written == [Path(folder) / "report.json", Path(folder) / "toy.png"]
    assert json.loads(written[0].read_text("utf-8"))["toy"]["claims"][0]["outcome"] == "confirmed"
    assert written[1].read_bytes().startswith(b"\x89PNG")


def test_a_device_that_is_not_there_is_refused_before_anything_is_run(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    command = ["lab", "run", "toy", "--quick", "--threads", "1", "--output", folder]
    assert main([*command, "--device", "cuda"]) == 2
    assert "--device is cuda, but torch finds no CUDA device" in capsys.readouterr().err
    assert not Path(folder).exists()
    assert main([*command, "--device", "auto"]) == 0


def test_a_text_that_one_experiment_refuses_is_tried_with_the_others(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy = experiments.EXPERIMENTS["toy"]
    wide = dataclasses.replace(toy, name="wide", settings={"data": {"vocab_size": 2}})
    monkeypatch.setitem(experiments.EXPERIMENTS, "wide", wide)
    names = ("wide", "toy")
    assert main(["lab", "run", *names, "--quick", "--threads", "1", "--output", folder]) == 2
    shown = capsys.readouterr()
    assert "toy: One <half> & more" in shown.out
    assert shown.err.splitlines()[-1].startswith(("error: wide: data.vocab_size is 2", "hint"))
    assert main(["lab", "report", "--output", folder]) == 0
    assert "unfinished: wide;" in capsys.readouterr().err


def test_an_experiment_that_can_not_run_is_named_when_the_others_have_run(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve() -> dict[str, float]:
        raise RunError("not enough memory", "it takes about 2 GB")

    toy = experiments.EXPERIMENTS["toy"]
    others = {
        "wide": dataclasses.replace(toy, name="wide", settings={"data": {"vocab_size": 2}}),
        "large": dataclasses.replace(toy, name="large", observe=starve),
    }
    for name, other in others.items():
        monkeypatch.setitem(experiments.EXPERIMENTS, name, other)
    names = ("wide", "large", "toy")
    assert main(["lab", "run", *names, "--quick", "--threads", "1", "--output", folder]) == 1
    shown = capsys.readouterr()
    assert "toy: One <half> & more" in shown.out
    error, hint = shown.err.splitlines()[-2:]
    assert error == "error: large: not enough memory; stopped, too: wide"
    assert hint == "hint: it takes about 2 GB"


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("lab run scalling", "NAME is scalling, accepted is all or one of scaling,", "scaling?"),
        ("lab runs", "ACTION is runs, accepted is one of list, run, report", "run?"),
        ("lab run", "NAME: required", ""),
        ("lab run scaling --quik", "--quik is not an option", "--quick?"),
        ("lab run scaling --seeds 0", "--seeds: '0', accepted is a whole number of 1", ""),
        ("lab run scaling --language xx-yy", "'xx-yy' is not a locale", ""),
        ("lab run scaling --language en", "--language is en, accepted is another one", ""),
        ("lab run scaling --target-language zh", "--target-language is given without files", ""),
        ("lab run scaling --source a", "--source has 1 files and --target 0", ""),
        ("lab run scaling --language de --pairs a.tsv", "--language and files are both given", ""),
        ("lab report --format pdf", "--format is pdf, accepted is one of html, json, png", ""),
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_table_has_the_latest_of_each_variant_and_how_many_are_done(
    toy: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with LabProgress(toy, seeds=3) as progress:
        progress(Trial("base", 1, [(25, 2.0)], {"exact": 0.5}))
        progress(Trial("changed", 1, [(25, 2.0)], failed="the gradient wasn't finite"))
        progress(Trial("base", 2, [(25, 2.0), (1050, 1.0)]))
    last = terminal.getvalue().rpartition("variant")[2].splitlines()
    assert last[1].split() == ["base", "2", "1,050", "1.000", "█▅", "1/3"]
    assert last[2].split() == ["changed", "1", "25", "2.000", "broke", "off", "1/3"]


def test_a_terminal_without_room_shows_the_variants_heard_of_last(
    toy: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    for name, value in (("TERM", "xterm"), ("LINES", "4"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    names = [*"abcde"]
    toy = dataclasses.replace(toy, variants=tuple(map(Variant, names)))
    with LabProgress(toy, seeds=1) as progress:
        for name in ("e", "b", "a", "b"):
            progress(Trial(name, 1, [(25, 2.0)]))
    last = terminal.getvalue().rpartition("variant")[2].splitlines()
    assert [line.split()[0] for line in last[1:3]] == ["a", "b"]


@pytest.mark.parametrize(
    ("trial", "line"),
    [
        (Trial("base", 1, [(3, 2.0)]), "  base                 seed 1  step     3  loss  2.000  █"),
        (Trial("base", 1, [], failed="no luck"), "  base                 seed 1  no luck"),
        (
            Trial("base", 2, [(1000, 0.5)], {"exact": 1.0}),
            "  base                 seed 2  step 1,000  loss  0.500  █  done",
        ),
    ],
)
def test_elsewhere_a_trial_is_a_line(trial: Trial, line: str) -> None:
    assert describe_trial(trial) == line
