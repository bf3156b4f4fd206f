"""`--without`, where a translation is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HEAD = "decoder.layers.0.cross_attention.head.0"
LINES = b"a b c\n\nd e\n"


def test_each_line_has_the_text_before_and_after(run: Any, model: Path) -> None:
    whole = run("translate", model, stdin=LINES).out
    both = run("translate", model, "--without", "positions", "--without", HEAD, stdin=LINES)
    pairs = [line.split("\t") for line in both.out.removesuffix("\n").split("\n")]
    assert "".join(before + "\n" for before, _ in pairs) == whole.replace("\t", " ")
    assert [len(pair) for pair in pairs] == [2, 2, 2]
    assert pairs[1] == ["", ""]


def test_jsonl_has_both_with_all_that_is_known_of_them(run: Any, model: Path) -> None:
    whole = run("translate", model, "--format", "jsonl", stdin=LINES).out.splitlines()
    both = run("translate", model, "--format", "jsonl", "--without", HEAD, stdin=LINES)
    for line, before in zip(both.out.splitlines(), whole, strict=True):
        pair = json.loads(line)
        assert list(pair) == ["before", "after"]
        assert pair["before"] == json.loads(before)
        assert pair["after"].keys() == pair["before"].keys()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--without", HEAD[:-1] + "2"), f"'{HEAD[:-1]}2' is not a part of this model"),
        (("--without", "decoder.layers.0"), "all of the layers decoder.layers.* are to be taken"),
        (("--without", HEAD, "--ensemble", "m"), "--without and --ensemble are both given"),
    ],
)
def test_wrong_use_is_one_line(run: Any, model: Path, options: tuple[str, ...], error: str) -> None:
    finished = run("translate", model, *options, stdin=LINES)
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith(f"error: {error}")


def test_an_unknown_part_comes_with_those_near_it(run: Any, model: Path) -> None:
    finished = run("translate", model, "--without", HEAD[:-1] + "2", stdin=LINES)
    assert f"hint: did you mean {HEAD}" in finished.error or HEAD[:-1] + "1" in finished.error
