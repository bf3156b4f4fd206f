from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

LINES = [
    "the cat sat on the mat today",
    "it was a well-known cat of ours",
    "a dog came by and ran away again",
    "so it left the old house at night",
    "nobody saw where the two of them went",
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in (
        ("right", LINES),
        ("good", [line.replace("the", "a") for line in LINES]),
        ("bad", [" ".join(line.split()[::-1]) for line in LINES]),
        ("short", LINES[:3]),
        ("empty", []),
        ("jsonlike", ["[1, 2]", *LINES[1:]]),
    ):
        Path(name).write_text("".join(line + "\n" for line in lines))
    for name, options in (("good", ()), ("bad", ()), ("good", ("--tokenize", "char"))):
        command = ("evaluate", "--hypotheses", name, "--reference", "right", "--format", "json")
        Path("-".join(("saved", name, *options[1:]))).write_text(run(*command, *options).out)


@pytest.mark.parametrize(
    "order",
    [
        "--reference right right good bad",
        "good bad --reference right right",
        "--reference right right --seed 12345 good bad",
    ],
)
def test_each_metric_has_scores_intervals_p_and_a_sentence(run: Any, order: str) -> None:
    finished = run("compare", *order.split(), "--samples", 53)
    assert finished.status == 0
    names, bleu, chrf = finished.out.split("\n\n")
    assert names == "A: good\nB: bad"
    assert bleu.startswith("bleu  nrefs:2|case:mixed|eff:no|tok:13a|")
    assert chrf.startswith("chrf  nrefs:2|")
    assert "95 % of 53 samples" in bleu
    assert "by bootstrap" in bleu
    assert "by 53 random swaps; seed 12345" in bleu
    assert bleu.splitlines()[-1].startswith("  A is better (p = 0.0")
    assert finished.err.startswith("testing 5 lines")


def test_json_has_every_figure(run: Any) -> None:
    command = ("compare", "good", "bad", "--reference", "right", "--metrics", "ter", "paper")
    options = ("--target-language", "de", "--samples", 53, "--seed", 7, "--format", "json")
    ter, paper = json.loads(run(*command, *options).out)
    assert ter["difference"] == ter["b"] - ter["a"] > 0
    assert ter["conclusion"].startswith("A is better")
    assert "+compounds" in paper["signature"]
    assert 0 < ter["significance"]["p_bootstrap"] <= 1
    assert 0 < ter["significance"]["p_randomization"] <= 1
    low, high = ter["significance"]["interval_a"]
    assert low < ter["a"] < high
    assert ter["significance"]["seed"] == 7


def test_saved_scores_of_one_signature_are_compared(run: Any) -> None:
    finished = run("compare", "saved-good", "saved-bad")
    assert finished.status == 0
    assert finished.out.startswith("A: saved-good\nB: saved-bad\n\nbleu  nrefs:1|")
    assert finished.out.count("not tested: a significance test needs the lines themselves") == 2
    assert finished.err == ""


def test_text_that_happens_to_be_json_is_text(run: Any) -> None:
    assert run("compare", "jsonlike", "good", "--reference", "right", "--samples", 2).status == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("short good --reference right", "short has 3 lines and good has 5, accepted is as many"),
        ("good bad --reference right short", "good has 5 lines and short has 3"),
        ("empty empty --reference empty", "the hypotheses have 0 lines"),
        ("good bad", "--reference: required, but not given"),
        ("good --reference right", "HYPOTHESES: 1 given, accepted is 2"),
        ("--reference right", "HYPOTHESES: 1 given, accepted is 2"),
        ("", "HYPOTHESES: 0 given, accepted is 2"),
        ("nope bad --reference right", "nope: no such file"),
        ("good bad --reference right --metrics blue", "metric is 'blue', accepted is one of bleu"),
        ("good bad --reference right --samples 10001", "samples is 10001, accepted is 1 to 10,000"),
        ("good bad --reference right --seed 0", "--seed: '0', accepted is a whole number of 1"),
        ("saved-good bad --reference right", "saved-good and bad: one is saved scores, the other"),
        ("saved-good saved-good-char", "the signatures of bleu differ, nrefs:1|case:mixed|eff:no|"),
        ("saved-good saved-bad --reference right", "saved-good holds saved scores, accepted is no"),
        ("saved-good saved-bad --seed 3", "saved-good holds saved scores, accepted is no option"),
    ],
)
def test_wrong_use_is_told(run: Any, arguments: str, error: str) -> None:
    finished = run("compare", *arguments.split())
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith(f"error: {error}")


@pytest.mark.parametrize(
    "damaged", ['[{"name": 3}]', '[{"name": "bleu", "value": "x", "signature": "", "details": {}}]']
)
def test_damaged_saved_scores_are_taken_for_text(run: Any, damaged: str) -> None:
    Path("damaged").write_text(damaged)
    assert "one is saved scores" in run("compare", "damaged", "saved-good").error


def test_want_of_memory_has_a_hint_that_helps(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("dragoman.evaluation.significance.compare", compare)
    finished = run("compare", "good", "bad", "--reference", "right")
    assert finished.status == 1
    assert finished.error == "error: not enough memory\nhint: fewer --samples need less"
