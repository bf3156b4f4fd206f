"""The output projection and its loss in one, without the tokens x vocabulary matrix.

Plain definition: `dragoman.model.loss.label_smoothed_cross_entropy` of `hidden @ weight.T`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHUNK_ELEMENTS = 1 << 21
"""Logits held at once: what stays in a CPU's outer cache."""


class LossSums(NamedTuple):
    """Sums over the target tokens of a batch, all of them scalars."""

    loss: Tensor
    """Label-smoothed cross-entropy, nats."""
    nll: Tensor
    """Negative log-likelihood of the right tokens, nats: what perplexity comes from."""
    correct: Tensor
    """How many tokens had the highest probability."""


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Makes the gradient together with the loss, chunk by chunk, for the logits aren't kept."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = _compute_dtype(hidden)
        wide = torch.promote_types(dtype, torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            projection = weight.to(dtype)
            sums = torch.zeros(3, dtype=wide, device=hidden.device)
            needs_gradient = any(ctx.needs_input_grad[:2])
            hidden_grad = torch.empty_like(hidden) if needs_gradient else hidden
            weight_grad = torch.zeros_like(weight) if needs_gradient else weight
            # What smoothing does to all entries alike needs no pass over them: the mean of the
            # logits is their product with the mean of the weights.
            mean_weight = weight.to(wide).mean(0)
            rows = max(1, _CHUNK_ELEMENTS // weight.shape[0])
            for start in range(0, hidden.shape[0], rows):
                chunk = hidden[start : start + rows].to(dtype)
                gold = target[start : start + rows, None]
                logits = (chunk @ projection.T).to(wide)
                highest = logits.amax(-1, keepdim=True)
                gold_logit = logits.gather(-1, gold)
                probabilities = logits.softmax(-1)
                # One pass of exp is all there is: the highest probability gives the normaliser.
                log_total = highest - probabilities.amax(-1, keepdim=True).log()
                nll = log_total - gold_logit
                even = log_total - (chunk.to(wide) @ mean_weight)[:, None]
                sums[0] += ((1 - smoothing) * nll + smoothing * even).sum()
                sums[1] += nll.sum()
                sums[2] += (gold_logit >= highest).sum()
                if needs_gradient:
                    error = probabilities.scatter_add_(
                        -1, gold, torch.full_like(nll, smoothing - 1)
                    )
                    error = error.to(dtype)
                    hidden_grad[start : start + rows] = error @ projection
                    if dtype == weight_grad.dtype:
                        weight_grad.addmm_(error.T, chunk)
                    else:
                        weight_grad += error.T @ chunk
            if needs_gradient:
                hidden_grad -= smoothing * mean_weight
                weight_grad -= smoothing / weight.shape[0] * hidden.sum(0)
        ctx.save_for_backward(hidden_grad, weight_grad)
        loss, nll_sum, correct = sums.unbind()
        ctx.mark_non_differentiable(nll_sum, correct)
        return loss, nll_sum, correct

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden_grad, weight_grad = ctx.saved_tensors
        return hidden_grad * grads[0], weight_grad * grads[0], None, None


def projected_cross_entropy(
    hidden: Float[Tensor, "tokens d_model"],
    weight: Float[Tensor, "vocab d_model"],
    target: Int[Tensor, " tokens"],
    smoothing: float,
) -> LossSums:
    """Computes the label-smoothed cross-entropy of the logits `hidden @ weight.T`.

    Under autocast the products are made in its type, the loss itself in float32.

    Args:
        hidden: (tokens, d_model), the decoder's output where the target is not padding.
        weight: (vocab, d_model).
        target: (tokens,), int64.
        smoothing: probability spread evenly over the whole vocabulary.
    """
    if (
        not torch.is_grad_enabled()
    ):  # below it is known what asks for gradients, not whether any come
        hidden, weight = hidden.detach(), weight.detach()
    sums = _ProjectedCrossEntropy.apply(hidden, weight, target, smoothing)  # type: ignore[no-untyped-call]
    return LossSums(*sums)
