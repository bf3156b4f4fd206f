"""A model that an experiment has trained, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.checkpoint import ModelFolder
from dragoman.config import EOS, Config, RunError
from dragoman.data.tokenizer import Tokenizers
from dragoman.decoding.stepper import pad_ids
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translation, Translator
from dragoman.lab.data import LabData, Pairs
from dragoman.lab.experiment import BrokenOff
from dragoman.model.architecture import build_model
from dragoman.model.loss import training_loss
from dragoman.model.seq2seq import Seq2Seq
from dragoman.training.loop import train
from dragoman.training.metrics import Event, Report


@dataclass(frozen=True)
class Trained:
    """What `Experiment.measure` is given."""

    folder: Path
    model: Seq2Seq
    """In evaluation mode, on the CPU."""
    config: Config
    tokenizers: Tokenizers
    data: LabData
    device: str = "cpu"
    """It was trained on."""

    @classmethod
    def open(cls, folder: ModelFolder, data: LabData, device: str = "cpu") -> Trained:
        """Opens a finished run as its last step has left it.

        Not as it was at its best step, which was chosen by the sentences that are tested with.
        """
        config, (_, last) = folder.read_config(), folder.checkpoints()[-1]
        model = _at_checkpoint(folder, config, last)
        return cls(folder.path, model, config, folder.read_tokenizers(), data, device)

    @cached_property
    def translations(self) -> list[Translation]:
        """The greedy translations of the test sentences."""
        return self._translate(self.data.test)

    @property
    def items(self) -> list[float]:
        """1 for each test sentence that is translated exactly, else 0."""
        return _matches(self.translations, self.data.test)

    def exact(self, pairs: Pairs) -> float:
        """Returns the share of sources whose greedy translation is the target, to the letter."""
        return sum(_matches(self._translate(pairs), pairs)) / len(pairs)

    def _translate(self, pairs: Pairs) -> list[Translation]:
        return translate_sources(self.model, self.tokenizers, pairs)

    def untrained(self, seed: int) -> Seq2Seq:
        """Makes a model of the same configuration before its first step."""
        torch.manual_seed(seed)
        return build_model(self.config.model).eval()

    def starts(self, count: int) -> list[Seq2Seq]:
        """Makes so many models before their first step: the run's own, and others like it.

        Another seed's run has others, so that what is measured of them differs as seeds do.
        """
        return [self.untrained(self.config.training.seed + 1000 * n) for n in range(count)]

    def at(self, step: int) -> Seq2Seq:
        """Returns the model as it was after a step that `Experiment.checkpoint_every` has kept."""
        folder = ModelFolder(self.folder)
        return _at_checkpoint(folder, self.config, dict(folder.checkpoints())[step])

    def in_float64(self) -> Seq2Seq:
        """Returns a copy in which rounding can't be mistaken for an effect."""
        copy = build_model(self.config.model).double()
        copy.load_arrays(self.model.to_arrays())
        return copy.eval()

    @cached_property
    def ids(self) -> tuple[list[list[int]], list[list[int]]]:
        """The test sentences as ids, sources and targets, each without EOS."""
        sources, targets = zip(*self.data.test, strict=True)
        return (
            self.tokenizers.source.encode_batch(sources),
            self.tokenizers.target.encode_batch(targets),
        )

    @cached_property
    def unpadded(self) -> list[tuple[Tensor, Tensor]]:
        """The test sentences as batches of sources and targets that need no padding.

        It changes what some variants compute, and batches of training have hardly any.
        """
        by_lengths: dict[tuple[int, int], list[tuple[list[int], list[int]]]] = {}
        for source, target in zip(*self.ids, strict=True):
            by_lengths.setdefault((len(source), len(target)), []).append((source, target))
        batches = (zip(*pairs, strict=True) for pairs in by_lengths.values())
        return [(end_and_pad(sources), end_and_pad(targets)) for sources, targets in batches]

    @torch.no_grad()
    def forced_accuracy(self) -> float:
        """Returns the share of test tokens that are right where all before them are given."""
        right = tokens = 0
        for source, target in self.unpadded:
            right += int(training_loss(self.model, source, target, 0.0).correct)
            tokens += target.numel()
        return right / tokens


def end_and_pad(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Returns sentences as (batch, longest), each with EOS behind it, then padding."""
    return pad_ids([[*ids, EOS] for ids in sentences], torch.device("cpu"))


def translate_sources(
    model: Seq2Seq, tokenizers: Tokenizers, pairs: Pairs, **search: Any
) -> list[Translation]:
    """Translates the sources of pairs; greedily, unless settings of the search are given."""
    translator = Translator(TorchEngine(model), tokenizers.source, tokenizers.target)
    return translator.translate([source for source, _ in pairs], **{"beam_size": 1, **search})


def train_to_end(
    folder: Path,
    config: Config,
    data: LabData,
    device: str,
    report: Report = lambda event: None,
) -> Trained:
    """Trains a model, or goes on where its folder stands, and opens it.

    Args:
        folder: the model's; it stays as it is if the run breaks off.
        config: the settings.
        data: what they name the files of.
        device: to train on, as for `train`.
        report: is called with each event of the training.

    Raises:
        BrokenOff: if the run can't go on: that is a result, too.
        RunError: if it hasn't made a step, for want of memory: that is none.
    """
    steps: list[int] = []

    def listen(event: Event) -> None:
        steps.append(event.get("step", 0))
        report(event)

    try:
        train(folder, config, resume=True, device=device, report=listen)
    except RunError as error:
        if not steps or steps[-1] == steps[0]:  # it has told of nothing but its start
            raise
        reason, _, _ = str(error).partition(": ")  # what follows tells each batch
        raise BrokenOff(reason) from error
    return Trained.open(ModelFolder(folder), data, device)


def _at_checkpoint(folder: ModelFolder, config: Config, path: Path) -> Seq2Seq:
    model = build_model(config.model)
    model.load_arrays(folder.read_checkpoint(path).weights)
    return model.eval()


def _matches(found: Sequence[Translation], pairs: Pairs) -> list[float]:
    return [float(each.text == target) for each, (_, target) in zip(found, pairs, strict=True)]
