"""The experiments, one a file."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.config import InputError, nearest_hint
from dragoman.lab.experiment import Experiment
from dragoman.lab.experiments import (
    causal_mask,
    cross_attention,
    padding_mask,
    positions,
    scaling,
)

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (scaling, positions, causal_mask, padding_mask, cross_attention)
}
"""By name, in the order of their numbers."""


def find_experiments(names: Iterable[str]) -> list[Experiment]:
    """Returns experiments by their names, each once.

    Raises:
        InputError: for an unknown name, naming the nearest one.
    """
    found = []
    for name in dict.fromkeys(names):
        if name not in EXPERIMENTS:
            raise InputError(
                f"NAME is {name}, accepted is one of {', '.join(EXPERIMENTS)}",
                nearest_hint(name, EXPERIMENTS),
            )
        found.append(EXPERIMENTS[name])
    return found
