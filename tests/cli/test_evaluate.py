from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

LINES = ["the cat sat on the mat today", "it was a well-known cat", "a dog came by", "so it left"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("right").write_text("".join(line + "\n" for line in LINES))
    Path("upper").write_text("".join(line.title() + "\n" for line in LINES))
    Path("short").write_text("".join(line + "\n" for line in LINES[:3]))
    Path("empty").write_text("")


@pytest.mark.usefixtures("files")
def test_each_score_has_a_line_with_its_signature(run: Any) -> None:
    metrics = ("bleu", "chrf", "ter", "paper", "multi-bleu", "multi-bleu-lc")
    finished = run(
        "evaluate", "--hypotheses", "right", "--reference", "right", "--metrics", *metrics
    )
    lines = finished.out.splitlines()
    assert [line.split()[0] for line in lines] == list(metrics)
    assert [line.split()[1] for line in lines] == ["100.00", "100.00", "0.00", *["100.00"] * 3]
    assert all("nrefs:1|" in line and "version:" in line for line in lines)


@pytest.mark.usefixtures("files")
def test_json_has_the_details_and_several_references_are_one_score(run: Any) -> None:
    finished = run(
        *("evaluate", "--hypotheses", "upper", "--reference", "right", "upper"),
        *("--metrics", "bleu", "--format", "json", "--tokenize", "none"),
    )
    [score] = json.loads(finished.out)
    assert score["value"] == pytest.approx(100)
    assert "nrefs:2" in score["signature"]
    assert "tok:none" in score["signature"]
    assert score["details"]["reference_length"] == 19


@pytest.mark.usefixtures("files")
def test_a_model_translates_first_and_its_language_chooses_the_tokeniser(
    run: Any, model: Path
) -> None:
    arguments = ("evaluate", model, "--source", "right", "--reference", "right")
    assert "tok:zh" in run(*arguments).out
    assert "tok:13a" in run(*arguments, "--target-language", "de").out


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--hypotheses short --reference right", "short has 3 lines and right has 4, accepted"),
        ("--hypotheses right --reference right short", "right has 4 lines and short has 3"),
        ("--hypotheses empty --reference empty", "the hypotheses have 0 lines"),
        ("--reference right", "accepted is one of MODEL with --source, and --hypotheses"),
        ("m --hypotheses right --reference right", "accepted is one of MODEL with --source, and"),
        ("m --reference right", "accepted is MODEL together with --source"),
        ("--hypotheses right --source right --reference right", "accepted is MODEL together with"),
        ("--hypotheses nope --reference right", "nope: no such file"),
        ("m --source right --reference right", "m: no such model"),
        (
            "--hypotheses right --reference right --metrics blue",
            "metric is 'blue', accepted is one of bleu, chrf, ter, paper, multi-bleu, multi-bleu-lc"
            "\nhint: did you mean bleu?",
        ),
        ("--hypotheses right --reference right --tokenize 13", "tokenize is '13', accepted is"),
    ],
)
def test_wrong_use_is_told(run: Any, arguments: str, error: str) -> None:
    finished = run("evaluate", *arguments.split())
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith(f"error: {error}")
