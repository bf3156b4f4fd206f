"""Labels that the fonts of a machine can show."""

from __future__ import annotations

import subprocess
import sys

import pytest
from matplotlib.font_manager import fontManager

from dragoman.view.figure import fit_labels


def test_what_the_default_font_has_stays_as_it_is() -> None:
    labels = ["▁Straße", "l'été", "</s>", ""]
    assert fit_labels(labels)[0] == labels
    assert fit_labels(labels)[1]["family"] == ["DejaVu Sans"]


def test_a_character_without_a_font_becomes_its_code_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only_default = [font for font in fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", only_default)
    assert fit_labels(["a你", "\n"])[0] == ["a<U+4F60>", "<U+000A>"]


def test_a_family_is_added_for_what_the_default_font_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"DejaVu Sans": "ab", "Some": "c", "More": "cd", "Last Resort": "abcde"}
    fonts = [
        type("Font", (), {"name": n, "fname": n, "style": "normal", "weight": 400}) for n in have
    ]
    monkeypatch.setattr(fontManager, "ttflist", fonts)
    monkeypatch.setattr("matplotlib.font_manager.findfont", lambda family: family)
    monkeypatch.setattr("dragoman.view.figure._covered", lambda file, cs: set(cs) & set(have[file]))
    labels, properties = fit_labels(["abcde"])
    assert labels == ["abcd<U+0065>"]
    assert properties["family"] == ["DejaVu Sans", "More"]


def test_importing_the_pictures_loads_neither_matplotlib_nor_torch() -> None:
    code = (
        "import dragoman.view.attention, dragoman.view.curves, sys;"
        "print({'matplotlib', 'torch'} & set(sys.modules))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.stdout.strip() == "set()"
