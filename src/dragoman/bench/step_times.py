"""How the time of a generated token depends on its position, with the cache and without."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.bench.ours import EndlessStepper, seeded_model
from dragoman.bench.setting import BEAM_SIZE, Run, Setting, config_of_size
from dragoman.config import EOS, UNK, DecodingConfig
from dragoman.decoding.beam import beam_search
from dragoman.decoding.stepper import ModelStepper
from dragoman.kernels.process import tune_process

POSITIONS = (20, 60, 100, 150, 200)
_SENTENCES = 8
_SOURCE_LENGTH = 5
"""Short, so that the encoder, which the uncached way runs each time, hardly matters."""
_AROUND = 4
"""Steps before and after a position that belong to its time."""


class _TimedStepper(EndlessStepper):
    """Notes when each step begins: from one to the next a search does all that it does."""

    def __init__(self, stepper: ModelStepper) -> None:
        super().__init__(stepper)
        self.times: list[float] = []

    def step(self, state: Any, tokens: Tensor) -> Tensor:
        self.times.append(time.perf_counter())
        return super().step(state, tokens)


class StepTimes:
    """Generates `POSITIONS[-1]` tokens and more for 8 sentences with a beam of 4."""

    def __init__(self, setting: Setting, cached: bool) -> None:
        tune_process()
        self._model = seeded_model(config_of_size(setting.size).model).eval()
        self._sources = [[*[UNK] * (_SOURCE_LENGTH - 1), EOS]] * _SENTENCES
        self._measure = self._with_cache if cached else self._without
        self.facts: dict[str, Any] = {"cached": cached}

    def warm_up(self) -> None:
        """Does nothing: whoever times steps doesn't mind the first ones."""

    @torch.inference_mode()
    def run(self) -> Run:
        """Returns the note `seconds`: of a token at each position."""
        return Run(0, {"seconds": self._measure()})

    def _with_cache(self) -> dict[int, float]:
        stepper = _TimedStepper(ModelStepper(self._model))
        length = POSITIONS[-1] + _AROUND + 1
        beam_search(
            stepper,
            self._sources,
            DecodingConfig(
                beam_size=BEAM_SIZE, max_output_extra=length - _SOURCE_LENGTH, max_output_factor=1.0
            ),
        )
        seconds = [after - before for before, after in itertools.pairwise(stepper.times)]
        return {
            position: statistics.median(seconds[position - _AROUND : position + _AROUND + 1])
            for position in POSITIONS
        }

    def _without(self) -> dict[int, float]:
        source = torch.tensor(self._sources).repeat_interleave(BEAM_SIZE, dim=0)
        seconds = {}
        for position in POSITIONS:
            so_far = torch.full((len(source), position), UNK)
            started = time.perf_counter()
            hidden = self._model.hidden(source, so_far)
            F.linear(hidden[:, -1], self._model.output_weight).log_softmax(-1)
            seconds[position] = time.perf_counter() - started
        return seconds
