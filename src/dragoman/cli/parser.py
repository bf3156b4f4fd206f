"""argparse with the habits of this command line: no abbreviations, errors of one form."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

from dragoman.config import InputError, nearest_hint

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `InputError`s and which leaves out what wasn't given.

    Attributes:
        options: every option that it has, hidden ones too.
    """

    def __init__(self, **settings: Any) -> None:
        self.options: list[str] = []
        self._intermixing = False
        super().__init__(
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=28),
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            **settings,
        )

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Adds an argument, and remembers the names of an option."""
        self.options += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Takes the file of `dragoman translate MODEL --beam-size 5 FILE` wherever it stands."""
        if self._subparsers is not None or self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True  # argparse does it in two passes, each through here
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False

    def error(self, message: str) -> NoReturn:
        """Raises argparse's own message in our form: the place, the value, what is accepted."""
        message = message.removeprefix("argument ")
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            raise InputError(f"{missing}: required, but not given", f"see {self.prog} --help")
        if choice := _CHOICE.search(message):
            place, value = message[: choice.start()].rstrip(": "), choice[1]
            accepted = choice[2].replace("'", "").split(", ")
            raise InputError(
                f"{place} is {value}, accepted is one of {', '.join(accepted)}",
                nearest_hint(value, accepted),
            )
        raise InputError(message, f"see {self.prog} --help")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raises an error for what `parse_known_args` could make nothing of."""
        first = unknown[0].partition("=")[0]
        if not first.startswith("-"):
            raise InputError(f"{first}: one argument too many", f"see {self.prog} --help")
        hint = nearest_hint(first, self.options)
        raise InputError(f"{first} is not an option", hint or f"see {self.prog} --help")


class Commands(Protocol):
    """Where a command adds its parser."""

    def add_parser(self, name: str, **settings: Any) -> Parser:
        """Adds a command."""
        ...


def whole_number(least: int) -> Callable[[str], int]:
    """Returns the reader of an option's value that is a whole number of at least so much."""

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and int(text) >= least:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r}, accepted is a whole number of {least} or more")

    return read


def settings_of(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns the settings that were given, by section: the arguments with a dotted name."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in vars(arguments).items():
        section, dot, key = name.partition(".")
        if dot:
            sections.setdefault(section, {})[key] = value
    return sections
