"""What a run tells: one event after the other, kept in metrics.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]
"""A row of metrics.jsonl. Its key `event` says what it is:

- `start`: step, parameters, pairs, batches (of an epoch), precision, device, processes.
- `log`: step, epoch, loss and nll (nats per target token since the last), learning_rate,
  gradient_norm, tokens_per_second (real target tokens), seconds, seconds_left (None if unknown).
- `validation`: step, weights (`latest` or `average`), loss, nll, perplexity, accuracy, bleu, chrf,
  signature, samples (source, reference, translation), seconds.
- `warning`: step and message.
- `interrupted`: step, seconds; the run was saved and can go on.
- `end`: step, reason, weights (which were kept), seconds.

A new run first reports `data`, kept in data.json instead: report (what was read and left out, in a
line), counts, validation_pairs, validation_long (left out for their length), held_out,
source_vocab_size, target_vocab_size.
"""

Report = Callable[[Event], None]


class MetricsFile:
    """metrics.jsonl, written through, a line an event."""

    def __init__(self, path: Path, size: int) -> None:
        """Opens the file and forgets what stands behind its first `size` bytes."""
        self._file = path.open("ab", buffering=0)
        self._file.truncate(size)

    def write(self, event: Event) -> None:
        """Appends an event."""
        try:
            self._file.write((json.dumps(event, ensure_ascii=False) + "\n").encode())
        except OSError as error:  # which doesn't know the file's name
            raise OSError(error.errno, error.strerror, self._file.name) from None

    def sync(self) -> int:
        """Makes sure that all is on disk; returns how many bytes that are."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_metrics(path: Path) -> list[Event]:
    """Reads the events of a run."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
