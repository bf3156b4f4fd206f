"""How far logits move with what masks should hide: a longer neighbour, a later token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dragoman.config import EOS
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.seq2seq import Seq2Seq

_SENTENCES = 20


@torch.no_grad()
def drift(trained: Trained, longer: int) -> float:
    """Returns how far the logits of a test sentence move, at most, beside a longer neighbour.

    In float64, so that rounding stays below 1e-9.
    """
    model = trained.in_float64()
    found = [0.0]
    for source, target in list(zip(*trained.ids, strict=True))[:_SENTENCES]:
        neighbour = (source * (1 + longer))[: len(source) + longer]
        target_input = model.decoder_input(end_and_pad([target]))
        alone = model(end_and_pad([source]), target_input)
        both = model(end_and_pad([source, neighbour]), target_input.expand(2, -1))
        found.append((both[:1] - alone).abs().max().item())
    return max(found)


@torch.no_grad()
def future_effect(model: Seq2Seq, source: Sequence[int], target: Sequence[int]) -> float:
    """Returns how far logits move, at most, when another token stands at the end of the input.

    Only logits in front of that token are compared: a causal mask lets none of them know it.

    Args:
        model: in float64.
        source: ids without EOS.
        target: ids without EOS; two at least.
    """
    target_input = model.decoder_input(end_and_pad([target]))
    changed = target_input.clone()
    changed[0, -1] = EOS + 1 + int(changed[0, -1] == EOS + 1)
    before, after = (model(end_and_pad([source]), each) for each in (target_input, changed))
    most: float = (before - after)[:, :-1].abs().max().item()
    return most
