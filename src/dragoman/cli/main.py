"""The command `dragoman`: its commands, and the one place that turns errors into lines."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from dragoman.cli import (
    attend,
    average,
    bench,
    compare,
    demo,
    evaluate,
    inspect,
    lab,
    score,
    train,
    translate,
)
from dragoman.cli.parser import Parser
from dragoman.config import InputError, RunError
from dragoman.kernels.memory import is_want_of_memory

_COMMANDS = (demo, train, translate, score, evaluate, compare, average, inspect, attend, lab, bench)
_FAILED, _MISUSED, _INTERRUPTED = 1, 2, 130


def build_parser() -> Parser:
    """Returns the parser of the whole command line."""
    parser = Parser(
        prog="dragoman",
        description="Train a translator of your own on your own text, run it, take it apart.",
        epilog="Data goes to stdout, all else to stderr. Exit status: 0 done, 1 failed, 2 wrong "
        "use, 130 interrupted.\n`dragoman COMMAND --help` says more.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status: 0 done, 1 failed at run time, 2 wrong use or bad input, 130 interrupted.
    """
    _replace_closed_streams()
    try:
        _run(argv)
    except InputError as error:
        return _fail(_MISUSED, str(error), error.hint)
    except KeyboardInterrupt:
        return _fail(_INTERRUPTED, "interrupted")
    except BrokenPipeError:  # who reads our output has seen enough
        _forget_output()
        return _FAILED
    except OSError as error:
        _forget_output()
        place = f"{error.filename}: " if error.filename else ""
        return _fail(_FAILED, f"{place}{error.strerror or error}")
    except RunError as error:
        return _fail(_FAILED, str(error), error.hint)
    except Exception as error:
        if is_want_of_memory(error):
            return _fail(_FAILED, "not enough memory", "a smaller --batch-tokens needs less")
        if _rank() is not None:  # a fault of ours; where many run, say whose it is
            _fail(_FAILED, f"{type(error).__name__}: {error}")
        raise
    return 0


def _run(argv: list[str] | None) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):  # data is UTF-8, but for the names of some files
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        arguments.parser.refuse(unknown)
    arguments.run(arguments)
    sys.stdout.flush()


def _replace_closed_streams() -> None:
    """Lets what goes to a stream that the caller has closed go nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _rank() -> str | None:
    """Returns which of the processes that torchrun started this is, if it did."""
    return os.environ.get("RANK") if os.environ.get("WORLD_SIZE", "1") != "1" else None


def _fail(status: int, message: str, hint: str | None = None) -> int:
    speaker = "" if _rank() is None else f"rank {_rank()}: "
    for kind, text in (("error", speaker + message), ("hint", hint)):
        if text:
            print(f"{kind}: {' '.join(text.splitlines())}", file=sys.stderr)
    return status


def _forget_output() -> None:
    """Lets what can't be written go, or Python would try again at its end, and complain."""
    with contextlib.suppress(OSError, ValueError):  # a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
