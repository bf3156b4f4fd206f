"""A trained model without one of its parts, to see what the part was good for."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.config import InputError, ModelConfig
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.transformer import Transformer

_SWITCHES: dict[str, dict[str, Any]] = {
    "scaling": {"scale_scores": False},
    "positions": {"positions": "none"},
    "padding-mask": {"padding_mask": False},
    "causal-mask": {"causal_mask": False},
}
"""By name: the setting of a model that never had the part."""

_HEAD = re.compile(r"(?P<attention>.+)\.head\.(?P<head>\d+)")
_LAYER = re.compile(r"(?P<stack>encoder|decoder)\.layers\.(?P<layer>\d+)")

Arrays = dict[str, npt.NDArray[Any]]


def without(model: Transformer, names: Iterable[str]) -> Transformer:
    """Returns a model of the same weights in which the named parts are missing.

    A head adds nothing to its attention's output (zero ablation): its columns of `out_proj` are
    zero. A layer is left out, and those behind it move up. All else is as in a model that was
    configured without, so that every way of running a model takes part.

    Args:
        model: stays as it is.
        names: as `removable_parts` has them, all of the whole model, in any order.

    Raises:
        InputError: if the model has no such part, or a stack would be left without layers.
    """
    names, parts = list(dict.fromkeys(names)), removable_parts(model)
    for name in names:
        if name not in parts:
            raise InputError(
                f"{name!r} is not a part of this model that can be taken away, accepted are heads, "
                f"layers, {', '.join(_SWITCHES)}",
                _nearest(name, parts),
            )
    arrays, config = model.to_arrays(), model.config
    for name in names:
        if match := _HEAD.fullmatch(name):
            _silence(arrays, match["attention"], int(match["head"]), config.d_v)
    for stack in ("encoder", "decoder"):
        left_out = {
            int(match["layer"])
            for name in names
            if (match := _LAYER.fullmatch(name)) and match["stack"] == stack
        }
        arrays, config = _leave_out(arrays, config, stack, left_out)
    for name in names:
        config = dataclasses.replace(config, **_SWITCHES.get(name, {}))
    if config.positions == "none":
        arrays = {key: arrays[key] for key in arrays if not key.endswith(".positions.weight")}
    cut = Transformer(config)
    cut.to(model.output_weight).load_arrays(arrays)
    return cut.train(model.training)


def removable_parts(model: Transformer) -> list[str]:
    """Returns the names of all that `without` can take away from a model.

    Such as `decoder.layers.1.cross_attention.head.3`, `encoder.layers.0`, `scaling`; of the
    switches those that are not off already.
    """
    layers = [
        f"{stack}.layers.{n}"
        for stack in ("encoder", "decoder")
        for n in range(len(model.get_submodule(stack).layers))  # type: ignore[arg-type]
    ]
    heads = [
        f"{name}.head.{head}"
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
        for head in range(module.num_heads)
    ]
    on = [
        name
        for name, setting in _SWITCHES.items()
        if dataclasses.replace(model.config, **setting) != model.config
    ]
    return [*on, *layers, *heads]


def _nearest(name: str, parts: list[str]) -> str:
    near = difflib.get_close_matches(name, parts, n=3) or parts[:3]
    return f"did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?"


def _silence(arrays: Arrays, attention: str, head: int, d_v: int) -> None:
    arrays[f"{attention}.out_proj.weight"][:, head * d_v : (head + 1) * d_v] = np.float32(0)


def _leave_out(
    arrays: Arrays, config: ModelConfig, stack: str, left_out: set[int]
) -> tuple[Arrays, ModelConfig]:
    """Drops the arrays of some layers and numbers the rest anew."""
    field = f"num_{stack}_layers"
    kept = [n for n in range(getattr(config, field)) if n not in left_out]
    if not kept:
        raise InputError(
            f"all of the layers {stack}.layers.* are to be taken away, accepted is to leave one"
        )
    place = {str(n): str(new) for new, n in enumerate(kept)}
    moved: Arrays = {}
    for name, array in arrays.items():
        layer = re.match(rf"{stack}\.layers\.(\d+)\.", name)
        if layer is None:
            moved[name] = array
        elif layer[1] in place:
            moved[f"{stack}.layers.{place[layer[1]]}.{name[layer.end() :]}"] = array
    number: dict[str, Any] = {field: len(kept)}
    return moved, dataclasses.replace(config, **number)
