"""Two systems against each other: sacreBLEU's own tests, and what is made of them."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import InputError
from dragoman.evaluation.bleu import METRICS, Score, evaluate
from dragoman.evaluation.significance import (
    MOST_SAMPLES,
    Difference,
    Significance,
    compare,
    compare_scores,
)

WORDS = ("the", "a", "cat", "dog", "sat", "ran", "on", "mat", "and", "then", "it", "was", "so")
RIGHT = [" ".join(random.Random(line).choices(WORDS, k=11)) for line in range(31)]


def damage(share: float, seed: int) -> list[str]:
    """Returns the right lines with a share of the words replaced."""
    chance = random.Random(seed)
    return [
        " ".join(chance.choice(WORDS) if chance.random() < share else word for word in line.split())
        for line in RIGHT
    ]


GOOD, ALIKE, BAD = damage(0.2, 1), damage(0.2, 2), damage(0.5, 3)


def differ(a: list[str], b: list[str], metric: str = "bleu", seed: int = 12345) -> Difference:
    (found,) = compare(a, b, [RIGHT], [metric], samples=101, seed=seed)
    return found


def significance(a: list[str], b: list[str], seed: int = 12345) -> Significance:
    found = differ(a, b, seed=seed).significance
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["bs", "ar"])
def test_p_and_interval_equal_those_of_sacrebleus_own_command(kind: str, tmp_path: Path) -> None:
    for name, lines in (("right", RIGHT), ("a", GOOD), ("b", ALIKE)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), "utf-8")
    command = f"-m sacrebleu right -i a b -m bleu -f json --paired-{kind} --paired-{kind}-n 101"
    finished = subprocess.run(
        [sys.executable, *command.split(" ")],
        cwd=tmp_path,
        env={**os.environ, "SACREBLEU_SEED": "17"},
        capture_output=True,
        check=True,
    )
    system_a, system_b = (system["BLEU"] for system in json.loads(finished.stdout))
    found = significance(GOOD, ALIKE, seed=17)
    p = {"bs": found.p_bootstrap, "ar": found.p_randomization}[kind]
    assert p == system_b["p_value"]
    if kind == "bs":
        for interval, system in ((found.interval_a, system_a), (found.interval_b, system_b)):
            low, high = system["mean"] - system["ci"], system["mean"] + system["ci"]
            assert interval == pytest.approx((low, high))


@pytest.mark.parametrize("before", [None, "5"])
def test_the_environment_is_as_before(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if before is not None:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    assert significance(GOOD, BAD) == significance(GOOD, BAD)
    assert os.environ.get("SACREBLEU_SEED") == before


def test_another_seed_draws_other_samples() -> None:
    assert significance(GOOD, ALIKE, 1).interval_a != significance(GOOD, ALIKE, 2).interval_a


@pytest.mark.parametrize("metric", METRICS)
def test_the_scores_and_signatures_are_those_of_evaluate(metric: str) -> None:
    found = differ(GOOD, BAD, metric)
    (alone,) = evaluate(GOOD, [RIGHT], [metric])
    assert (found.name, found.signature) == (metric, alone.signature)
    assert found.a == pytest.approx(alone.value)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_the_better_system_is_named_whichever_comes_first(metric: str) -> None:
    first, second = differ(GOOD, BAD, metric), differ(BAD, GOOD, metric)
    assert first.conclusion == "A is better (p = 0.0098)"
    assert second.conclusion == "B is better (p = 0.0098)"
    assert first.difference == -second.difference


def test_systems_of_one_quality_are_not_told_apart() -> None:
    assert differ(GOOD, ALIKE).conclusion.startswith("no difference shown (p = 0.")


def test_the_same_translations_are_equal_though_sacrebleu_gives_them_the_smallest_p() -> None:
    found = differ(GOOD, GOOD)
    assert found.conclusion == "the scores are equal"
    assert found.significance is not None
    assert found.significance.p == 1 / 102


@given(st.integers(0, 30))
@settings(max_examples=5, deadline=None)
def test_one_better_line_shows_no_difference(line: int) -> None:
    better = [*GOOD[:line], RIGHT[line], *GOOD[line + 1 :]]
    found = differ(GOOD, better)
    assert "better" not in found.conclusion
    assert found.significance is not None
    assert found.significance.p == found.significance.p_bootstrap


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"b": GOOD[:3]}, "the hypotheses have 3 lines and reference 1 has 31"),
        ({"references": []}, "0 references are given"),
        ({"metrics": ["chrf", "blue"]}, "metric is 'blue'"),
        ({"tokenize": "13b"}, "tokenize is '13b'"),
        ({"samples": MOST_SAMPLES + 1}, "samples is 10001, accepted is 1 to 10,000"),
    ],
)
def test_wrong_use_is_told_before_anything_is_tested(
    changes: dict[str, object], error: str
) -> None:
    arguments = {"a": GOOD, "b": BAD, "references": [RIGHT], **changes}
    with pytest.raises(InputError, match=error):
        compare(**arguments)  # type: ignore[arg-type]


def test_saved_scores_give_their_difference_and_no_test() -> None:
    metrics = ("bleu", "chrf", "ter")
    good, bad = (evaluate(lines, [RIGHT], metrics) for lines in (GOOD, BAD))
    found = compare_scores(good, bad[::-1])
    assert [each.name for each in found] == list(metrics)
    assert [each.difference for each in found] == [
        theirs.value - ours.value for ours, theirs in zip(good, bad, strict=True)
    ]
    assert all("needs the lines themselves" in each.conclusion for each in found)


SAVED = Score("bleu", 31.0, "nrefs:1|tok:13a", {"reference_length": 341})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"signature": "nrefs:1|tok:zh"}, r"of bleu differ, nrefs:1\|tok:13a .*:1\|tok:zh \(B\)"),
        ({"name": "ter"}, "A has the metrics bleu and B ter, accepted is the same"),
        ({"details": {"reference_length": 347}}, r"bleu differ, they have 341 .* 347 \(B\)"),
    ],
)
def test_scores_that_may_not_be_compared_are_refused(
    changes: dict[str, object], error: str
) -> None:
    with pytest.raises(InputError, match=error):
        compare_scores([SAVED], [dataclasses.replace(SAVED, **changes)])  # type: ignore[arg-type]


def test_with_several_references_their_length_may_differ() -> None:
    several = dataclasses.replace(SAVED, signature="nrefs:2|tok:13a")
    other = dataclasses.replace(several, details={"reference_length": 347})
    assert compare_scores([several], [other])[0].conclusion == "the scores are equal"


def test_importing_the_module_loads_neither_sacrebleu_nor_torch() -> None:
    module = "dragoman.evaluation.significance"
    code = f"import {module}, sys; print({{'sacrebleu', 'numpy', 'torch'}} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.stdout.strip() == "set()"
