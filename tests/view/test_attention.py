"""Pictures of attention."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.view.attention import draw_attention

PNG = b"\x89PNG\r\n\x1a\n"


@given(target=st.integers(1, 5), source=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_weights_of_any_size_become_a_png(target: int, source: int, seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(source), size=target)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attention.png"
        draw_attention(weights, ["▁a"] * source, ["▁b"] * target, path)
        assert path.read_bytes().startswith(PNG)
        assert list(Path(folder).iterdir()) == [path]


@pytest.mark.parametrize(
    "piece",
    [
        "你好",
        "ありがとう",
        "$x^$",
        "\\frac{",
        "\n",
        "\x00",
        "\u2028",
        "🙂",
        "</s>",
        "",
        "a你" * 999,
    ],
)
def test_a_piece_of_any_characters_is_drawn_without_a_warning(piece: str, tmp_path: Path) -> None:
    draw_attention(np.ones((1, 2)) / 2, [piece, "a"], [piece], tmp_path / "a.png", title=piece)
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_weights_that_are_all_zero_are_drawn(tmp_path: Path) -> None:
    draw_attention(np.zeros((2, 3)), list("abc"), list("de"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_long_sentence_makes_no_endless_picture(tmp_path: Path) -> None:
    draw_attention(np.ones((1, 503)), ["a"] * 503, ["b" * 503], tmp_path / "a.png")
    width = int.from_bytes((tmp_path / "a.png").read_bytes()[16:20])
    assert width < 10_000


def test_labels_that_do_not_fit_the_weights_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        draw_attention(np.ones((2, 3)), list("ab"), list("abc"), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
