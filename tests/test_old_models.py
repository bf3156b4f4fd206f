"""Models of every format that there has been, replayed for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dragoman

MODELS = Path(__file__).parent / "models"


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.iterdir() if path.is_dir()))
def test_an_old_model_translates_as_it_did_when_it_was_made(name: str) -> None:
    expected = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    translator = dragoman.load(MODELS / name, device="cpu", precision="float32")
    found = translator.translate([row["source"] for row in expected])
    for translation, row in zip(found, expected, strict=True):
        assert (translation.text, translation.tokens) == (row["text"], row["tokens"])
        assert translation.log_probability == pytest.approx(row["log_probability"], abs=1e-4)
