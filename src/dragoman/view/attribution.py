"""What each source token did for each target token, by measures that are not attention."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dragoman.model import hooks
from dragoman.model.seq2seq import Seq2Seq
from dragoman.view.reading import Reading

_ROWS = 8
"""Sentences of a batch: memory goes with rows x target x vocabulary."""

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Three measures of what a translation owes to its source, each (target, source)."""

    attention: Matrix
    """The last layer's cross-attention, mean over its heads."""
    gradient_x_input: Matrix
    """As `gradient_x_input` returns it."""
    leave_one_out: Matrix
    """As `leave_one_out` returns it."""

    def spearman(self) -> list[dict[str, Any]]:
        """Returns how alike the measures order the source tokens, for each pair of them.

        Returns:
            For each pair: `pair`, its names; `by_target`, the rank correlation of the magnitudes
            for each target token, None where one measure is the same for all source tokens; `mean`
            over the target tokens that have one, None if none has.
        """
        found = []
        for pair in itertools.combinations(self.measures(), 2):
            one, other = (np.abs(self.measures()[name]) for name in pair)
            by_target = [spearman(*rows) for rows in zip(one, other, strict=True)]
            known = [value for value in by_target if value is not None]
            mean = float(np.mean(known)) if known else None
            found.append({"pair": list(pair), "mean": mean, "by_target": by_target})
        return found

    def measures(self) -> dict[str, Matrix]:
        """Returns the measures by name."""
        names = ("attention", "gradient_x_input", "leave_one_out")
        return {name: getattr(self, name) for name in names}


def compare(model: Seq2Seq, reading: Reading) -> Comparison | None:
    """Measures a reading of a model; None for a model without cross-attention."""
    if reading.cross is None:
        return None
    return Comparison(
        reading.alignment().astype(np.float64),
        gradient_x_input(model, reading.source.ids, reading.target.ids),
        leave_one_out(model, reading.source.ids, reading.target.ids),
    )


def gradient_x_input(model: Seq2Seq, source: list[int], target: list[int]) -> Matrix:
    """Returns gradient x input (Simonyan et al. 2013, Shrikumar et al. 2016).

    The input is a source token's embedding x_j before its position is added: entry (t, j) is
    x_j . d log p(target_t) / d x_j, to first order what log p(target_t), in nats, would lose if x_j
    were zero.

    Args:
        model: stays as it is.
        source: ids with EOS.
        target: ids that are said, by forced decoding.

    Returns:
        (target, source).
    """
    twin = model.readable().eval()
    inputs: list[Tensor] = []

    def keep(embedded: Tensor) -> Tensor:
        inputs.append(embedded.detach().requires_grad_())
        return inputs[-1]

    with torch.enable_grad(), hooks.replace(twin, "source_embedding.token", keep):
        [log_probs] = _log_probs(twin, [source], target)
        gradients = [torch.autograd.grad(each, inputs, retain_graph=True)[0] for each in log_probs]
    found: Matrix = (torch.cat(gradients) * inputs[0]).sum(-1).detach().double().cpu().numpy()
    return found


@torch.inference_mode()
def leave_one_out(model: Seq2Seq, source: list[int], target: list[int]) -> Matrix:
    """Returns how much log p(target_t), in nats, falls as a source token is taken out.

    The rest closes up: tokens behind it move one position to the front. Above 0 the token helped.

    Args:
        model: stays as it is.
        source: ids with EOS, at least two.
        target: ids that are said, by forced decoding.

    Returns:
        (target, source).
    """
    twin = model.readable().eval()
    [whole] = _log_probs(twin, [source], target)
    shorter = [[*source[:j], *source[j + 1 :]] for j in range(len(source))]
    parts = [
        _log_probs(twin, shorter[first : first + _ROWS], target)
        for first in range(0, len(shorter), _ROWS)
    ]
    found: Matrix = (whole - torch.cat(parts)).T.cpu().numpy()
    return found


def _log_probs(model: Seq2Seq, sources: list[list[int]], target: list[int]) -> Tensor:
    """Returns the log-probability of each target token, (sources, target), float64."""
    device = model.output_weight.device
    targets = torch.tensor([target] * len(sources), device=device)
    logits = model(torch.tensor(sources, device=device), model.decoder_input(targets))
    log_probs: Tensor = logits.double().log_softmax(-1).gather(2, targets[..., None])[..., 0]
    return log_probs


def spearman(one: Matrix, other: Matrix) -> float | None:
    """Returns Spearman's rank correlation of two rows; None where one of them is constant.

    Pearson's correlation of the ranks; equal values share the mean of their ranks.
    """
    ranks = np.stack([_ranks(one), _ranks(other)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    lengths = np.sqrt((ranks**2).sum(axis=1))
    return float(ranks[0] @ ranks[1] / lengths.prod()) if lengths.all() else None


def _ranks(row: Matrix) -> Matrix:
    _, place, counts = np.unique(row, return_inverse=True, return_counts=True)
    ranks: Matrix = (counts.cumsum() - (counts - 1) / 2)[place]
    return ranks
