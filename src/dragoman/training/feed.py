"""The pairs of each step, one batch after the other, from wherever a run stands."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from dragoman.config import Config
from dragoman.data.batching import EpochPlan, Indices
from dragoman.data.encoded import EncodedCorpus
from dragoman.training.state import RunState

Prepared = TypeVar("Prepared")


class Feed:
    """Deals out the batches of a run and keeps count in its state.

    What comes next depends on the state alone: nothing is read again to get there.
    """

    def __init__(self, corpus: EncodedCorpus, config: Config, state: RunState) -> None:
        """Goes on where the state says."""
        self._corpus, self._config, self._state = corpus, config, state
        self._epoch = self._plan_epoch()
        self._batches = self._epoch.pool(state.pool)

    def _plan_epoch(self) -> EpochPlan:
        corpus, training = self._corpus, self._config.training
        parts = list(zip(corpus.parts, self._config.data.weights, strict=True))
        return EpochPlan(
            corpus.lengths, training.batch_tokens, training.seed, self._state.epoch, parts
        )

    def steps_per_epoch(self) -> int:
        """Returns how many batches an epoch has: about as many, where it has several pools."""
        share = min(1.0, self._epoch.pools - self._state.pool)
        return round(len(self._batches) * self._epoch.pools / share) if share > 0 else 0

    def next(self) -> Indices:
        """Returns the pairs of the next step, and moves on."""
        state = self._state
        while state.position >= len(self._batches):
            state.pool, state.position = state.pool + 1, 0
            if state.pool >= self._epoch.pools:
                state.epoch, state.pool = state.epoch + 1, 0
                self._epoch = self._plan_epoch()
            self._batches = self._epoch.pool(state.pool)
        state.position += 1
        return self._batches[state.position - 1]


class Ahead(Generic[Prepared]):
    """Makes the next of a series of things while the one before is in use."""

    def __init__(self, make: Callable[[], Prepared]) -> None:
        """Begins with the first.

        Args:
            make: returns the next one each time; it is called in a thread of its own.
        """
        self._make = make
        self._worker = ThreadPoolExecutor(1)
        self._next = self._worker.submit(make)

    def take(self) -> Prepared:
        """Returns the next one, waiting for it if need be, and begins with the one after it.

        Raises:
            Exception: whatever stopped its making.
        """
        made = self._next.result()
        self._next = self._worker.submit(self._make)
        return made

    def close(self) -> None:
        """Waits for what is being made, and makes no more."""
        self._worker.shutdown(cancel_futures=True)
