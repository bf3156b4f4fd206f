"""What training minimises (section 5.4)."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from dragoman.config import PAD
from dragoman.kernels.cross_entropy import LossSums, projected_cross_entropy
from dragoman.model.seq2seq import Seq2Seq


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "batch target vocab"],
    target: Int[Tensor, "batch target"],
    smoothing: float,
) -> LossSums:
    """Computes the cross-entropy against (1 - eps) onehot(target) + eps / V, summed over tokens.

    The eps is spread over all V entries of the vocabulary, the right one included, as in
    tensor2tensor: at V = 5, p = (.7, .1, .1, .05, .05), eps = .1 it is 0.540074 nats for entry 0.

    Args:
        logits: (batch, target, vocab).
        target: (batch, target), int64; PAD neither gets nor gives loss.
        smoothing: eps.
    """
    real = target != PAD
    log_probs = logits[real].log_softmax(-1)
    nll = -log_probs.gather(-1, target[real][:, None])
    even = -log_probs.mean(-1, keepdim=True)
    correct = log_probs.argmax(-1) == target[real]
    return LossSums(((1 - smoothing) * nll + smoothing * even).sum(), nll.sum(), correct.sum())


def training_loss(
    model: Seq2Seq,
    source: Int[Tensor, "batch source"],
    target: Int[Tensor, "batch target"],
    smoothing: float,
) -> LossSums:
    """Computes the loss of a batch under teacher forcing.

    Args:
        model: the one that learns.
        source: (batch, source), ending in EOS, padded with PAD.
        target: (batch, target), likewise.
        smoothing: probability spread evenly over the vocabulary.
    """
    real = target != PAD
    hidden = model.hidden_of_real(source, model.decoder_input(target), real)
    return projected_cross_entropy(hidden, model.output_weight, target[real], smoothing)
