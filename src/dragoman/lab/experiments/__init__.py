"""The experiments: each module of this package has one, `EXPERIMENT`.

Where it is too small to say much of the models that people use, `FULL_SIZE` is the same with those.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Iterable

from dragoman.config import InputError, nearest_hint
from dragoman.lab.experiment import Experiment


def _collect() -> dict[str, Experiment]:
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    ]
    found: list[Experiment] = [
        getattr(module, name)
        for module in modules
        for name in ("EXPERIMENT", "FULL_SIZE")
        if hasattr(module, name)
    ]
    return {each.name: each for each in sorted(found, key=lambda each: each.number)}


_ALL = "all"
"""That bring their own text: the others are too long to be run unasked."""
EXPERIMENTS = _collect()
"""By name, in the order of their numbers."""


def find_experiments(names: Iterable[str]) -> list[Experiment]:
    """Returns experiments by their names, each once; `all` names those that bring their own text.

    Raises:
        InputError: for an unknown name, naming the nearest one.
    """
    found = []
    bring_text = [name for name, each in EXPERIMENTS.items() if not each.needs_text]
    given = (bring_text if name == _ALL else [name] for name in names)
    for name in dict.fromkeys(itertools.chain.from_iterable(given)):
        if name not in EXPERIMENTS:
            raise InputError(
                f"NAME is {name}, accepted is {_ALL} or one of {', '.join(EXPERIMENTS)}",
                nearest_hint(name, EXPERIMENTS),
            )
        found.append(EXPERIMENTS[name])
    return found
