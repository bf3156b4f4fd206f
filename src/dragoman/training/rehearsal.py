"""The largest batch, before the first step: want of memory shows at once, not days later."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch

from dragoman.config import EOS, UNK, Config, RunError
from dragoman.data.batching import largest_batches
from dragoman.data.encoded import EncodedCorpus
from dragoman.kernels.attention import longest_with_weights
from dragoman.kernels.device import compute_in
from dragoman.kernels.memory import is_want_of_memory
from dragoman.kernels.resources import limited_to_what_is_there
from dragoman.training.distributed import Ranks
from dragoman.training.step import TrainingLoss

_GROWTH = 7
"""Times BPE dropout: how much longer a sentence may become. At 0.1 none seen grew by over 70 %."""


def rehearse_largest(
    loss: TrainingLoss, config: Config, corpus: EncodedCorpus, precision: str, ranks: Ranks
) -> None:
    """Rehearses the micro-batches of a run one of which takes the most memory.

    Raises:
        RunError: on every rank, if the memory isn't enough on one.
    """
    training, data = config.training, config.data
    parts = list(zip(corpus.parts, data.weights, strict=True))
    bounds = [longest_with_weights(precision)] if ranks.device.type == "cpu" else []
    problem = None
    try:
        for pairs, tokens in largest_batches(corpus.lengths, training.batch_tokens, bounds, parts):
            share = -(-pairs // (ranks.count * training.accumulation))
            grown = math.ceil(tokens * (1 + _GROWTH * data.bpe_dropout))
            most = max(tokens, min(grown, config.longest_sentence or grown))
            rehearse(loss, share, most, precision, training.accumulation)
    except RunError as error:
        problem = error
    for found in ranks.gather(problem):
        if found is not None:
            raise found


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
