"""A model that an experiment has trained, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from dragoman.checkpoint import ModelFolder
from dragoman.config import EOS, PAD, Config
from dragoman.data.tokenizer import Tokenizers
from dragoman.decoding.loader import load_model
from dragoman.decoding.stepper import pad_ids
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translator
from dragoman.lab.data import LabData, Pairs
from dragoman.model.architecture import build_model
from dragoman.model.loss import training_loss
from dragoman.model.seq2seq import Seq2Seq


@dataclass(frozen=True)
class Trained:
    """What `Experiment.measure` is given."""

    folder: Path
    model: Seq2Seq
    """In evaluation mode, on the CPU."""
    config: Config
    tokenizers: Tokenizers
    data: LabData
    items: list[float]
    """1 for each test sentence that is translated exactly, else 0."""

    @classmethod
    def open(cls, folder: ModelFolder, data: LabData) -> Trained:
        """Opens a finished run and translates the test sentences."""
        model, tokenizers = load_model(folder, "cpu").eval(), folder.read_tokenizers()
        items = _exact(model, tokenizers, data.test)
        return cls(folder.path, model, folder.read_config(), tokenizers, data, items)

    def exact(self, pairs: Pairs) -> float:
        """Returns the share of sources whose greedy translation is the target, to the letter."""
        found = _exact(self.model, self.tokenizers, pairs)
        return sum(found) / len(found)

    def untrained(self, seed: int) -> Seq2Seq:
        """Makes a model of the same configuration before its first step."""
        torch.manual_seed(seed)
        return build_model(self.config.model).eval()

    def at(self, step: int) -> Seq2Seq:
        """Returns the model as it was after a step that `Experiment.checkpoint_every` has kept."""
        model = build_model(self.config.model)
        folder = ModelFolder(self.folder)
        kept = folder.read_checkpoint(dict(folder.checkpoints())[step])
        model.load_arrays(kept.weights)
        return model.eval()

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

    @torch.no_grad()
    def forced_accuracy(self) -> float:
        """Returns the share of test tokens that are right where all before them are given."""
        source, target = (end_and_pad(side) for side in self.ids)
        sums = training_loss(self.model, source, target, 0.0)
        return sums.correct.item() / int((target != PAD).sum())


def end_and_pad(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Returns sentences as (batch, longest), each with EOS behind it, then padding."""
    return pad_ids([[*ids, EOS] for ids in sentences], torch.device("cpu"))


def _exact(model: Seq2Seq, tokenizers: Tokenizers, pairs: Pairs) -> list[float]:
    translator = Translator(TorchEngine(model), tokenizers.source, tokenizers.target)
    found = translator.translate([source for source, _ in pairs], beam_size=1)
    return [float(each.text == pair[1]) for each, pair in zip(found, pairs, strict=True)]
