"""How the trials of an experiment go, on stderr: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dragoman.cli.progress import say

if TYPE_CHECKING:
    from rich.table import Table

    from dragoman.lab.experiment import Experiment, Trial

_WIDTH = 20
_OTHER_LINES = 2
"""Of the terminal: the table's head, and the line below it."""
_BARS = "▁▂▃▄▅▆▇█"


class LabProgress:
    """Shows a row for each variant: the trial that was heard of last, and how many have ended.

    Those that were heard of last, where there is no room for all.
    """

    def __init__(self, experiment: Experiment, seeds: int) -> None:
        """Takes what is about to run, and how often."""
        self._experiment = experiment
        self._seeds = seeds
        self._latest: dict[str, Trial] = {}
        self._ended: dict[str, set[int]] = {variant.name: set() for variant in experiment.variants}
        self._live: Any = None
        self._rows = 0
        """Variants that the terminal has room for: those that were heard of last."""

    def __enter__(self) -> LabProgress:
        if sys.stderr.isatty() and self._experiment.variants:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._rows = max(1, console.height - _OTHER_LINES)
            self._live = Live(self._table(), console=console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, trial: Trial) -> None:
        """Shows how a trial stands."""
        if self._live is None:
            say(describe_trial(trial))
            return
        self._latest.pop(trial.variant, None)
        self._latest[trial.variant] = trial  # the last one is the one heard of last
        if trial.ended:
            self._ended[trial.variant].add(trial.seed)
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for name, side in (("variant", "left"), ("seed", "right"), ("step", "right")):
            table.add_column(name, justify=side)  # type: ignore[arg-type]
        table.add_column("loss", justify="right", min_width=7)
        table.add_column("", min_width=_WIDTH, no_wrap=True)
        table.add_column("done", justify="right")
        shown = self._ended
        if len(shown) > self._rows:  # a terminal would cut the end off
            recent = {*[*self._latest][-self._rows :]}
            shown = {name: ended for name, ended in shown.items() if name in recent}
        for name, ended in shown.items():
            trial = self._latest.get(name)
            cells = ["", "", "", ""] if trial is None else _cells(trial)
            table.add_row(Text(name), *map(Text, cells), f"{len(ended)}/{self._seeds}")
        return table


def _cells(trial: Trial) -> list[str]:
    """Returns the seed, the latest step and loss, and the curve so far."""
    step, loss = trial.curve[-1] if trial.curve else (0, math.nan)
    curve = "broke off" if trial.failed else sparkline([y for _, y in trial.curve])
    return [str(trial.seed), f"{step:,}", f"{loss:.3f}", curve]


def describe_trial(trial: Trial) -> str:
    """Returns in one line how a trial stands: the latest loss, and its curve so far."""
    seed, step, loss, curve = _cells(trial)
    name = f"  {trial.variant:<20} seed {seed}"
    if trial.failed:
        return f"{name}  {trial.failed}"
    done = "  done" if trial.ended else ""
    return f"{name}  step {step:>5}  loss {loss:>6}  {curve}{done}"


def sparkline(values: Sequence[float]) -> str:
    """Returns the last numbers as bars from 0 to the highest; a cross for what isn't finite."""
    shown = values[-_WIDTH:]
    highest = max((value for value in shown if math.isfinite(value)), default=0.0)

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return "x"
        share = max(0.0, value) / highest if highest > 0 else 0.0
        return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]

    return "".join(map(bar, shown))
