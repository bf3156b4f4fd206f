from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def test_a_picture_is_a_png(run: Any, model: Path, tmp_path: Path) -> None:
    finished = run("attend", model, "--text", "a b c", "--output", tmp_path / "a.png")
    assert (finished.status, finished.out) == (0, "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("target", [(), ("--target", "c b")])
def test_json_has_a_row_of_weights_for_each_target_token(
    run: Any, model: Path, tmp_path: Path, target: tuple[str, ...]
) -> None:
    run("attend", model, "--text", "a b c", *target, "--output", tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    weights = np.array(found["weights"])
    assert found["source"] == ["▁a", "▁b", "▁c", "</s>"]
    assert weights.shape == (len(found["target"]), 4)
    assert weights.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    if target:
        assert found["target"] == ["▁c", "▁b", "</s>"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--text a --output a.html", "--output is a.html, accepted is a name that ends in .png or"),
        ("--text a --output no/a.png", "no/a.png: there is no folder no"),
        ("--text= --output a.png", "the text '' gives no attention to look at"),
        ("--text= --target=a --output a.png", "the text '' gives no attention to look at"),
    ],
)
def test_wrong_use_leaves_no_picture(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    finished = run("attend", model, *options.split())
    assert finished.status == 2
    assert finished.error.startswith(f"error: {error}")
    assert list(tmp_path.iterdir()) == []
