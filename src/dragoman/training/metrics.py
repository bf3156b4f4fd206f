"""What a run tells: one event after the other, kept in metrics.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]
"""A row of metrics.jsonl. Its key `event` says what it is:

- `start`: step, parameters, pairs, batches (of an epoch), precision, device.
- `log`: step, epoch, loss and nll (nats per target token since the last), learning_rate,
  gradient_norm, tokens_per_second (real target tokens), seconds, seconds_left (None if unknown).
- `validation`: step, weights (`latest` or `average`), loss, nll, perplexity, accuracy, bleu, chrf,
  signature, samples (source, reference, translation), seconds.
- `warning`: step and message.
- `end`: step, reason, weights (which were kept), seconds.

A new run first reports `data`, kept in data.json instead: report (what was read and left out, in a
line), counts, validation_pairs, held_out, source_vocab_size, target_vocab_size.
"""

Report = Callable[[Event], None]


class MetricsFile:
    """metrics.jsonl, written through, a line an event."""

    def __init__(self, path: Path, size: int) -> None:
        """Opens the file and forgets what stands behind its first `size` bytes."""
        self._file = path.open("ab")
        self._file.truncate(size)

    def write(self, event: Event) -> None:
        """Appends an event."""
        self._file.write((json.dumps(event, ensure_ascii=False) + "\n").encode())
        self._file.flush()

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
