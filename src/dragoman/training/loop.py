"""The training loop: a step, and the events that react to it."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from dragoman.checkpoint import Arrays, ModelFolder
from dragoman.config import Config, InputError
from dragoman.data.batching import Indices, plan_epoch
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.preparation import TRAINING
from dragoman.kernels.device import resolve_device, resolve_precision
from dragoman.model.transformer import Transformer
from dragoman.training.card import model_card
from dragoman.training.metrics import Event, MetricsFile, Report
from dragoman.training.optimizer import build_optimizer
from dragoman.training.schedule import learning_rate
from dragoman.training.setup import create, take_up
from dragoman.training.state import RunState, Window, capture, restore
from dragoman.training.step import Batch, StepResult, training_step
from dragoman.training.validation import Validator, suspicion


def train(
    path: str | Path,
    config: Config,
    *,
    resume: bool = False,
    from_model: str | Path | None = None,
    device: str = "auto",
    report: Report = lambda event: None,
) -> Path:
    """Trains a model and leaves it in a folder.

    Args:
        path: the new model's folder; with `resume` it may exist.
        config: the settings; the vocabulary sizes come from the tokenizers.
        resume: go on where the model of that folder stopped, or start where there is none.
        from_model: a model whose weights and tokenizers to start with (fine-tuning).
        device: `auto`, `cpu` or `cuda`.
        report: is called with each event; see `training.metrics.Event`.

    Returns:
        The model's folder.

    Raises:
        InputError: for anything wrong with the settings or the data; nothing is left behind.
    """
    path = Path(path)
    place = resolve_device(device)
    if path.exists() and not resume:
        raise InputError(
            f"{path} exists already", "give another name, or --resume to go on with it"
        )
    if path.exists():
        folder = ModelFolder(path)
        take_up(folder, config)
    else:
        folder = create(path, config, from_model, report)
    run = TrainingRun(folder, place, report)
    try:
        run.go()
    finally:
        run.close()
    return path


class TrainingRun:
    """One model in training."""

    def __init__(self, folder: ModelFolder, device: torch.device, report: Report) -> None:
        """Takes up the run of a folder where its last checkpoint left it."""
        self.folder = folder
        self.config = folder.read_config()
        self.device = device
        self.precision = resolve_precision(self.config.training.precision, device)
        tokenizers = folder.read_tokenizers()
        self.corpus = EncodedCorpus.open(folder.run / "data" / TRAINING)
        self.validator = Validator.open(folder, self.config, tokenizers)
        torch.manual_seed(self.config.training.seed)
        self.model = Transformer(
            self.config.model, gradient_checkpointing=self.config.training.gradient_checkpointing
        ).to(device)
        self.optimizer = build_optimizer(self.model, self.config.training)
        self.state = RunState()
        if checkpoints := folder.checkpoints():
            last = folder.read_checkpoint(checkpoints[-1][1])
            self.state = restore(last, self.model, self.optimizer)
        elif folder.has_weights():
            self.model.load_arrays(folder.read_weights())
        self._metrics = MetricsFile(folder.run / "metrics.jsonl", self.state.metrics_bytes)
        self._report = report
        self._plan: list[Indices] = self._plan_epoch()
        self._started = time.monotonic() - self.state.seconds

    def go(self) -> None:
        """Trains until there is a reason to stop, then leaves the best weights."""
        self._start()
        self.model.train()
        reason = self._reason_to_stop()
        while reason is None:
            result = self._step()
            self._log(result)
            if self.state.step % self.config.training.validate_every == 0:
                self._validate()
            reason = self._reason_to_stop()
        if self.state.step not in dict(self.folder.checkpoints()):
            self._validate()
        self._finish(reason)

    def close(self) -> None:
        """Closes the run's files."""
        self._metrics.close()

    def emit(self, event: Event) -> None:
        """Keeps an event and reports it."""
        self._metrics.write(event)
        self._report(event)

    def _start(self) -> None:
        self.emit(
            {
                "event": "start",
                "step": self.state.step,
                "parameters": sum(p.numel() for p in self.model.parameters()),
                "pairs": len(self.corpus),
                "batches": len(self._plan),
                "precision": self.precision,
                "device": str(self.device),
            }
        )

    def _plan_epoch(self) -> list[Indices]:
        training = self.config.training
        return plan_epoch(
            self.corpus.lengths, training.batch_tokens, training.seed, self.state.epoch
        )

    def _next_batch(self) -> list[Batch]:
        """Returns the micro-batches of the next step and moves on in the data."""
        state = self.state
        if state.position == len(self._plan):
            state.epoch, state.position = state.epoch + 1, 0
            self._plan = self._plan_epoch()
        indices = self._plan[state.position]
        state.position += 1
        parts = self.config.training.accumulation
        return [self._load(indices[part::parts]) for part in range(min(parts, len(indices)))]

    def _load(self, indices: Indices) -> Batch:
        source, target = self.corpus.batch(indices)
        return torch.from_numpy(source).to(self.device), torch.from_numpy(target).to(self.device)

    def _step(self) -> StepResult:
        before = time.monotonic()
        state, training = self.state, self.config.training
        batch = self._next_batch()
        state.step += 1
        rate = learning_rate(state.step, training, self.config.model.d_model)
        result = training_step(self.model, self.optimizer, batch, training, rate, self.precision)
        state.window.loss += result.loss * result.tokens
        state.window.nll += result.nll * result.tokens
        state.window.tokens += result.tokens
        state.window.seconds += time.monotonic() - before
        return result

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _log(self, result: StepResult) -> None:
        state, training = self.state, self.config.training
        if state.step % training.log_every:
            return
        window = state.window
        self.emit(
            {
                "event": "log",
                "step": state.step,
                "epoch": state.epoch,
                "loss": window.loss / window.tokens,
                "nll": window.nll / window.tokens,
                "learning_rate": learning_rate(state.step, training, self.config.model.d_model),
                "gradient_norm": result.gradient_norm,
                "tokens_per_second": window.tokens / window.seconds,
                "seconds": self._elapsed(),
                "seconds_left": self._seconds_left(),
            }
        )
        self.state.window = Window()

    def _seconds_left(self) -> float:
        training, elapsed = self.config.training, self._elapsed()
        by_steps = elapsed / self.state.step * (training.max_steps - self.state.step)
        by_hours = training.max_hours * 3600 - elapsed if training.max_hours else by_steps
        return max(0.0, min(by_steps, by_hours))

    def _measure(self, weights: str) -> Event:
        event = self.validator.measure(self.model)
        event = {**event, "step": self.state.step, "weights": weights, "seconds": self._elapsed()}
        self.emit(event)
        if warning := suspicion(event):
            self.emit({"event": "warning", "step": self.state.step, "message": warning})
        return event

    def _score(self, event: Event) -> float:
        """Returns the chosen score of a validation so that higher is better."""
        best_by = self.config.training.best_by
        value: float = event[best_by]
        return -value if best_by == "loss" else value

    def _validate(self) -> None:
        """Measures the model, saves everything, and keeps the weights if they are the best."""
        state, training = self.state, self.config.training
        score = self._score(self._measure("latest"))
        better = state.best_score is None or score > state.best_score
        if better:
            state.best_step, state.best_score, state.stale_validations = state.step, score, 0
        else:
            state.stale_validations += 1
        state.seconds = self._elapsed()
        state.metrics_bytes = self._metrics.sync()
        checkpoint = capture(state, self.model, self.optimizer)
        self.folder.write_checkpoint(state.step, checkpoint)
        if better:
            self.folder.write_weights(checkpoint.weights)
        self.folder.remove_checkpoints(training.keep_checkpoints, state.best_step)

    def _reason_to_stop(self) -> str | None:
        state, training = self.state, self.config.training
        if state.step >= training.max_steps:
            return f"reached training.max_steps ({training.max_steps})"
        if training.max_hours and self._elapsed() >= training.max_hours * 3600:
            return f"reached training.max_hours ({training.max_hours:g})"
        if training.patience and state.stale_validations >= training.patience:
            return (
                f"no better {training.best_by} for {state.stale_validations} validations, "
                f"training.patience is {training.patience}"
            )
        return None

    def _finish(self, reason: str | None) -> None:
        """Keeps the average of the last checkpoints where it is at least as good as the best."""
        state, training = self.state, self.config.training
        count = min(training.average_last, len(self.folder.checkpoints()))
        average = self.folder.average_last(count)
        self.model.load_arrays(average)
        event = self._measure("average")
        assert state.best_score is not None
        kept, weights = f"step {state.best_step}, the best checkpoint", self._best_weights()
        if self._score(event) >= state.best_score:
            kept, weights = f"the average of the last {count} checkpoints", average
        self.model.load_arrays(weights)
        self.folder.write_weights(weights)
        end = {"step": state.step, "reason": reason, "weights": kept, "seconds": self._elapsed()}
        self.emit({"event": "end", **end})
        self.folder.write_card(model_card(self.folder))

    def _best_weights(self) -> Arrays:
        path = dict(self.folder.checkpoints())[self.state.best_step]
        return self.folder.read_checkpoint(path).weights
