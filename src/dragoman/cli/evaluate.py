"""`dragoman evaluate`: scores of translations, each with its signature."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import runtime
from dragoman.cli.parser import Commands
from dragoman.config import InputError

if TYPE_CHECKING:
    from dragoman.evaluation.bleu import Score


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "evaluate",
        help="score translations against references",
        usage="dragoman evaluate (MODEL --source F | --hypotheses F) --reference F... [options]",
        epilog="Only scores of the same signature may be compared.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", nargs="?", help="translates --source first")
    parser.add_argument("--source", metavar="F", help="what MODEL translates")
    parser.add_argument("--hypotheses", metavar="F", help="translations to score, a line each")
    parser.add_argument(
        "--reference", metavar="F", nargs="+", required=True, help="right translations"
    )
    parser.add_argument(
        "--metrics",
        metavar="M",
        nargs="+",
        default=["bleu", "chrf"],
        help="of bleu chrf ter paper multi-bleu multi-bleu-lc; default: bleu chrf",
    )
    parser.add_argument("--tokenize", metavar="T", help="sacreBLEU's tokeniser for bleu")
    parser.add_argument(
        "--target-language", metavar="L", default="", help="default: the model's; such as de, zh"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    runtime.add_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translates if need be, and prints a score a line."""
    if ("path" in arguments) == ("hypotheses" in arguments):
        raise InputError("accepted is one of MODEL with --source, and --hypotheses")
    if ("path" in arguments) != ("source" in arguments):
        raise InputError("accepted is MODEL together with --source")
    file = arguments.source if "source" in arguments else arguments.hypotheses
    files = [file, *arguments.reference]
    columns = read_files(files)
    check_counts(files, columns)
    lines, *references = columns
    language = arguments.target_language
    if "path" in arguments:
        from dragoman.checkpoint import ModelFolder

        language = language or ModelFolder(Path(arguments.path)).read_config().data.target_language
        config = runtime.decoding_config(arguments)
        translator = runtime.open_translator(arguments, arguments.path)
        found = translator.translate(lines, config)
        runtime.warn_of_flags(Counter(flag for each in found for flag in each.flags), config)
        lines = [each.text for each in found]
    from dragoman.evaluation.bleu import evaluate

    tokenize = getattr(arguments, "tokenize", None)
    scores = evaluate(lines, references, arguments.metrics, language, tokenize)
    print(_write_json(scores) if arguments.format == "json" else write_scores(scores))


def read_files(files: Sequence[str]) -> list[list[str]]:
    """Returns the lines of each file."""
    from dragoman.data.corpus import read_lines

    return [list(read_lines(Path(file))) for file in files]


def check_counts(files: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Raises `InputError`, naming both counts, if a file hasn't as many lines as the first."""
    for file, column in zip(files, columns, strict=True):
        if len(column) != len(columns[0]):
            raise InputError(
                f"{files[0]} has {len(columns[0])} lines and {file} has {len(column)}, "
                f"accepted is as many in both"
            )


def write_scores(scores: list[Score]) -> str:
    """Returns a score a line, aligned, with its signature."""
    width = max(len(score.name) for score in scores)
    return "\n".join(
        f"{score.name:<{width}}  {score.value:6.2f}  {score.signature}" for score in scores
    )


def _write_json(scores: list[Score]) -> str:
    return json.dumps([dataclasses.asdict(score) for score in scores], indent=1)


def read_scores(lines: Sequence[str]) -> list[Score] | None:
    """Returns the scores that `--format json` wrote, None if the lines are anything else."""
    from dragoman.evaluation.bleu import Score

    try:
        scores = [Score(**entry) for entry in json.loads("\n".join(lines))]
    except (ValueError, TypeError, RecursionError):
        return None
    sound = all(
        isinstance(score.name, str)
        and isinstance(score.value, float)
        and isinstance(score.signature, str)
        and isinstance(score.details, dict)
        for score in scores
    )
    return scores if scores and sound else None
