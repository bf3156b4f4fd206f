"""What a run tells: one event after the other, kept in metrics.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.config import InputError

Event = dict[str, Any]
"""A row of metrics.jsonl. Its key `event` says what it is:

- `start`: step, parameters, pairs, batches (of an epoch), precision, device, processes.
- `log`: step, epoch, loss and nll (nats per target token since the last), learning_rate,
  gradient_norm (None where it wasn't finite), tokens_per_second (real target tokens), waiting
  (share of the time in which a step had no data yet), seconds, seconds_left.
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
        """Opens the file and forgets what stands behind its first `size` bytes.

        Raises:
            InputError: if there are fewer, or they are damaged; better now than at the end of the
                run, when its card is written.
        """
        if size and (not path.exists() or path.stat().st_size < size):
            raise InputError(f"{path}: damaged, it should have {size:,} bytes or more")
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        self._file.truncate(size)
        try:
            read_metrics(path)
        except InputError:
            self._file.close()
            raise

    def write(self, event: Event) -> None:
        """Appends an event."""
        rest = (json.dumps(event, ensure_ascii=False) + "\n").encode()
        try:
            while rest:  # a disk that is nearly full takes a part
                rest = rest[self._file.write(rest) :]
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
    """Reads the events of a run.

    Raises:
        InputError: naming the line, if one is damaged.
    """
    events = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                event = json.loads(line)
                events.append({**event, "event": event["event"]})
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{path}:{number}: not an event of a run") from None
    return events
