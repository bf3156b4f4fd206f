"""The largest batch, before the first step: want of memory shows at once, not days later."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from dragoman.config import EOS, UNK, RunError
from dragoman.kernels.device import compute_in
from dragoman.kernels.memory import is_want_of_memory
from dragoman.kernels.resources import limited_to_what_is_there
from dragoman.training.step import TrainingLoss


def rehearse(
    loss: TrainingLoss, pairs: int, tokens: int, precision: str, accumulation: int = 1
) -> None:
    """Makes the loss and the gradients of a batch as large as can come, and forgets them.

    Parameters, buffers and random numbers are afterwards what they were.

    Args:
        loss: of the model; its optimiser's moments should exist already, for they take memory too.
        pairs: sentences of the micro-batch.
        tokens: of each source and each target, EOS included.
        precision: as in `training_step`.
        accumulation: micro-batches of a step; those behind the first find its gradients in memory.

    Raises:
        RunError: if the memory isn't enough, naming the batch.
    """
    model = loss.model.train()
    device = model.output_weight.device
    buffers = [buffer.clone() for buffer in model.buffers()]
    try:
        ids = torch.full((pairs, tokens), UNK, device=device)
        ids[:, -1] = EOS
        with (
            limited_to_what_is_there() if device.type == "cpu" else nullcontext(),
            torch.random.fork_rng([device] if device.type == "cuda" else []),
        ):
            for _ in range(min(2, accumulation)):
                with compute_in(precision, device):
                    total = loss(ids, ids).loss
                total.backward()
    except (MemoryError, RuntimeError) as error:
        if not is_want_of_memory(error):
            raise
        raise RunError(
            f"not enough memory for the largest batch, {pairs} sentences of {tokens} tokens",
            "a smaller --batch-tokens or --max-length needs less, and so do more "
            "training.accumulation and training.gradient_checkpointing",
        ) from None
    finally:
        model.zero_grad(set_to_none=True)
        for buffer, before in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(before)
