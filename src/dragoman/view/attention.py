"""Heat maps of attention, as in figures 3 to 5 of the paper and the alignments before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.view.figure import fit_labels, save_figure

_CELL, _SHORTEST_SIDE, _LONGEST_SIDE = 0.28, 1.6, 60.0
"""Inches: of an ordinary cell, and of all cells together in a tiny and in a huge picture."""
_LONGEST_PIECE, _LONGEST_TITLE = 24, 80


def draw_attention(
    weights: npt.NDArray[np.floating],
    source_pieces: list[str],
    target_pieces: list[str],
    path: Path,
    title: str = "",
    sides: tuple[str, str] = ("source", "target"),
) -> None:
    """Draws which source tokens each target token attends to, as a PNG.

    Args:
        weights: Of shape (target, source), each row the weights of one target token.
        source_pieces: The labels of the columns.
        target_pieces: The labels of the rows.
        path: The file to write, whole or not at all.
        title: Stands above the picture.
        sides: What the tokens of columns and rows are, where they aren't source and target.
    """
    from matplotlib.figure import Figure

    rows, columns = weights.shape
    assert (rows, columns) == (len(target_pieces), len(source_pieces))
    assert weights.size, "attention needs at least one token on both sides"
    cell = min(_CELL, _LONGEST_SIDE / max(rows, columns))
    pieces = [_shorten(piece, _LONGEST_PIECE) for piece in (*source_pieces, *target_pieces)]
    labels, properties = fit_labels([_shorten(title, _LONGEST_TITLE), *pieces])
    properties["fontsize"] = min(9.0, 0.6 * 72 * cell)  # 72 points an inch

    width, height = (max(_SHORTEST_SIDE, cell * count) for count in (columns, rows))
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))  # all else lies outside; the saved file includes it
    image = axes.imshow(weights, cmap="viridis", vmin=0.0, aspect="auto")
    axes.set_xticks(range(columns), labels[1 : 1 + columns], rotation=90, **properties)
    axes.set_yticks(range(rows), labels[1 + columns :], **properties)
    axes.set_xlabel(f"{sides[0]} token")
    axes.set_ylabel(f"{sides[1]} token")
    axes.set_title(labels[0], **{**properties, "fontsize": 10.0})
    colours = figure.add_axes((1 + 0.15 / width, 0, 0.15 / width, 1))
    figure.colorbar(image, cax=colours, label="attention weight")
    save_figure(figure, path)


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
