"""The vectors that a model adds for positions (section 3.5), and how alike they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dragoman.config import InputError
from dragoman.model.positions import NoPositions
from dragoman.model.seq2seq import Seq2Seq
from dragoman.view.figure import save_figure

_MOST = 128
"""Positions that are shown, where the model has no fewer."""


@dataclass(frozen=True)
class PositionTable:
    """What is added at each position."""

    kind: str
    """As `model.positions` names it."""
    table: npt.NDArray[np.float64]
    """(position, d_model)."""
    dot_products: npt.NDArray[np.float64]
    """(position, position): table @ table.T."""


def read_positions(model: Seq2Seq) -> PositionTable:
    """Sends zeros through the positions of a model's source side.

    Raises:
        InputError: for a model that adds none.
    """
    positions, kind = model.source_embedding.positions, model.config.positions
    if isinstance(positions, NoPositions):
        raise InputError(
            f"model.positions is {kind}, accepted for a picture is a model that adds positions "
            f"to embeddings (sinusoidal, learned)"
        )
    length = min(_MOST, model.max_length or _MOST)
    zeros = model.output_weight.new_zeros(1, length, model.config.d_model)
    with torch.inference_mode():
        table = positions(zeros)[0].double().cpu().numpy()
    return PositionTable(kind, table, table @ table.T)


def draw_positions(found: PositionTable, path: Path) -> None:
    """Draws table and dot products, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    most = np.abs(found.table).max()
    image = left.imshow(found.table, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    left.set_title(f"{found.kind} positions, {' x '.join(map(str, found.table.shape))}")
    left.set_xlabel("dimension")
    left.set_ylabel("position (tokens)")
    figure.colorbar(image, ax=left, label="added to the embedding")
    image = right.imshow(found.dot_products, cmap="viridis", aspect="equal")
    right.set_title("dot products of positions")
    right.set_xlabel("position (tokens)")
    right.set_ylabel("position (tokens)")
    figure.colorbar(image, ax=right, label="dot product")
    save_figure(figure, path)
