"""What a model makes of given translations, and the BLEU of its own, for a bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dragoman.config import PAD
from dragoman.decoding.translator import Translation
from dragoman.evaluation.bleu import evaluate
from dragoman.lab.data import Pairs
from dragoman.lab.trained import Trained, end_and_pad, translate_sources
from dragoman.model.seq2seq import Seq2Seq

_BATCH = 20
_BINS = 10
"""Bins of equal width that the calibration error is taken over."""
_PARTS = 20
"""Parts of the test text whose BLEU is taken one by one."""


@dataclass(frozen=True)
class Predictions:
    """What a model makes of each token of given translations, EOS included, under forcing."""

    nll: Float[Tensor, " tokens"]
    """Of the right token, nats."""
    confidence: Float[Tensor, " tokens"]
    """The highest probability."""
    correct: Bool[Tensor, " tokens"]
    """Whether the right token has it."""
    lengths: list[int]
    """Tokens of each sentence."""

    @property
    def overconfidence(self) -> Float[Tensor, " tokens"]:
        """Confidence minus accuracy; its mean is above 0 where a model is too sure of itself."""
        return self.confidence - self.correct.to(self.confidence)

    @property
    def bins(self) -> Tensor:
        """The bin of each token, by its confidence."""
        return (self.confidence * _BINS).long().clamp(max=_BINS - 1)

    def shares(self, values: Float[Tensor, " tokens"]) -> dict[str, float]:
        """Returns what each sentence adds to the mean over the tokens: their mean is that mean."""
        factor = len(self.lengths) / sum(self.lengths)
        sums = (part.sum().item() for part in values.split(self.lengths))
        return {str(line): factor * value for line, value in enumerate(sums)}

    def sentence_means(self, values: Float[Tensor, " tokens"]) -> dict[str, float]:
        """Returns the mean over the tokens of each sentence."""
        means = (part.mean().item() for part in values.split(self.lengths))
        return {str(line): value for line, value in enumerate(means)}

    def calibration_shares(self) -> dict[str, float]:
        """Returns what each sentence adds to the expected calibration error.

        The error is the mean over the tokens of |accuracy - confidence|, both taken bin by bin
        (Guo et al. 2017): a mean with the sign of each token's bin.
        """
        gaps = torch.bincount(self.bins, weights=self.overconfidence, minlength=_BINS)
        return self.shares(gaps.sign()[self.bins] * self.overconfidence)

    def reliability(self) -> dict[str, float]:
        """Returns the accuracy in each bin that isn't empty, by its middle in percent."""
        tokens = torch.bincount(self.bins, minlength=_BINS)
        right = torch.bincount(self.bins[self.correct], minlength=_BINS)
        return {
            f"{100 * (number + 0.5) / _BINS:.0f}": (right[number] / tokens[number]).item()
            for number in tokens.nonzero().flatten().tolist()
        }


@torch.no_grad()
def predict(model: Seq2Seq, trained: Trained, pairs: Pairs) -> Predictions:
    """Returns what a model, of the shape of a trained one, makes of the targets of some pairs."""
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    lengths: list[int] = []
    for start in range(0, len(pairs), _BATCH):
        sources, targets = zip(*pairs[start : start + _BATCH], strict=True)
        source = end_and_pad(trained.tokenizers.source.encode_batch(sources))
        target = end_and_pad(trained.tokenizers.target.encode_batch(targets))
        real = target != PAD
        log_probs = model(source, model.decoder_input(target))[real].double().log_softmax(-1)
        gold = target[real]
        highest, best = log_probs.max(-1)
        nll = -log_probs.gather(-1, gold[:, None])[:, 0]
        found.append((nll, highest.exp(), best == gold))
        lengths += real.sum(1).tolist()
    nll, confidence, correct = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Predictions(nll, confidence, correct, lengths)


def translate(model: Seq2Seq, trained: Trained, **search: Any) -> list[Translation]:
    """Translates the test sentences with a model, of the vocabularies of a trained one.

    Greedily, unless settings of the search are given; `Trained.translations` are the greedy ones
    of the trained model itself.
    """
    return translate_sources(model, trained.tokenizers, trained.data.test, **search)


def bleu(trained: Trained, found: Sequence[Translation], part: slice = slice(None)) -> float:
    """Returns sacreBLEU of translations of the test sentences, or of a part of them."""
    texts, references = [each.text for each in found], [target for _, target in trained.data.test]
    language = trained.config.data.target_language
    [score] = evaluate(texts[part], [references[part]], ("bleu",), language)
    return score.value


def bleu_parts(trained: Trained, found: Sequence[Translation]) -> dict[str, float]:
    """Returns the BLEU of each of twenty parts, for a bootstrap: BLEU is no mean of sentences."""
    parts = min(_PARTS, len(found))
    return {str(first): bleu(trained, found, slice(first, None, parts)) for first in range(parts)}
