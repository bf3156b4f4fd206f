from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_the_score_of_a_translation_is_the_decoders_own(
    run: Any, model: Path, tmp_path: Path
) -> None:
    source = b"a b\nc\n"
    shown = run("translate", model, "--format", "jsonl", "--beam-size", 1, stdin=source).out
    found = [json.loads(line) for line in shown.splitlines()]
    ended = [each for each in found if "cut" not in each["flags"]]
    (tmp_path / "s").write_bytes(source)
    (tmp_path / "t").write_text("".join(each["text"] + "\n" for each in found), "utf-8")
    finished = run("score", model, "--source", tmp_path / "s", "--target", tmp_path / "t")
    scores = [float(line) for line in finished.out.splitlines()]
    assert len(scores) == 2
    for each in ended:
        assert scores[found.index(each)] == pytest.approx(each["log_probability"], abs=1e-3)


def test_every_digit_of_a_score_is_printed(run: Any, model: Path, text: tuple[Path, Path]) -> None:
    finished = run("score", model, "--source", text[0], "--target", text[1])
    lines = finished.out.splitlines()
    assert len(lines) == 200
    assert all(repr(float(line)) == line for line in lines)


def test_an_ensemble_of_a_model_and_itself_scores_as_the_model(
    run: Any, model: Path, text: tuple[Path, Path]
) -> None:
    options = ("--source", text[0], "--target", text[1], "--precision", "float32")
    alone, together = (
        [float(line) for line in run("score", model, *options, *more).out.splitlines()]
        for more in ((), ("--ensemble", model, model))
    )
    assert together == pytest.approx(alone, abs=1e-4)


def test_files_of_unequal_length_are_refused_with_both_counts(
    run: Any, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "three").write_text("a\nb\nc\n")
    (tmp_path / "two").write_text("a\nb\n")
    finished = run("score", model, "--source", tmp_path / "three", "--target", tmp_path / "two")
    assert (finished.status, finished.out) == (2, "")
    assert f"{tmp_path / 'three'} has 3 lines and {tmp_path / 'two'} has 2" in finished.error


def test_sources_that_lose_their_end_are_counted(run: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a b\n" + "a b c d " * 600 + "\n")
    (tmp_path / "t").write_text("b a\nb\n")
    finished = run("score", model, "--source", tmp_path / "s", "--target", tmp_path / "t")
    assert finished.status == 0
    assert "cut 1 of the lines: longer than 1,024 tokens" in finished.err
