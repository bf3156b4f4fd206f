"""What a decoder need not compute again: keys and values of the source and of the past tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from dragoman.model.attention import KeysValues
from dragoman.model.masks import AttentionMask


@dataclass
class LayerCache:
    """One decoder layer's keys and values."""

    memory: KeysValues
    """Of the source: (batch, heads, source, d_k) and d_v, once a sentence, whatever the beam."""
    past: KeysValues | None = None
    """Of the tokens so far: (batch * width, heads, length, d_k) and d_v."""

    def extend(self, newest: tuple[Tensor, Tensor]) -> KeysValues:
        """Adds the newest token's keys and values; returns all so far."""
        if self.past is None:
            self.past = newest
        else:
            keys, values = (torch.cat(pair, 2) for pair in zip(self.past, newest, strict=True))
            self.past = keys, values
        return self.past


@dataclass
class DecoderCache:
    """The state of `batch` sentences with `width` hypotheses each, `length` tokens on."""

    layers: list[LayerCache]
    memory_lengths: Int[Tensor, " batch"] | None
    """(batch,): how many source positions are real; None where padding isn't masked."""
    width: int = 1
    length: int = 0
    memory_mask: AttentionMask = field(init=False)

    def __post_init__(self) -> None:
        self.memory_mask = AttentionMask(self.memory_lengths)

    def select(self, rows: Int[Tensor, "kept_batch kept_width"]) -> None:
        """Keeps and reorders hypotheses.

        Args:
            rows: (batch', width'), int64, into the batch * width hypotheses so far; those of one
                line belong to one sentence.
        """
        sentences = rows[:, 0] // self.width
        batch = self.layers[0].memory[0].shape[0]
        same = len(sentences) == batch and bool(
            (sentences == torch.arange(batch, device=rows.device)).all()
        )
        flat = rows.flatten()
        for layer in self.layers:
            if not same:
                layer.memory = (layer.memory[0][sentences], layer.memory[1][sentences])
            if layer.past is not None:
                layer.past = (layer.past[0][flat], layer.past[1][flat])
        if not same and self.memory_lengths is not None:
            self.memory_lengths = self.memory_lengths[sentences]
            self.memory_mask = AttentionMask(self.memory_lengths)
        self.width = rows.shape[1]
