"""What a decoder need not compute again: keys and values of the source and of the past tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dragoman.model.attention import KeysValues
from dragoman.model.masks import AttentionMask

_SLOTS = 32
_STEPS = 8
"""Room for so many tokens, and for the hypotheses of so many steps, is made at a time."""

_WIDTH = 16
"""There are slots in multiples of this: kernels are made anew for every other number."""


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
    """The state of `batch` sentences with `width` hypotheses each, `length` tokens on.

    The plain one: every hypothesis has all its keys and values, and reordering copies them.
    """

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
        same = _is_all(sentences, batch)
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


class SharedCache:
    """The same state where the hypotheses of a sentence share what they have in common.

    A token that was read has one slot, whoever descends from it: each hypothesis has a mask over
    the slots of its sentence. So reordering copies no keys and no values, only masks. Now and
    then, when there is no room left or sentences have left the batch, the slots are compacted:
    those that no hypothesis sees any more go. The hypotheses of a beam soon have all but their
    last tokens in common, so that little more than one of them is kept.

    Attributes:
        memory: each layer's cross-attention keys (batch, heads, source, d_k) and values.
        past: each layer's self-attention keys (batch, heads, slots, d_k) and values.
        width: hypotheses of a sentence.
        length: how many tokens each hypothesis has.
    """

    def __init__(
        self,
        memory: list[KeysValues],
        memory_lengths: Int[Tensor, " batch"] | None,
        past: list[tuple[Tensor, Tensor]],
    ) -> None:
        """Begins with one empty hypothesis for each sentence.

        Args:
            memory: of the source, in the type to compute in.
            memory_lengths: (batch,), how many source positions are real; None where all are.
            past: keys and values of each layer, (batch, heads, 0, d_k) and d_v.
        """
        self.memory, self.past = memory, past
        self.width, self.length, self._used = 1, 0, 0
        keys = memory[0][0]
        self._batch, source = keys.shape[0], keys.shape[2]
        dtype = torch.promote_types(keys.dtype, torch.float32)
        self._memory_bias = keys.new_zeros(self._batch, 1, source, dtype=dtype)
        if memory_lengths is not None:
            padding = torch.arange(source, device=keys.device) >= memory_lengths[:, None, None]
            self._memory_bias.masked_fill_(padding, torch.finfo(dtype).min)
        self._bias = self._memory_bias[:, :, :0]
        """(batch, width, slots): 0 where a hypothesis sees a slot, minus infinity elsewhere."""

    def select(self, rows: Int[Tensor, "kept_batch kept_width"]) -> None:
        """Keeps and reorders hypotheses, as `DecoderCache.select`."""
        sentences = rows[:, 0] // self.width
        seen = self._bias.flatten(0, 1).index_select(0, rows.flatten())
        self._bias = seen.view(*rows.shape, -1)
        self.width = rows.shape[1]
        if not _is_all(sentences, self._batch):
            self._batch = len(sentences)
            self.memory = [
                (keys.index_select(0, sentences), values.index_select(0, sentences))
                for keys, values in self.memory
            ]
            self._memory_bias = self._memory_bias.index_select(0, sentences)
            self._compact(sentences)

    def append(
        self, num_heads: int
    ) -> tuple[Float[Tensor, "queries width slots"], Float[Tensor, "queries 1 source"]]:
        """Makes a slot for the newest token of each hypothesis, which sees it.

        Args:
            num_heads: for how many heads the masks shall be.

        Returns:
            What to add to the scores of slots and of source positions, (batch * heads, width,
            slots) and (batch * heads, 1, source).
        """
        if self._used + self.width > self._bias.shape[2]:
            self._compact(torch.arange(self._batch, device=self._bias.device))
        newest = slice(self._used, self._used + self.width)
        self._bias[:, :, newest].diagonal(dim1=1, dim2=2).zero_()
        self._used += self.width
        self.length += 1
        of_slots, of_source = (
            bias[:, None].expand(-1, num_heads, -1, -1).flatten(0, 1)
            for bias in (self._bias, self._memory_bias)
        )
        return of_slots, of_source

    def write(
        self,
        layer: int,
        keys: Float[Tensor, "batch heads width d_k"],
        values: Float[Tensor, "batch heads width d_v"],
    ) -> tuple[Float[Tensor, "queries slots d_k"], Float[Tensor, "queries slots d_v"]]:
        """Puts the newest keys and values of a layer into the slots made for them.

        Returns:
            All slots, (batch * heads, slots, d_k) and d_v: also those that are empty yet, for
            products of a part would copy it first.
        """
        newest = slice(self._used - self.width, self._used)
        all_keys, all_values = self.past[layer]
        all_keys[:, :, newest] = keys
        all_values[:, :, newest] = values
        return all_keys.flatten(0, 1), all_values.flatten(0, 1)

    def _compact(self, sentences: Int[Tensor, " kept_batch"]) -> None:
        """Keeps of these sentences the slots that somebody sees, and makes room behind them."""
        seen = (self._bias[:, :, : self._used] == 0).any(dim=1)
        self._used = int(seen.sum(dim=1).amax())
        room = max(_SLOTS, _STEPS * self.width)
        slots = -(-(self._used + room) // _WIDTH) * _WIDTH
        kept = seen.byte().argsort(dim=1, descending=True, stable=True)[:, : self._used]
        bias = self._bias.new_full((self._batch, self.width, slots), float("-inf"))
        bias[:, :, : self._used] = self._bias.gather(2, kept[:, None].expand(-1, self.width, -1))
        self._bias = bias
        self.past = [
            (_pick(keys, sentences, kept, slots), _pick(values, sentences, kept, slots))
            for keys, values in self.past
        ]


def _is_all(sentences: Int[Tensor, " kept_batch"], batch: int) -> bool:
    return torch.equal(sentences, torch.arange(batch, device=sentences.device))


def _pick(
    values: Float[Tensor, "batch heads slots d"],
    sentences: Int[Tensor, " kept_batch"],
    kept: Int[Tensor, "kept_batch kept_slots"],
    size: int,
) -> Float[Tensor, "kept_batch heads {size} d"]:
    """Returns these slots of these sentences and, behind them, room of finite numbers."""
    heads, slots = values.shape[1:3]
    if not kept.numel():
        return values.new_zeros(len(sentences), heads, size, values.shape[3])
    kept = torch.nn.functional.pad(kept, (0, size - kept.shape[1]))
    first = sentences[:, None] * heads + torch.arange(heads, device=sentences.device)
    rows = first[..., None] * slots + kept[:, None]
    return values.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, -1)
