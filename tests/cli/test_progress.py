from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from dragoman.cli.progress import Progress, format_duration

LOG = {"event": "log", "step": 50, "loss": 3.14159, "tokens_per_second": 12345.6}
WARNING = {"event": "warning", "step": 50, "message": "a [leaking] mask"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Puts a terminal in the place of stderr; in the test itself, for pytest puts its own there."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_elsewhere_than_on_a_terminal_an_event_is_a_plain_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(1000) as progress:
        progress({**LOG, "seconds_left": 90.0})
        progress(WARNING)
    assert capsys.readouterr().err.splitlines() == [
        "step 50/1,000  loss 3.142  12,346 tokens/s  2 min left",
        "warning: a [leaking] mask",
    ]


def test_on_a_terminal_a_line_moves_below_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with Progress(1000) as progress:
        progress({**LOG, "seconds_left": 90.0})
        progress(WARNING)
    shown = terminal.getvalue()
    assert "warning: a [leaking] mask\n" in shown
    assert "50/1,000" in shown
    assert "12,346 tokens/s" in shown


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    def colours() -> bool:
        terminal = open_terminal(monkeypatch)
        with Progress(10) as progress:
            progress({**LOG, "seconds_left": 90.0})
        return bool(re.search(r"\x1b\[[\d;]+m", terminal.getvalue()))

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


def test_the_line_is_taken_down_when_training_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(monkeypatch)

    def fail() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Progress(10):
        fail()
    assert terminal.getvalue().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.4, "59 s"), (90, "2 min"), (3599, "1 h 00 min")]
)
def test_durations_are_said_as_people_do(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said
