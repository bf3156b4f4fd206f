"""Who may attend to whom in a real batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dragoman.model.attention import KeysValues
from dragoman.model.masks import AttentionMask, sequence_lengths
from dragoman.model.transformer import Transformer
from dragoman.view.figure import save_figure

_MOST = 4
"""Sentences that are drawn."""


@dataclass(frozen=True)
class Mask:
    """A mask, with the name of the attention that it is for."""

    name: str
    allowed: npt.NDArray[np.bool_]
    """(batch, query, key), True = may attend."""
    shape: tuple[int, ...] | None
    """As the model makes it, 1 where all share it; None where it needs none, for all see all."""


def read_masks(model: Transformer, source: Tensor, target: Tensor) -> list[Mask]:
    """Sees which masks the attentions of a model are given.

    Args:
        model: stays as it is.
        source: ids (batch, source), with EOS, padded on the right.
        target: ids (batch, target), with EOS, padded on the right.

    Returns:
        Those of encoder, decoder and cross-attention, which a model without has not; and what a
        causal mask is together with one of the target's padding, which the decoder leaves out:
        padding stands behind all that a real token may see.
    """
    twin = model.readable().eval()
    target_input = twin.decoder_input(target)
    names = {
        "encoder.layers.0.self_attention": "encoder: padding",
        "decoder.layers.0.cross_attention": "cross-attention: padding of the source",
        "decoder.layers.0.self_attention": "decoder: causal",
    }
    seen: dict[str, Mask] = {}

    def keep(name: str, x: Tensor, keys_values: KeysValues, mask: AttentionMask) -> None:
        seen[name] = _realise(name, x.shape[1], keys_values[0], mask)

    handles = [
        _watch(twin.get_submodule(place), keep, name)
        for place, name in names.items()
        if model.config.cross_attention or "cross" not in place
    ]
    try:
        with torch.inference_mode():
            keys = twin(source, target_input)[:, None]  # of any width
    finally:
        for handle in handles:
            handle.remove()
    both = AttentionMask(sequence_lengths(target_input).clamp(min=1), causal=True)
    together = _realise("causal and padding of the target", target.shape[1], keys, both)
    return [*(seen[name] for name in names.values() if name in seen), together]


def _watch(module: nn.Module, keep: Any, name: str) -> Any:
    return module.register_forward_pre_hook(lambda _, arguments: keep(name, *arguments[:3]))


def _realise(name: str, num_queries: int, keys: Tensor, mask: AttentionMask) -> Mask:
    """Makes the matrix of so many queries and of keys, (batch, heads, key, any)."""
    queries = keys[:, :, :1].expand(-1, -1, num_queries, -1)
    made = mask.realise(queries, keys)
    shape = (keys.shape[0], num_queries, keys.shape[2])
    if made is None:
        return Mask(name, np.ones(shape, dtype=np.bool_), None)
    allowed = made[:, 0].expand(shape).cpu().numpy()
    return Mask(name, allowed, tuple(made.shape))


def draw_masks(masks: list[Mask], path: Path) -> None:
    """Draws the masks, as a PNG: a row for each mask, a picture for each of the first sentences."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    sentences = min(_MOST, len(masks[0].allowed))
    figure = Figure(figsize=(2.6 * sentences + 0.8, 2.9 * len(masks) + 0.5), layout="constrained")
    colours = ListedColormap(["#d9dde2", "#145aaa"])
    parts = figure.subfigures(len(masks), 1, squeeze=False)[:, 0]
    for part, mask in zip(parts, masks, strict=True):
        shape = "none is needed" if mask.shape is None else f"made as {mask.shape}"
        part.suptitle(f"{mask.name} ({shape})", fontsize=10)
        row = part.subplots(1, sentences, squeeze=False)[0]
        for sentence, axes in enumerate(row):
            axes.imshow(mask.allowed[sentence], cmap=colours, vmin=0, vmax=1, aspect="equal")
            axes.set_title(f"sentence {sentence}", fontsize=8)
            axes.set_xlabel("key (token)", fontsize=8)
            axes.set_ylabel("query (token)", fontsize=8)
    figure.legend(
        handles=[Patch(color=colours(1), label="may attend"), Patch(color=colours(0), label="not")],
        loc="outside lower center",
        ncols=2,
    )
    save_figure(figure, path)
