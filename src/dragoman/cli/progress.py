"""How a training run goes, on stderr: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from dragoman.training.metrics import Event


def say(line: str) -> None:
    """Prints a line for a person to read."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Shows the events of a run as they happen."""

    def __init__(
        self,
        max_steps: int,
        *,
        quiet: bool = False,
        to_go_on: str = "give the same command with --resume",
    ) -> None:
        """Takes what is known of a run before its first event.

        Args:
            max_steps: how many it has at most.
            quiet: nothing will be shown.
            to_go_on: what to do after an interruption.
        """
        self.max_steps = max_steps
        self.to_go_on = to_go_on
        self._quiet = quiet
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and not self._quiet:
            self._bar = _make_bar()
            self._task = self._bar.add_task("", total=self.max_steps, status="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Shows an event."""
        if self._bar is None:
            for line in self.describe(event):
                say(line)
            return
        self._bar.update(self._task, completed=event.get("step", 0))
        if event["event"] == "log":
            self._bar.update(self._task, status=_status(event))
        else:
            for line in self.describe(event):
                self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def describe(self, event: Event) -> list[str]:
        """Returns an event as lines."""
        return _DESCRIPTIONS[event["event"]](event, self)


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        console=Console(stderr=True),
    )


def _status(event: Event) -> str:
    left = format_duration(event["seconds_left"])
    return f"loss {event['loss']:.3f}  {event['tokens_per_second']:,.0f} tokens/s  {left} left"


def format_duration(seconds: float) -> str:
    """Returns a duration as one says it: 42 s, 7 min, 3 h 05 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _describe_data(event: Event, run: Progress) -> list[str]:
    origin = "held out from the text, for none was given" if event["held_out"] else "as given"
    if event["validation_long"]:
        origin += f"; {event['validation_long']:,} longer than data.max_length left out"
    return [event["report"], f"validation: {event['validation_pairs']:,} pairs, {origin}"]


def _describe_start(event: Event, run: Progress) -> list[str]:
    several = f" in {event['processes']} processes" if event["processes"] > 1 else ""
    verb = f"going on after step {event['step']:,}" if event["step"] else "training"
    return [
        f"{verb}: {event['parameters']:,} parameters, {event['pairs']:,} pairs, "
        f"{event['batches']:,} steps an epoch, {run.max_steps:,} steps at most, "
        f"{event['precision']} on {event['device']}{several}"
    ]


def _describe_interrupted(event: Event, run: Progress) -> list[str]:
    return [f"stopped after step {event['step']:,} and saved; to go on, {run.to_go_on}"]


def _describe_log(event: Event, run: Progress) -> list[str]:
    return [f"step {event['step']:,}/{run.max_steps:,}  {_status(event)}"]


def _describe_validation(event: Event, run: Progress) -> list[str]:
    of = "" if event["weights"] == "latest" else ", average of the last checkpoints"
    lines = [
        f"step {event['step']:,}{of}: validation BLEU {event['bleu']:.2f}  "
        f"chrF {event['chrf']:.2f}  perplexity {event['perplexity']:.3f}  {event['signature']}"
    ]
    for sample in event["samples"]:
        lines += [f"  {key:<12}{sample[key]}" for key in ("source", "reference", "translation")]
    return lines


def _describe_warning(event: Event, run: Progress) -> list[str]:
    return [f"warning: {event['message']}"]


def _describe_end(event: Event, run: Progress) -> list[str]:
    return [
        f"done: {event['reason']}; {event['step']:,} steps in "
        f"{format_duration(event['seconds'])}; the weights are {event['weights']}"
    ]


_DESCRIPTIONS: dict[str, Callable[[Event, Progress], list[str]]] = {
    "data": _describe_data,
    "start": _describe_start,
    "log": _describe_log,
    "validation": _describe_validation,
    "warning": _describe_warning,
    "interrupted": _describe_interrupted,
    "end": _describe_end,
}
