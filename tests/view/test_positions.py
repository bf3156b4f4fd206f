from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dragoman.config import InputError
from dragoman.decoding.translator import Translator
from dragoman.view.positions import draw_positions, read_positions
from dragoman.view.reading import model_of


def test_the_table_is_the_papers_and_its_products_depend_on_distance_alone(
    make_translator: Callable[..., Translator],
) -> None:
    found = read_positions(model_of(make_translator(d_model=10)))
    assert (found.kind, found.table.shape) == ("sinusoidal", (128, 10))
    position, i = np.arange(128)[:, None], np.arange(5)
    angles = position / 10000.0 ** (2 * i / 10)
    np.testing.assert_allclose(found.table[:, 0::2], np.sin(angles), atol=1e-5)
    np.testing.assert_allclose(found.table[:, 1::2], np.cos(angles), atol=1e-5)
    for distance in (0, 1, 7):
        np.testing.assert_allclose(
            found.dot_products.diagonal(distance), found.dot_products[0, distance], atol=1e-4
        )


def test_learned_positions_are_shown_as_far_as_they_go(
    make_translator: Callable[..., Translator], tmp_path: Path
) -> None:
    model = model_of(make_translator(positions="learned", max_positions=13))
    found = read_positions(model)
    weight = model.source_embedding.positions.weight.detach().numpy()
    np.testing.assert_array_equal(found.table, weight)
    np.testing.assert_array_equal(found.dot_products, found.table @ found.table.T)
    draw_positions(found, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("positions", ["none", "alibi", "rotary"])
def test_a_model_that_adds_no_positions_has_no_table(
    make_translator: Callable[..., Translator], positions: str
) -> None:
    with pytest.raises(InputError, match=f"model.positions is {positions}, accepted"):
        read_positions(model_of(make_translator(positions=positions)))
