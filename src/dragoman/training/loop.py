"""The training loop: a step, and the events that react to it."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from dragoman.checkpoint import Arrays, Checkpoint, ModelFolder
from dragoman.config import PAD, Config, RunError
from dragoman.data.atomic import held_alone
from dragoman.data.batching import Indices
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.preparation import TRAINING
from dragoman.data.subword_dropout import SubwordDropout
from dragoman.kernels.memory import is_want_of_memory
from dragoman.kernels.resources import ResidentLimit
from dragoman.model.architecture import build_model
from dragoman.training.card import model_card
from dragoman.training.computing import choose_precision, settle_computing
from dragoman.training.distributed import Ranks, joined
from dragoman.training.feed import Ahead, Feed
from dragoman.training.interruption import interruptible
from dragoman.training.metrics import Event, MetricsFile, Report
from dragoman.training.optimizer import build_optimizer, reserve_moments
from dragoman.training.rehearsal import rehearse_largest
from dragoman.training.schedule import learning_rate
from dragoman.training.setup import create, require_free, take_up
from dragoman.training.state import RunState, Window, capture, restore
from dragoman.training.step import Batch, StepResult, TrainingLoss, training_step
from dragoman.training.validation import Validator, suspicion

Place = tuple[int, int, int, int]
"""Step, epoch, pool and position of a run."""
_SETTLED = 100
"""Steps after which a run's pace tells how far it will come."""
_MOST_SKIPPED = 10
"""Steps in a row without a finite gradient after which a run gives up."""


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
        RunError: for want of memory, gradients that aren't finite, or a process that is lost.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when all is saved.
    """
    path = Path(path)
    with joined(device) as ranks, ExitStack() as held:
        fresh = not path.exists()
        folder = _open(path, config, resume, from_model, report, ranks, held)
        try:
            with closing(TrainingRun(folder, ranks, report)) as run:
                run.start()
                fresh = False
                run.go()
        except Exception as error:
            if fresh and ranks.first and (isinstance(error, RunError) or is_want_of_memory(error)):
                shutil.rmtree(path)  # or another try with less memory would find its name taken
            raise
    return path


def _open(
    path: Path,
    config: Config,
    resume: bool,
    from_model: str | Path | None,
    report: Report,
    ranks: Ranks,
    held: ExitStack,
) -> ModelFolder:
    """Makes or takes up the folder of a run; the first rank does, and the others wait.

    The folder is nobody else's until `held` is closed.
    """
    if ranks.first:
        if not resume:
            require_free(path)
        if path.exists():
            held.enter_context(held_alone(path))
            take_up(ModelFolder(path), config)
        else:
            create(path, config, from_model, report)
            held.enter_context(held_alone(path))
    ranks.agree(None)
    return ModelFolder(path)


class TrainingRun:
    """One model in training."""

    def __init__(self, folder: ModelFolder, ranks: Ranks, report: Report) -> None:
        """Takes up the run of a folder where its last checkpoint left it."""
        self.folder = folder
        self.config = folder.read_config()
        self.ranks = ranks
        training = self.config.training
        tokenizers = folder.read_tokenizers()
        self.corpus = EncodedCorpus.open(
            folder.run / "data" / TRAINING, tokenizers.fingerprint, tokenizers.sizes
        )
        share = training.batch_tokens // (ranks.count * training.accumulation)
        self.validator = Validator.open(folder, self.config, tokenizers, share)
        self._subword_dropout = SubwordDropout(
            tokenizers.source,
            tokenizers.target,
            self.config.data.bpe_dropout,
            self.config.longest_sentence,
        )
        torch.manual_seed(training.seed)
        self.model = build_model(
            self.config.model, gradient_checkpointing=training.gradient_checkpointing
        ).to(ranks.device, torch.float64 if training.precision == "float64" else None)
        if not ranks.first:  # the same parameters, but dropout of its own
            torch.manual_seed(training.seed + 1_000_003 * ranks.rank)
        self.optimizer = build_optimizer(self.model, training)
        self.state = RunState()
        if checkpoints := ranks.agree(folder.checkpoints()):
            last = folder.read_checkpoint(checkpoints[-1][1])
            self.state = restore(last, self.model, self.optimizer, ranks)
            if ranks.first:  # a kill may have come between the checkpoint and this
                if not folder.has_card():
                    self._keep_if_best(last)
                self._remove_old()
        elif folder.has_weights():
            self.model.load_arrays(folder.read_weights())
        self.precision = ranks.agree(
            choose_precision(training.precision, ranks.device, self.state.computing)
        )
        reserve_moments(self.optimizer)
        loss = TrainingLoss(self.model, training.label_smoothing)
        self._loss = ranks.wrap(loss)
        self._next = dataclasses.replace(self.state)  # of the step that is being made ready
        self._feed = Feed(self.corpus, self.config, self._next)
        self._metrics: MetricsFile | None = None
        self._begins_again = False
        if ranks.first:
            path = folder.run / "metrics.jsonl"
            self._begins_again = not checkpoints and path.exists()
            self._metrics = MetricsFile(path, self.state.metrics_bytes)
        self._report = report
        self._taken_up_at = self.state.step
        self._started = time.monotonic() - self.state.seconds

    def start(self) -> None:
        """Tells what is about to run, and tries the largest batch that can come.

        Raises:
            RunError: if there isn't enough memory for it.
        """
        self.emit(
            {
                "event": "start",
                "step": self.state.step,
                "parameters": sum(p.numel() for p in self.model.parameters()),
                "pairs": len(self.corpus),
                "batches": self._feed.steps_per_epoch(),
                "precision": self.precision,
                "device": str(self.ranks.device),
                "processes": self.ranks.count,
            }
        )
        if self._begins_again:
            self._warn("no checkpoint is left of what this run has done: it begins again")
        self._settle_computing()
        if self._reason_to_stop() is None:
            loss = TrainingLoss(self.model, self.config.training.label_smoothing)
            rehearse_largest(loss, self.config, self.corpus, self.precision, self.ranks)

    def _settle_computing(self) -> None:
        before = self.state.computing
        self.state.computing, changed = settle_computing(self.precision, self.ranks, before)
        if changed:
            self._warn(
                f"this run has computed in {before} and goes on in {self.state.computing}: its "
                "numbers differ from here on as rounding does"
            )

    def go(self) -> None:
        """Trains until there is a reason to stop, then leaves the best weights.

        Raises:
            KeyboardInterrupt: after Ctrl-C or SIGTERM, when all is saved.
            RunError: if the gradient is not finite any more.
        """
        self.model.train()
        memory = ResidentLimit()  # the largest batch has just been tried
        with interruptible() as interrupted, closing(Ahead(self._prepare)) as ahead:
            reason, leave = self._agree_to_stop(interrupted())
            while reason is None and not leave:
                result = self._step(ahead)
                self._log(result)
                if self.state.step % self.config.training.log_every == 0:
                    memory.enforce()  # no more often: what is given back has to be fetched again
                if self.state.step % self.config.training.validate_every == 0:
                    self._validate()
                reason, leave = self._agree_to_stop(interrupted())
            if not leave and self.state.step != self.state.validated_step:
                self._validate()
                _, leave = self._agree_to_stop(interrupted())
        if leave:
            self._leave()
        if self.ranks.first:
            self._finish(reason)

    def close(self) -> None:
        """Closes the run's files."""
        if self._metrics is not None:
            self._metrics.close()

    def emit(self, event: Event) -> None:
        """Keeps an event and reports it; the first rank speaks for all."""
        if self._metrics is not None:
            self._metrics.write(event)
            self._report(event)

    def _warn(self, message: str) -> None:
        self.emit({"event": "warning", "step": self.state.step, "message": message})

    def _prepare(self) -> tuple[list[Batch], Place]:
        """Makes the next step's batches; returns them and where the run will stand."""
        batches, place = self._micro_batches(self._feed.next()), self._next
        place.step += 1
        return batches, (place.step, place.epoch, place.pool, place.position)

    def _micro_batches(self, indices: Indices) -> list[Batch]:
        """Returns this rank's share of a step, cut for accumulation."""
        mine = self.ranks.share(indices)
        if len(mine) == 0:  # all ranks take part in every step: this one with nothing to learn
            source, target = self._load(indices[:1], 0)
            return [(source, torch.full_like(target, PAD))]
        parts = min(self.config.training.accumulation, len(mine))
        return [self._load(mine[part::parts], part) for part in range(parts)]

    def _load(self, indices: Indices, part: int) -> Batch:
        seed = self.config.training.seed, self._next.step, self.ranks.rank, part
        sides = self.corpus.batch(indices, self._subword_dropout.recut(seed))
        source, target = (torch.from_numpy(side).to(self.ranks.device) for side in sides)
        return source, target

    def _step(self, ahead: Ahead[tuple[list[Batch], Place]]) -> StepResult:
        before = time.monotonic()
        state, training = self.state, self.config.training
        batch, place = ahead.take()
        state.window.waiting += time.monotonic() - before
        state.step, state.epoch, state.pool, state.position = place
        rate = learning_rate(state.step, training, self.config.model.d_model)
        result = training_step(
            self._loss, self.optimizer, batch, training, rate, self.precision, self.ranks
        )
        if result.finite:
            state.skipped_in_row.clear()
            state.window.loss += result.loss * result.tokens
            state.window.nll += result.nll * result.tokens
            state.window.tokens += result.tokens
        else:
            self._count_skipped()
        state.window.seconds += time.monotonic() - before
        return result

    def _count_skipped(self) -> None:
        """Notes a step without a finite gradient, which has changed nothing.

        Raises:
            RunError: naming the batches, after too many in a row.
        """
        state = self.state
        batch = f"epoch {state.epoch}, pool {state.pool}, batch {state.position}"
        state.skipped_steps += 1
        state.skipped_in_row.append(batch)
        self._warn(
            f"the gradient of step {state.step:,} isn't finite: skipped ({batch}; "
            f"{state.skipped_steps:,} so far)"
        )
        if len(state.skipped_in_row) == _MOST_SKIPPED:
            raise RunError(
                f"the gradient wasn't finite in {_MOST_SKIPPED} steps in a row: "
                f"{'; '.join(state.skipped_in_row)}",
                "try a lower learning rate, more training.warmup_steps or a training.clip_norm",
            )

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _log(self, result: StepResult) -> None:
        state, training = self.state, self.config.training
        window = state.window
        if state.step % training.log_every or not window.tokens:
            return
        self.emit(
            {
                "event": "log",
                "step": state.step,
                "epoch": state.epoch,
                "loss": window.loss / window.tokens,
                "nll": window.nll / window.tokens,
                "learning_rate": learning_rate(state.step, training, self.config.model.d_model),
                "gradient_norm": result.gradient_norm if result.finite else None,
                "tokens_per_second": window.tokens / window.seconds,
                "waiting": window.waiting / window.seconds,
                "seconds": self._elapsed(),
                "seconds_left": self._seconds_left(),
            }
        )
        self.state.window = Window()
        if state.step - training.log_every < _SETTLED <= state.step:
            self._compare_warm_up()

    def _compare_warm_up(self) -> None:
        """Warns of a warm-up that takes longer than the run may."""
        training = self.config.training
        last = self.state.step * training.max_hours * 3600 / self._elapsed()
        if 0 < last < training.warmup_steps:
            self._warn(
                f"at this pace training.max_hours ({training.max_hours:g}) is over near step "
                f"{last:,.0f}, while the rate still rises: training.warmup_steps is "
                f"{training.warmup_steps:,}"
            )

    def _seconds_left(self) -> float:
        training, elapsed = self.config.training, self._elapsed()
        by_steps = elapsed / self.state.step * (training.max_steps - self.state.step)
        by_hours = training.max_hours * 3600 - elapsed if training.max_hours else by_steps
        return max(0.0, min(by_steps, by_hours))

    def _measure(self, weights: str) -> Event:
        event = {**self.validator.measure(self.model), "step": self.state.step}
        event |= {"weights": weights, "seconds": self._elapsed()}
        self.emit(event)
        if warning := suspicion(event):
            self._warn(warning)
        return event

    def _score(self, event: Event) -> float:
        """Returns the chosen score of a validation so that higher is better."""
        best_by = self.config.training.best_by
        value: float = event[best_by]
        value = -value if best_by == "loss" else value
        return value if math.isfinite(value) else -math.inf

    def _validate(self) -> None:
        """Measures the model, saves everything, and keeps the weights if they are the best."""
        state = self.state
        score = self.ranks.agree(self._score(self._measure("latest")) if self.ranks.first else 0.0)
        better = state.best_score is None or score > state.best_score
        if better:
            state.best_step, state.best_score, state.stale_validations = state.step, score, 0
        else:
            state.stale_validations += 1
        state.validated_step = state.step
        if checkpoint := self._save():
            self._keep_if_best(checkpoint)
            self._remove_old()

    def _keep_if_best(self, checkpoint: Checkpoint) -> None:
        """Makes the weights of a validated checkpoint the model's if they are the best so far."""
        if self.state.step == self.state.validated_step == self.state.best_step:
            self.folder.write_weights(checkpoint.weights)

    def _remove_old(self) -> None:
        """Removes checkpoints that a validation has made superfluous."""
        state, training = self.state, self.config.training
        if state.step == state.validated_step:
            self.folder.remove_checkpoints(
                training.keep_checkpoints, state.best_step, training.validate_every
            )

    def _save(self) -> Checkpoint | None:
        """Writes all it takes to go on from here."""
        state = self.state
        state.seconds = self._elapsed()
        if self._metrics is not None:
            state.metrics_bytes = self._metrics.sync()
        checkpoint = capture(state, self.model, self.optimizer, self.ranks)
        if checkpoint is not None:
            self.folder.remove_card()  # it is of a run that has come to its end
            self.folder.write_checkpoint(state.step, checkpoint)
        return checkpoint

    def _leave(self) -> None:
        """Saves a run that was interrupted, for another day.

        Raises:
            KeyboardInterrupt: always.
        """
        if not self.ranks.agree(self.state.step in dict(self.folder.checkpoints())):
            self._save()
        self.emit({"event": "interrupted", "step": self.state.step, "seconds": self._elapsed()})
        raise KeyboardInterrupt

    def _agree_to_stop(self, interrupted: bool) -> tuple[str | None, bool]:
        """Returns why the run is over, if it is, and whether a process was asked to end."""
        reason = self.ranks.agree(self._reason_to_stop())
        return reason, any(self.ranks.gather(interrupted))

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
        """Keeps the average of the last checkpoints where it is at least as good as the best.

        A run that had come to its end before keeps what it has: that may be the user's average.
        """
        state, training = self.state, self.config.training
        count = min(training.average_last, len(self.folder.checkpoints()))
        average = self.folder.average_last(count)
        self.model.load_arrays(average)
        event = self._measure("average")  # again, for what came behind a checkpoint isn't kept
        if state.step == self._taken_up_at and self.folder.has_card():
            self._end(reason, "as they were")
            return
        assert state.best_score is not None
        kept, weights = f"step {state.best_step}, the best checkpoint", self._best_weights()
        if self._score(event) >= state.best_score:
            kept, weights = f"the average of the last {count} checkpoints", average
        self.model.load_arrays(weights)
        self.folder.write_weights(weights)
        self._end(reason, kept)
        self.folder.write_card(model_card(self.folder))

    def _end(self, reason: str | None, weights: str) -> None:
        end = {"step": self.state.step, "reason": reason, "weights": weights}
        self.emit({"event": "end", **end, "seconds": self._elapsed()})

    def _best_weights(self) -> Arrays:
        path = dict(self.folder.checkpoints()).get(self.state.best_step)
        if path is None:  # somebody removed it; what was kept when it was made is still there
            return self.folder.read_weights()
        return self.folder.read_checkpoint(path).weights
