"""What every picture shares: labels that any text can be, and a file that is whole or absent.

matplotlib is imported where it is used, and never its pyplot, which keeps figures for the whole
process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.data.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULT_FAMILY = "DejaVu Sans"
"""The family that comes with matplotlib."""


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure, with all labels that stick out of it, as a PNG."""
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120, bbox_inches="tight")


def fit_labels(labels: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Fits labels to the fonts of this machine.

    Returns:
        The labels, each character that no font has written as its code point, such as `<U+4F60>`;
        and the text properties to draw them with: fonts, and no dollar sign starts a formula.
    """
    characters = {c for label in labels for c in label if c.isprintable()}
    families, drawn = _families_for(characters)
    fitted = ["".join(c if c in drawn else f"<U+{ord(c):04X}>" for c in label) for label in labels]
    return fitted, {"family": families, "parse_math": False}


def _families_for(characters: Collection[str]) -> tuple[list[str], set[str]]:
    """Chooses installed font families; returns them and the characters that they have.

    The default comes first. Then always the family that has most of what is still missing.
    """
    from matplotlib.font_manager import findfont, fontManager

    covered = _covered(findfont(_DEFAULT_FAMILY), characters)
    families, drawn = [_DEFAULT_FAMILY], covered
    if drawn == set(characters):
        return families, drawn
    coverage = {
        font.name: _covered(font.fname, characters)
        for font in sorted(fontManager.ttflist, key=lambda font: font.name)
        # the last resort has a box for everything; a colour font can't be drawn
        if (font.style, font.weight) == ("normal", 400)
        and not any(kind in font.name for kind in ("Last Resort", "LastResort", "Emoji"))
    }
    while coverage:
        family = max(coverage, key=lambda name: len(coverage[name] - drawn))
        gain = coverage.pop(family) - drawn
        if not gain:
            break
        families.append(family)
        drawn |= gain
    return families, drawn


def _covered(font_file: str, characters: Collection[str]) -> set[str]:
    from matplotlib.font_manager import get_font

    glyphs = get_font(font_file).get_charmap()
    return {character for character in characters if ord(character) in glyphs}
