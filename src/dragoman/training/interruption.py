"""Ctrl-C, or a system that wants a process to end (SIGTERM). Once: stop soon. Twice: at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether this process was asked to end since.

    The first time only leaves a note; the next does what it ever did, such as to raise
    KeyboardInterrupt. Where signals can't be caught, outside of the main thread, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    noted = {  # the others are somebody else's business, or wanted to be ignored
        number: handler
        for number, handler in before.items()
        if handler not in (None, signal.SIG_IGN)
    }
    asked = threading.Event()

    def restore() -> None:
        for number, handler in noted.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()
        restore()

    for number in noted:
        signal.signal(number, note)
    try:
        yield asked.is_set
    finally:
        restore()
