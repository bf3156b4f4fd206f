"""What tests send to other processes, which can import this file by its name alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.config import InputError

Listen = Callable[[Any], None]


def nothing(*told: Any) -> None:
    """Does nothing with whatever it is given."""


def measure(trained: Any) -> dict[str, float]:
    """Measures something of a trained model that shows each bit of its weights."""
    weights = trained.model.to_arrays().values()
    return {"half": 0.5, "sum": sum(float(each.astype("float64").sum()) for each in weights)}


def process_of(number: int, listen: Listen) -> tuple[int, int]:
    """Tells its number twice; returns it and the process that it ran in."""
    listen(number)
    listen(number)
    return number, os.getpid()


def use_a_wrong_file(listen: Listen) -> None:
    """Fails as for a user's mistake."""
    raise InputError("a.txt: missing", "look for it")


def divide_by_zero(listen: Listen) -> None:
    """Fails as for a fault of ours."""
    raise ZeroDivisionError("of\nours")


def vanish(listen: Listen) -> None:
    """Ends its process as a kill does."""
    os._exit(9)


def never_end(folder: Path, listen: Listen) -> None:
    """Leaves a file named as its process, tells of it, and goes on."""
    (folder / str(os.getpid())).touch()
    listen("started")
    while True:
        time.sleep(0.01)
