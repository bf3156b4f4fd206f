"""The whole state of a run: with it a run goes on as if nothing had happened."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dragoman.checkpoint import OLDER, Arrays, Checkpoint
from dragoman.config import InputError
from dragoman.model.seq2seq import Seq2Seq
from dragoman.training.distributed import Ranks
from dragoman.training.optimizer import load_optimizer, optimizer_arrays


@dataclass
class Window:
    """Sums since the last line of the log."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    """Seconds of them in which the data wasn't there yet."""


@dataclass
class RunState:
    """Where a run stands, apart from parameters, optimiser and random numbers."""

    step: int = 0
    epoch: int = 0
    pool: int = 0
    position: int = 0
    """Batches of this pool of this epoch that are done."""
    validated_step: int = -1
    skipped_steps: int = 0
    """Steps whose gradient wasn't finite."""
    skipped_in_row: list[str] = dataclasses.field(default_factory=list)
    """The batches of the latest of them that followed each other."""
    seconds: float = 0.0
    """Spent on this run so far, validation included, over all its sittings."""
    best_step: int = 0
    best_score: float | None = None
    stale_validations: int = 0
    """Validations since the best score."""
    computing: str = ""
    """What makes the products, and in which type; another way differs in rounding."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl; what a killed run wrote behind it is written again."""
    window: Window = dataclasses.field(default_factory=Window)


_ACCEPTED = {
    "int": int,
    "float": int | float,
    "float | None": int | float | None,
    "str": str,
    "list[str]": list,
}


def _random_states(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _random_name(rank: int, kind: str) -> str:
    return f"random/{rank}/{kind}" if rank else f"random/{kind}"


def capture(
    state: RunState, model: Seq2Seq, optimizer: torch.optim.Adam, ranks: Ranks
) -> Checkpoint | None:
    """Copies everything that the next step depends on, the random numbers of all ranks included.

    All ranks take part; only the first, which writes it, gets the copy.
    """
    random: Arrays = {
        _random_name(rank, kind): value.numpy().copy()
        for rank, states in enumerate(ranks.gather(_random_states(ranks.device)))
        for kind, value in states.items()
    }
    if not ranks.first:
        return None
    arrays = {**optimizer_arrays(optimizer, model), **random}
    return Checkpoint(model.to_arrays(), arrays, dataclasses.asdict(state))


def restore(
    checkpoint: Checkpoint, model: Seq2Seq, optimizer: torch.optim.Adam, ranks: Ranks
) -> RunState:
    """Puts model, optimiser and random numbers back; returns where the run stood.

    A rank that there was not before keeps the random numbers that it begins with.

    Raises:
        InputError: if the checkpoint is damaged, or doesn't fit the configuration.
    """
    model.load_arrays(checkpoint.weights)
    try:
        load_optimizer(optimizer, model, checkpoint.optimizer)
        for kind in _random_states(ranks.device):
            kept = checkpoint.optimizer.get(_random_name(ranks.rank, kind))
            if kept is not None:
                state = torch.from_numpy(np.array(kept))
                torch.set_rng_state(state) if kind == "cpu" else torch.cuda.set_rng_state(state)
        return _read_state(checkpoint.state)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the last checkpoint is damaged: {reason}", OLDER) from None


def _read_state(values: dict[str, Any]) -> RunState:
    state = RunState(**{**values, "window": Window(**values["window"])})
    for part in (state, state.window):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if not isinstance(value, _ACCEPTED.get(str(field.type), object)):
                raise TypeError(f"{field.name} is {value!r}")
            if isinstance(value, int) and value < -(field.name == "validated_step"):
                raise ValueError(f"{field.name} is {value}")
    if not all(isinstance(batch, str) for batch in state.skipped_in_row):
        raise TypeError(f"skipped_in_row is {state.skipped_in_row!r}")
    return state
