"""The pictures of `dragoman attend --picture`: each drawn from a running model, or as numbers."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli import runtime
from dragoman.config import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from dragoman.decoding.translator import Translator
    from dragoman.model.transformer import Transformer

Numbers = dict[str, Any]
Draw = Callable[[Path], None]

_WITH_TEXT = ("masks", "shapes")
PICTURES = ("positions", "schedule", *_WITH_TEXT)
"""What --picture accepts."""


def write_picture(arguments: argparse.Namespace, output: Path, translator: Translator) -> None:
    """Writes the picture that was asked for, or with .json the numbers behind it.

    Raises:
        InputError: for another kind of file, a text where none counts, or none where one does.
    """
    name, texts = arguments.picture, getattr(arguments, "text", [])
    if output.suffix not in (".png", ".json"):
        raise InputError(f"--output is {output}, accepted is a name that ends in .png, .json")
    if (name in _WITH_TEXT) != bool(texts):
        accepted = "a sentence or several" if name in _WITH_TEXT else "none"
        raise InputError(f"--text is given {len(texts)} times with {name}, accepted is {accepted}")
    for option in ("target", "without"):
        if option in arguments:
            raise InputError(f"--{option} is given with --picture {name}, accepted is one of them")
    numbers, draw = _read(name, arguments, translator)
    if output.suffix == ".png":
        draw(output)
        return
    from dragoman.data.atomic import write_text

    write_text(output, json.dumps(numbers, default=lambda array: array.tolist()) + "\n")


def _read(name: str, arguments: argparse.Namespace, translator: Translator) -> tuple[Numbers, Draw]:
    """Returns the numbers, and what draws them."""
    from dragoman.view.reading import model_of

    model = model_of(translator)
    if name == "schedule":
        from dragoman.checkpoint import ModelFolder
        from dragoman.view.curves import draw_schedule, read_schedule

        training = ModelFolder(Path(arguments.path)).read_config().training
        schedule = read_schedule(training, model.config.d_model)
        return dataclasses.asdict(schedule), lambda path: draw_schedule(schedule, path)
    if name == "positions":
        from dragoman.view.positions import draw_positions, read_positions

        table = read_positions(model)
        return dataclasses.asdict(table), lambda path: draw_positions(table, path)

    from dragoman.model.transformer import Transformer

    if not isinstance(model, Transformer):
        raise InputError(
            f"--picture {name} is asked of a {model.config.architecture} model, accepted is a "
            f"transformer"
        )
    source, target = _batch(arguments, translator, model)
    return _read_batch(name, model, source, target)


def _read_batch(
    name: str, model: Transformer, source: Tensor, target: Tensor
) -> tuple[Numbers, Draw]:
    if name == "masks":
        from dragoman.view.masks import draw_masks, read_masks

        masks = read_masks(model, source, target)
        numbers: Numbers = {"masks": [dataclasses.asdict(mask) for mask in masks]}
        return numbers, lambda path: draw_masks(masks, path)
    from dragoman.view.shapes import draw_shapes, trace_shapes

    config, steps = model.config, trace_shapes(model, source)
    sizes = {
        "batch": source.shape[0],
        "source": source.shape[1],
        "d_model": config.d_model,
        "heads": config.num_heads,
        "d_k": config.d_k,
        "d_v": config.d_v,
    }
    numbers = {"sizes": sizes, "steps": [dataclasses.asdict(step) for step in steps]}
    return numbers, lambda path: draw_shapes(steps, sizes, path)


def _batch(
    arguments: argparse.Namespace, translator: Translator, model: Transformer
) -> tuple[Tensor, Tensor]:
    """Returns the texts and their translations as ids, each (batch, length)."""
    from dragoman.decoding.stepper import pad_ids
    from dragoman.view.reading import read

    config = runtime.decoding_config(arguments)
    readings = [read(translator, text, None, config) for text in arguments.text]
    sides: Sequence[list[list[int]]] = (
        [each.source.ids for each in readings],
        [each.target.ids for each in readings],
    )
    source, target = (pad_ids(ids, model.output_weight.device) for ids in sides)
    return source, target
