"""The whole state of a run: with it a run goes on as if nothing had happened."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from dragoman.checkpoint import Arrays, Checkpoint
from dragoman.model.transformer import Transformer
from dragoman.training.optimizer import load_optimizer, optimizer_arrays

_RANDOM = "random/"


@dataclass
class Window:
    """Sums since the last line of the log."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


@dataclass
class RunState:
    """Where a run stands, apart from parameters, optimiser and random numbers."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    """Batches of this epoch that are done."""
    seconds: float = 0.0
    """Spent on this run so far, validation included, over all its sittings."""
    best_step: int = 0
    best_score: float | None = None
    stale_validations: int = 0
    """Validations since the best score."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl; what a killed run wrote behind it is written again."""
    window: Window = dataclasses.field(default_factory=Window)


def capture(state: RunState, model: Transformer, optimizer: torch.optim.Adam) -> Checkpoint:
    """Copies everything that the next step depends on."""
    random: Arrays = {f"{_RANDOM}cpu": torch.get_rng_state().numpy().copy()}
    if torch.cuda.is_available():
        random[f"{_RANDOM}cuda"] = torch.cuda.get_rng_state().numpy().copy()
    arrays = {**optimizer_arrays(optimizer, model), **random}
    return Checkpoint(model.to_arrays(), arrays, dataclasses.asdict(state))


def restore(checkpoint: Checkpoint, model: Transformer, optimizer: torch.optim.Adam) -> RunState:
    """Puts model, optimiser and random numbers back; returns where the run stood."""
    model.load_arrays(checkpoint.weights)
    load_optimizer(optimizer, model, checkpoint.optimizer)
    torch.set_rng_state(torch.from_numpy(np.array(checkpoint.optimizer[f"{_RANDOM}cpu"])))
    if torch.cuda.is_available() and f"{_RANDOM}cuda" in checkpoint.optimizer:
        torch.cuda.set_rng_state(torch.from_numpy(np.array(checkpoint.optimizer[f"{_RANDOM}cuda"])))
    return RunState(**{**checkpoint.state, "window": Window(**checkpoint.state["window"])})
