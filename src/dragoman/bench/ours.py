"""This tool, through what the command line itself runs, with its settings of the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dragoman.bench.plain import count_targets, load_batches
from dragoman.bench.sentences import Ids, Workload
from dragoman.bench.setting import OUTPUT_LENGTH, Run, Setting, config_of_size
from dragoman.config import EOS, DecodingConfig, ModelConfig
from dragoman.decoding.constraints import NEVER
from dragoman.decoding.stepper import Stepper
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.kernels.device import resolve_precision
from dragoman.kernels.process import tune_process
from dragoman.model.transformer import Transformer
from dragoman.training.distributed import Ranks
from dragoman.training.optimizer import build_optimizer, reserve_moments
from dragoman.training.step import Batch, TrainingLoss, training_step


def seeded_model(config: ModelConfig) -> Transformer:
    """Returns the model that every contestant in decoding has the weights of."""
    torch.manual_seed(1)
    return Transformer(config)


class Training:
    """`training_step`, with the settings of the command line."""

    def __init__(self, setting: Setting, precision: str = "auto", shuffled: bool = False) -> None:
        tune_process()
        config = config_of_size(setting.size)
        self._ranks = Ranks(torch.device(setting.device))
        self._training = config.training
        self._precision = resolve_precision(precision, self._ranks.device)
        self._batches: list[Batch] = load_batches(setting, shuffled=shuffled)
        model = seeded_model(config.model).to(setting.device).train()
        self._loss = TrainingLoss(model, config.training.label_smoothing)
        self._optimizer = build_optimizer(model, config.training)
        reserve_moments(self._optimizer)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self.facts: dict[str, Any] = {"precision": self._precision, "parameters": parameters}

    def warm_up(self) -> None:
        """Takes one step."""
        self._step(self._batches[0])

    def run(self) -> Run:
        """Takes a step with each batch."""
        losses = [self._step(batch) for batch in self._batches]
        count = count_targets([target for _, target in self._batches])
        return Run(count, {"loss": sum(losses) / len(losses)})

    def _step(self, batch: Batch) -> float:
        return training_step(
            self._loss,
            self._optimizer,
            [batch],
            self._training,
            1e-4,
            self._precision,
            self._ranks,
        ).loss


class EndlessStepper:
    """A model that never ends a sentence: every output is as long as it may be."""

    def __init__(self, stepper: Stepper[Any]) -> None:
        self._stepper = stepper
        self.start_token, self.max_length = stepper.start_token, stepper.max_length
        self.device = stepper.device

    def start(self, sources: Sequence[Sequence[int]]) -> Any:
        """Reads the sources."""
        return self._stepper.start(sources)

    def step(self, state: Any, tokens: Tensor) -> Tensor:
        """Returns log-probabilities, (batch, beam, vocab), that of EOS minus infinity."""
        log_probs = self._stepper.step(state, tokens)
        log_probs[..., EOS] = NEVER
        return log_probs

    def select(self, state: Any, rows: Tensor) -> None:
        """Keeps hypotheses."""
        self._stepper.select(state, rows)


class EndlessEngine(TorchEngine):
    """The engine with such a model."""

    def _stepper(self, config: DecodingConfig) -> Stepper[Any]:
        return EndlessStepper(super()._stepper(config))


class Decoding:
    """`TorchEngine.translate`: a beam of 4, outputs of `OUTPUT_LENGTH` tokens."""

    def __init__(
        self, setting: Setting, batch: int, sentences: int, precision: str = "auto"
    ) -> None:
        tune_process()
        precision = resolve_precision(precision, torch.device(setting.device))
        model = seeded_model(config_of_size(setting.size).model).to(setting.device)
        self._engine = EndlessEngine(model.eval(), precision)
        self._batches = cut(Workload.load(setting.sentences).sources(sentences), batch)
        self._config = DecodingConfig(
            max_output_extra=OUTPUT_LENGTH, max_output_factor=0.0, batch_tokens=1 << 30
        )
        self.facts: dict[str, Any] = {"precision": precision}

    def warm_up(self) -> None:
        """Translates one batch."""
        self._translate(self._batches[0])

    def run(self) -> Run:
        """Translates all batches."""
        outputs = [tokens for batch in self._batches for tokens in self._translate(batch)]
        return Run(len(outputs), {"outputs": outputs})

    def _translate(self, sources: list[Ids]) -> list[Ids]:
        return [best.tokens for best, *_ in self._engine.translate(sources, self._config)]


def cut(sources: Sequence[Ids], batch: int) -> list[list[Ids]]:
    """Cuts sentences into batches of so many."""
    return [list(sources[start : start + batch]) for start in range(0, len(sources), batch)]
