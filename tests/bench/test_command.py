from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.bench import jobs as bench_jobs
from dragoman.bench.jobs import Plan
from dragoman.bench.report import Part, Row, Table
from dragoman.cli.main import main


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        (
            "train --peers tarnsformers",
            "--peers is tarnsformers, accepted is one of torch,",
            "trans",
        ),
        ("train --rounds 0", "--rounds: '0', accepted is a whole number of 1 or more", ""),
        ("trainn", "JOB is trainn, accepted is one of train, decode, memory, start", "train?"),
        ("--model X", "--model is X, accepted is one of S, B", ""),
        ("--output .", ".: not a file, accepted is the name of one", ""),
        ("--plot nowhere/a.png", "nowhere/a.png: there is no folder nowhere", ""),
        ("--source a b --target c", "--source has 2 files and --target 1, accepted is as many", ""),
    ],
)
def test_wrong_use_gives_one_line_that_says_what_is_right(
    capsys: pytest.CaptureFixture[str], line: str, error: str, hint: str
) -> None:
    assert main(["bench", *line.split()]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {error}")
    assert hint in shown.err
    assert shown.out == ""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to write into; jobs that only say what they were asked for."""

    def job(plan: Plan) -> Iterator[Part]:
        assert (plan.folder / "sentences.json").exists()
        plan.say("working")
        yield Table("train", f"sizes {plan.sizes}", "tokens/s", [Row("dragoman", [7.0, 7.0])])

    monkeypatch.setattr(
        "dragoman.bench.jobs.JOBS", dict.fromkeys(("train", "decode", "memory", "start"), job)
    )
    monkeypatch.setattr("dragoman.bench.sentences._PHRASES", 1000)
    return tmp_path


def test_the_table_goes_to_stdout_and_the_rest_to_stderr_and_files(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--output", str(files / "b.json"), "--plot", str(files / "b.png")]
    assert main(["bench", "train", "--batches", "2", *places]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "sizes ['S']",
        "            tokens/s  spread",
        "  dragoman      7.00      0%",
        "",
    ]
    assert shown.err.splitlines() == ["preparing the sentences", "working"]
    report = json.loads((files / "b.json").read_text())
    assert report["environment"]["sentences"]["batches"] == 2
    assert "torch" in report["environment"]["versions"]
    assert (files / "b.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_job_all_run_and_json_is_all_of_stdout(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--format", "json", "--batches", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [part["rows"][0]["median"] for part in report["parts"]] == [7.0] * 4


def test_a_job_that_breaks_off_leaves_the_tables_before_it(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(plan: Plan) -> Iterator[Part]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setitem(bench_jobs.JOBS, "decode", broken_off)
    assert main(["bench", "--batches", "1", "--output", str(files / "b.json")]) == 130
    assert len(json.loads((files / "b.json").read_text())["parts"]) == 1
