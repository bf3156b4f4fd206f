"""`dragoman attend --picture`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TEXTS = ("--text", "a b c", "--text", "d")
KEYS = {
    "positions": ["kind", "table", "dot_products"],
    "schedule": ["name", "warmup_steps", "steps", "learning_rates"],
    "masks": ["masks"],
    "shapes": ["sizes", "steps"],
}


@pytest.mark.parametrize("name", KEYS)
def test_each_picture_is_a_png_or_the_numbers_behind_it(
    run: Any, model: Path, tmp_path: Path, name: str
) -> None:
    texts = TEXTS if name in ("masks", "shapes") else ()
    for file in ("a.png", "a.json"):
        finished = run("attend", model, "--picture", name, *texts, "--output", tmp_path / file)
        assert (finished.status, finished.out) == (0, "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert list(json.loads((tmp_path / "a.json").read_text("utf-8"))) == KEYS[name]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--picture mask --output a.png", "--picture is mask, accepted is one of positions"),
        ("--picture masks --output a.png", "--text is given 0 times with masks, accepted is a sen"),
        ("--picture schedule --text a --output a.png", "--text is given 1 times with schedule"),
        ("--picture positions --output a.html", "--output is a.html, accepted is a name that ends"),
        ("--picture positions --target b --output a.png", "--target is given with --picture"),
        ("--output a.png", "--text is given 0 times, accepted is once"),
        ("--text a --text b --output a.png", "--text is given 2 times, accepted is once"),
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
