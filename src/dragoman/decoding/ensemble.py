"""Several models of one vocabulary as one: the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dragoman.decoding.stepper import AttentiveStepper, State, Stepper


def average_probabilities(
    log_probs: Iterable[Float[Tensor, "*dims"]],
) -> Float[Tensor, "*dims"]:
    """Returns log((p_1 + ... + p_n) / n) of log-probabilities of the same shape."""
    each = torch.stack(list(log_probs))
    return each.logsumexp(dim=0) - math.log(len(each))


class EnsembleStepper(Generic[State]):
    """A stepper whose every step is the mean of its members'. Its state: that of each."""

    def __init__(self, members: Sequence[Stepper[State]]) -> None:
        lengths = [each.max_length for each in members if each.max_length is not None]
        self.members = members
        self.start_token = members[0].start_token
        self.max_length = min(lengths, default=None)
        self.device = members[0].device

    @property
    def attention(self) -> Float[Tensor, "batch beam source"]:
        """The mean of the members' attention, where they show it."""
        seen = [each.attention for each in self.members if isinstance(each, AttentiveStepper)]
        return torch.stack(seen).mean(dim=0)

    def start(self, sources: Sequence[Sequence[int]]) -> list[State]:
        """Lets every member read the sources."""
        return [member.start(sources) for member in self.members]

    def step(
        self, state: list[State], tokens: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam vocab"]:
        """Lets every member make the step, and averages."""
        # Members may start from unlike tokens; behind its start no hypothesis goes on with one.
        is_start = tokens == self.start_token
        return average_probabilities(
            member.step(own, tokens.masked_fill(is_start, member.start_token))
            for member, own in zip(self.members, state, strict=True)
        )

    def select(self, state: list[State], rows: Int[Tensor, "kept_batch kept_beam"]) -> None:
        """Lets every member select."""
        for member, own in zip(self.members, state, strict=True):
            member.select(own, rows)
