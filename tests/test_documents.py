"""What the documents name is there, and both languages of a document say the same.

Where a figure or a command changes in an English document, its Chinese one has to follow: the
failure names the heading and shows both sides.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dragoman.cli.main import build_parser
from dragoman.cli.parser import settings_of
from dragoman.config import DecodingConfig, InputError
from dragoman.lab.experiments import EXPERIMENTS, find_experiments
from dragoman.settings import SECTIONS, build_config, build_decoding

ROOT = Path(__file__).parent.parent
TRANSLATED = ("README.md", "docs/essay.md", "docs/laboratory.md")
DOCUMENTS = [name for each in TRANSLATED for name in (each, each.replace(".md", ".zh-CN.md"))]

_SPAN = re.compile(r"`([^`]+)`")
_FIGURE = re.compile(r"(\d+(?:,\d{3})*(?:\.\d+)*) ?(thousand|million|万)?")
_UNITS = {"thousand": 1_000, "million": 1_000_000, "万": 10_000}
_DRAGOMAN = re.compile(r"(?:torchrun .* -m )?dragoman( .*)?")
_PYTEST = re.compile(r"(?:[A-Z_]+=\S+ )?pytest (\S+\.py)(?: -k (\w+))?")
_MAKE = re.compile(r"make( [a-z]+)?( [A-Z]+=\w+)?")
_PATH = re.compile(r"(?:(?:docs|examples|tests|src)/[\w./-]*|[A-Z]+\.md)")
_DOTTED = re.compile(r"\bdragoman(?:\.[A-Za-z_]\w*)+")
_SETTING = re.compile(r"(model|data|training|decoding)\.(\w+)")


@dataclass
class Part:
    """What stands under one heading."""

    heading: str
    code: list[str] = field(default_factory=list)
    """Lines of the blocks between fences, but for the map of the files."""
    cells: list[list[str]] = field(default_factory=list)
    """Rows of the tables."""
    prose: str = ""

    @property
    def spans(self) -> list[str]:
        """The code inside its text, in order."""
        cells = [cell for row in self.cells for cell in row]
        return [span for text in (self.prose, *cells) for span in _SPAN.findall(text)]


def read(name: str) -> list[Part]:
    parts, fenced = [Part("")], False
    text = (ROOT / name).read_text("utf-8")
    for line in re.sub(r"```\nsrc/dragoman/\n.*?```\n", "", text, flags=re.DOTALL).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            parts[-1].code.append(line)
        elif line.startswith("#"):
            parts.append(Part(line))
        elif line.startswith("|"):
            parts[-1].cells.append(line.strip("|").split("|"))
        else:
            parts[-1].prose += line + "\n"
    return parts


def blocks_of_python(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)


def without_comment(line: str) -> str:
    """Returns a command without what stands behind it: two blanks or more, and a comment."""
    return re.split(r"\s{2,}(?=\S)", line.strip())[0]


def pieces_of_code(name: str) -> Iterator[str]:
    for part in read(name):
        yield from map(without_comment, part.code)
        yield from part.spans


def found(pattern: re.Pattern[str], documents: Sequence[str] = TRANSLATED) -> list[str]:
    """Returns each piece of code that is such a thing; the Chinese documents have the same."""
    pieces = (code for name in documents for code in pieces_of_code(name))
    return list(dict.fromkeys(filter(pattern.fullmatch, pieces)))


def figures(text: str) -> Counter[str]:
    """Returns the numbers of a text; 2 million is 200 万."""
    numbers = ((number.replace(",", ""), unit) for number, unit in _FIGURE.findall(text))
    return Counter(str(int(n) * _UNITS[unit]) if unit else n for n, unit in numbers)


def code_of(text: str) -> list[str]:
    return [span.replace(".zh-CN", "") for span in _SPAN.findall(text)]


def parse(command: str) -> argparse.Namespace | None:
    """Reads a command as the command line does; None for one that is but named."""
    words = shlex.split(command.partition("dragoman ")[2])
    end = next((n for n, word in enumerate(words) if word in ("<", ">")), len(words))
    arguments: argparse.Namespace
    try:
        arguments, unknown = build_parser().parse_known_args(words[:end])
    except InputError as error:
        if " -" not in command and str(error).endswith("required, but not given"):
            return None
        raise
    assert not unknown, f"{command}: {unknown} are no options"
    return arguments


def parsers() -> list[argparse.ArgumentParser]:
    every: list[argparse.ArgumentParser] = [build_parser()]
    for parser in every:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                every += action.choices.values()
    return every


@pytest.mark.parametrize("command", found(_DRAGOMAN))
def test_every_command_is_one_that_the_command_line_accepts(command: str) -> None:
    arguments = parse(command)
    if arguments is None:
        return
    settings = settings_of(arguments)
    build_decoding(settings.pop("decoding", {}))
    build_config(settings)
    if arguments.command == "lab":
        find_experiments(getattr(arguments, "names", ()))
    help_text = arguments.parser.format_help() if "parser" in arguments else ""
    if arguments.command == "bench" and "job" in arguments:
        assert f"\n  {arguments.job} " in help_text
    if arguments.command == "inspect":
        assert arguments.name in re.split(r"[\s,.]+", help_text)


@pytest.mark.parametrize("command", found(_PYTEST))
def test_every_test_that_is_named_is_a_single_one(command: str) -> None:
    match = _PYTEST.fullmatch(command)
    assert match is not None
    path, name = match.groups()
    tests = re.findall(r"^def (test_\w+)", (ROOT / path).read_text("utf-8"), re.MULTILINE)
    if name is not None:
        assert name not in path
        assert len([each for each in tests if name in each]) == 1, command


@pytest.mark.parametrize("command", found(_MAKE))
def test_every_target_of_make_is_there(command: str) -> None:
    [targets] = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(command.split()[1:2]) <= set(targets.split())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_is_named_or_linked_is_there(name: str) -> None:
    for span in filter(_PATH.fullmatch, pieces_of_code(name)):
        assert (ROOT / span).exists(), span
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text("utf-8")):
        assert ((ROOT / name).parent / link).exists(), link


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_dotted_name_can_be_imported(name: str) -> None:
    for dotted in set(_DOTTED.findall((ROOT / name).read_text("utf-8"))):
        module, _, attribute = dotted.rpartition(".")
        try:
            importlib.import_module(dotted)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), dotted


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_setting_and_every_option_exists(name: str) -> None:
    sections = {**SECTIONS, "decoding": DecodingConfig}
    options = {option for parser in parsers() for option in parser._option_string_actions}
    for span in pieces_of_code(name):
        if match := _SETTING.fullmatch(span):
            section, setting = match.groups()
            assert setting in {each.name for each in dataclasses.fields(sections[section])}, span
        if span.startswith("--"):
            given = set(re.findall(r"--[\w.-]+", span)) - {"--model.X", "--training.X"}
            assert given <= options, span


def test_every_experiment_shows_something_of_the_essay() -> None:
    runs = map(parse, found(_DRAGOMAN, ["docs/essay.md"]))
    named = {name for run in runs if run is not None for name in getattr(run, "names", ())}
    assert named == {each.name for each in EXPERIMENTS.values() if not each.needs_text}


def test_the_python_of_the_essay_runs() -> None:
    namespace: dict[str, object] = {}
    for block in blocks_of_python("docs/essay.md"):
        exec(block, namespace)


@pytest.mark.parametrize("name", TRANSLATED)
def test_both_languages_have_the_same_commands_and_figures(name: str) -> None:
    english, chinese = read(name), read(name.replace(".md", ".zh-CN.md"))
    assert len(english) == len(chinese)
    for ours, theirs in zip(english, chinese, strict=True):
        place = f"{name}, {ours.heading}"
        assert figures(ours.heading) == figures(theirs.heading), place
        assert Counter(code_of(ours.prose)) == Counter(code_of(theirs.prose)), place
        assert figures(ours.prose) == figures(theirs.prose), place
        assert [(without_comment(line), figures(line)) for line in ours.code] == [
            (without_comment(line), figures(line)) for line in theirs.code
        ], place
        assert len(ours.cells) == len(theirs.cells), place
        for row, other in zip(ours.cells, theirs.cells, strict=True):
            assert [(code_of(cell), figures(cell)) for cell in row] == [
                (code_of(cell), figures(cell)) for cell in other
            ], place
