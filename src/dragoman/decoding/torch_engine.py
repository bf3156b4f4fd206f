"""The engine that runs our models in torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dragoman.config import EOS, PAD, DecodingConfig, InputError
from dragoman.data.batching import plan_in_order
from dragoman.decoding.beam import beam_search
from dragoman.decoding.constraints import NEVER
from dragoman.decoding.engine import SOURCE_CUT, Hypothesis
from dragoman.decoding.ensemble import EnsembleStepper, average_probabilities
from dragoman.decoding.greedy import greedy_search
from dragoman.decoding.sampling import sample
from dragoman.decoding.stepper import (
    ModelStepper,
    ReadableStepper,
    Stepper,
    log_softmax,
    pad_ids,
)
from dragoman.kernels.device import compute_in, resolve_precision
from dragoman.model import hooks
from dragoman.model.seq2seq import Seq2Seq


class TorchEngine:
    """Translates and scores in batches of sentences of like length; an `Engine`."""

    def __init__(
        self,
        model: Seq2Seq,
        precision: str = "float32",
        ensemble: Sequence[Seq2Seq] = (),
    ) -> None:
        """Takes a model where it is.

        Args:
            model: in evaluation mode while the engine works, as before afterwards. Its weights
                are converted at the first translation: whoever trains on makes a new engine.
            precision: `bfloat16` computes matrix products in it and log-probabilities in float32,
                `float32` everything in the type of the parameters, `auto` what is faster here.
            ensemble: further models of the same vocabularies, whose probabilities are averaged
                with the first one's.
        """
        self.models = (model, *ensemble)
        self.precision = resolve_precision(precision, self.device)
        self._steppers: dict[bool, list[ModelStepper]] = {}
        lengths = [each.max_length for each in self.models if each.max_length is not None]
        self.max_length = min(lengths, default=None)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.models[0].output_weight.device

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        prefixes: Sequence[Sequence[int]] = (),
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        """Returns the `n_best` best hypotheses of each source, the best first.

        A source longer than `max_source_length`, or than the positions that the model learnt, is
        cut and its hypotheses are flagged `source-cut`.
        """
        found = [[Hypothesis(tokens=[])] for _ in sources]
        ready = self._end_sources(sources, config)
        lengths = {index: len(ids) for index, ids in enumerate(ready) if sources[index]}
        with self._evaluation():
            stepper = self._stepper(config)
            drawn = config.n_best if config.sample else 1  # each takes a row of its own
            for batch in token_batches(lengths, max(1, config.batch_tokens // drawn)):
                ids = [ready[index] for index in batch]
                forced = [prefixes[index] for index in batch] if prefixes else []
                if config.sample:
                    lines = [first + index for index in batch]
                    hypotheses = sample(stepper, ids, config, forced, lines)
                else:
                    search = greedy_search if config.beam_size == 1 else beam_search
                    hypotheses = search(stepper, ids, config, forced)
                rows = [ids[at] for at, best in enumerate(hypotheses) for _ in best]
                outputs = [each.tokens for best in hypotheses for each in best]
                if config.repetition_penalty != 1.0:  # the search's own are with the penalties
                    log_probs = self._force(rows, outputs)
                    hypotheses = _replace(hypotheses, "log_probability", log_probs)
                if config.alignment:
                    hypotheses = _replace(hypotheses, "alignment", self._attend(rows, outputs))
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
        longest = self.max_length
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

    def longest_source(self, config: DecodingConfig) -> int:
        """Returns how many tokens, EOS included, are read of a source; a longer one is cut."""
        return min(config.max_source_length, self.max_length or config.max_source_length)

    def _stepper(self, config: DecodingConfig) -> Stepper[Any]:
        """Returns the model as a search sees it, or the ensemble.

        Raises:
            InputError: if coverage is asked for where nothing attends to the source.
        """
        attentive = config.coverage_penalty > 0
        if attentive not in self._steppers:
            self._steppers[attentive] = [self._prepare(model, attentive) for model in self.models]
        members = self._steppers[attentive]
        if attentive and not any(isinstance(each, ReadableStepper) for each in members):
            raise InputError(
                f"decoding.coverage_penalty is {config.coverage_penalty}, accepted is 0 for a "
                f"model without cross-attention"
            )
        return members[0] if len(members) == 1 else EnsembleStepper(members)

    def _prepare(self, model: Seq2Seq, attentive: bool) -> ModelStepper:
        if attentive and model.config.cross_attention:
            return ReadableStepper(model)
        return ModelStepper(model, self.precision)

    def _end_sources(
        self, sources: Sequence[Sequence[int]], config: DecodingConfig
    ) -> list[list[int]]:
        longest = self.longest_source(config)
        return [[*source[: longest - 1], EOS] for source in sources]

    def _force(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        source, target = pad_ids(sources, self.device), pad_ids(targets, self.device)
        of_tokens = [
            log_softmax(model(source, model.decoder_input(target))).gather(2, target[..., None])
            for model in self.models
        ]
        log_probs = of_tokens[0] if len(of_tokens) == 1 else average_probabilities(of_tokens)
        summed = log_probs[..., 0].double().masked_fill(target == PAD, 0.0).sum(dim=1)
        sums: list[float] = summed.tolist()
        return sums

    def _attend(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> list[npt.NDArray[np.float32] | None]:
        """Returns the alignments of the targets, by forced decoding of the readable twins."""
        source, target = pad_ids(sources, self.device), pad_ids(targets, self.device)
        seen = []
        for model in self.models:
            if model.config.cross_attention:
                twin, name = model.readable(), model.alignment_name
                exactly = compute_in("float32", self.device)  # so that its rows sum to 1
                with hooks.record(twin, [name]) as recorded, exactly:
                    twin(source, twin.decoder_input(target))
                seen.append(recorded[name].mean(dim=1).float())
        if not seen:
            return [None] * len(sources)
        weights = torch.stack(seen).mean(dim=0).cpu().numpy()
        return [
            rows[: len(ours), : len(theirs)].copy()
            for rows, ours, theirs in zip(weights, targets, sources, strict=True)
        ]

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        training = [model for model in self.models if model.training]
        for model in training:
            model.eval()
        try:
            with torch.inference_mode(), compute_in(self.precision, self.device):
                yield
        finally:
            for model in training:
                model.train()


def _replace(
    found: list[list[Hypothesis]], field: str, values: Iterable[Any]
) -> list[list[Hypothesis]]:
    """Returns the hypotheses with other values of a field, one after the other."""
    rest = iter(values)
    return [[dataclasses.replace(each, **{field: next(rest)}) for each in best] for best in found]


def token_batches(lengths: Mapping[int, int], budget: int) -> Iterator[list[int]]:
    """Yields batches of sentences of like length.

    Args:
        lengths: the length in tokens of each sentence, by its index.
        budget: the most that sentences x longest may be; a longer sentence is a batch by itself.
    """
    indices = list(lengths)
    for batch in plan_in_order(np.fromiter(lengths.values(), np.int64, len(indices)), budget):
        yield [indices[place] for place in batch]
