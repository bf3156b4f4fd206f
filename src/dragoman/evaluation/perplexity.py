"""Loss, perplexity and accuracy under teacher forcing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dragoman.data.batching import plan_in_order
from dragoman.data.encoded import EncodedCorpus
from dragoman.model.loss import training_loss
from dragoman.model.seq2seq import Seq2Seq


@dataclass(frozen=True)
class ForcedScores:
    """What a model makes of given translations, a real target token on average."""

    loss: float
    """Label-smoothed cross-entropy, nats."""
    nll: float
    """Negative log-likelihood, nats."""
    accuracy: float
    """Share of tokens that had the highest probability."""

    @property
    def perplexity(self) -> float:
        """Exp of the plain negative log-likelihood, never of the smoothed loss."""
        return math.exp(min(self.nll, 700.0))


@torch.no_grad()
def forced_scores(
    model: Seq2Seq, corpus: EncodedCorpus, batch_tokens: int, smoothing: float
) -> ForcedScores:
    """Measures a model on a corpus; the model is in evaluation mode meanwhile.

    Args:
        model: on its device.
        corpus: at least one pair.
        batch_tokens: sentences x longest side of a batch.
        smoothing: label smoothing of the loss.
    """
    device = model.output_weight.device
    was_training = model.training
    model.eval()
    loss = nll = correct = 0.0
    for batch in plan_in_order(corpus.lengths.max(axis=1), batch_tokens):
        source, target = (torch.from_numpy(ids).to(device) for ids in corpus.batch(batch))
        sums = training_loss(model, source, target, smoothing)
        loss += sums.loss.item()
        nll += sums.nll.item()
        correct += sums.correct.item()
    model.train(was_training)
    tokens = int(corpus.lengths[:, 1].sum())
    return ForcedScores(loss / tokens, nll / tokens, correct / tokens)
