"""The engine that runs a Transformer in torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from dragoman.config import EOS, PAD, DecodingConfig
from dragoman.data.batching import plan_in_order
from dragoman.decoding.beam import beam_search
from dragoman.decoding.constraints import NEVER
from dragoman.decoding.engine import SOURCE_CUT, Hypothesis
from dragoman.decoding.greedy import greedy_search
from dragoman.decoding.stepper import TransformerStepper, log_softmax, pad_ids
from dragoman.kernels.device import compute_in
from dragoman.model import hooks
from dragoman.model.transformer import Transformer


class TorchEngine:
    """Translates and scores in batches of sentences of like length; an `Engine`."""

    def __init__(self, model: Transformer, precision: str = "float32") -> None:
        """Takes a model where it is.

        Args:
            model: in evaluation mode while the engine works, as before afterwards.
            precision: `bfloat16` computes matrix products in it and log-probabilities in float32,
                all else everything in the type of the parameters.
        """
        self.model = model
        self.precision = precision

    def translate(
        self, sources: Sequence[Sequence[int]], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """Returns the `n_best` best hypotheses of each source, the best first.

        A source longer than `max_source_length`, or than the positions that the model learnt, is
        cut and its hypotheses are flagged `source-cut`.
        """
        search = greedy_search if config.beam_size == 1 else beam_search
        found = [[Hypothesis(tokens=[])] for _ in sources]
        ready = self._end_sources(sources, config)
        lengths = {index: len(ids) for index, ids in enumerate(ready) if sources[index]}
        with self._evaluation():
            stepper = TransformerStepper(self.model)
            for batch in token_batches(lengths, config.batch_tokens):
                ids = [ready[index] for index in batch]
                hypotheses = search(stepper, ids, config)
                if config.alignment:
                    hypotheses = self._align(ids, hypotheses)
                for index, best in zip(batch, hypotheses, strict=True):
                    cut = len(ready[index]) <= len(sources[index])
                    found[index] = [each.with_flags(SOURCE_CUT) for each in best] if cut else best
        return found

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
    ) -> list[float]:
        """Returns the log-probability of each target and its EOS, by forced decoding.

        Nothing given nothing has 0, as `translate` has it; a target longer than the model can
        generate has minus infinity. Sources are cut as `translate` cuts them.
        """
        ready = self._end_sources(sources, config)
        ended = [[*target, EOS] for target in targets]
        longest = self.model.max_length
        found = [0.0 if longest is None or len(ids) <= longest else NEVER for ids in ended]
        lengths = {
            index: max(len(source), len(target))
            for index, (source, target) in enumerate(zip(ready, ended, strict=True))
            if found[index] == 0.0 and (sources[index] or targets[index])
        }
        with self._evaluation():
            for batch in token_batches(lengths, config.batch_tokens):
                scores = self._force([ready[i] for i in batch], [ended[i] for i in batch])
                for index, log_prob in zip(batch, scores, strict=True):
                    found[index] = log_prob
        return found

    def align(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
    ) -> list[npt.NDArray[np.float32] | None]:
        """Returns the alignment of each target and its EOS, None without cross-attention."""
        ready = self._end_sources(sources, config)
        forced = [[Hypothesis([*target, EOS])] for target in targets]
        with self._evaluation():
            return [best.alignment for [best] in self._align(ready, forced)]

    def _end_sources(
        self, sources: Sequence[Sequence[int]], config: DecodingConfig
    ) -> list[list[int]]:
        longest = config.max_source_length
        if self.model.max_length is not None:
            longest = min(longest, self.model.max_length)
        return [[*source[: longest - 1], EOS] for source in sources]

    def _force(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        device = self.model.output_weight.device
        source, target = pad_ids(sources, device), pad_ids(targets, device)
        log_probs = log_softmax(self.model(source, self.model.decoder_input(target)))
        of_tokens = log_probs.gather(2, target[..., None])[..., 0].double()
        sums: list[float] = of_tokens.masked_fill(target == PAD, 0.0).sum(dim=1).tolist()
        return sums

    def _align(
        self, sources: list[list[int]], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses with their alignments, by forced decoding of the readable twin."""
        if not self.model.config.cross_attention:
            return found
        readable = self.model.readable()
        name = f"decoder.layers.{self.model.config.num_decoder_layers - 1}.cross_attention.weights"
        device = self.model.output_weight.device
        rows = [source for source, best in zip(sources, found, strict=True) for _ in best]
        target = pad_ids([each.tokens for best in found for each in best], device)
        with hooks.record(readable, [name]) as seen:
            readable(pad_ids(rows, device), readable.decoder_input(target))
        weights: Iterator[npt.NDArray[np.float32]]
        weights = iter(seen[name].mean(dim=1).float().cpu().numpy())
        return [
            [
                dataclasses.replace(
                    each, alignment=next(weights)[: len(each.tokens), : len(source)].copy()
                )
                for each in best
            ]
            for source, best in zip(sources, found, strict=True)
        ]

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        was_training = self.model.training
        self.model.eval()
        device = self.model.output_weight.device
        try:
            with torch.inference_mode(), compute_in(self.precision, device):
                yield
        finally:
            self.model.train(was_training)


def token_batches(lengths: Mapping[int, int], budget: int) -> Iterator[list[int]]:
    """Yields batches of sentences of like length.

    Args:
        lengths: the length in tokens of each sentence, by its index.
        budget: the most that sentences x longest may be; a longer sentence is a batch by itself.
    """
    indices = list(lengths)
    for batch in plan_in_order(np.fromiter(lengths.values(), np.int64, len(indices)), budget):
        yield [indices[place] for place in batch]
