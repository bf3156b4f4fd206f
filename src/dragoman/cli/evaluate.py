"""`dragoman evaluate`: scores of translations, each with its signature."""

from __future__ import annotations

import argparse
import dataclasses
import json
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
    lines, references = _read_files(file, arguments.reference)
    language = arguments.target_language
    if "path" in arguments:
        from dragoman.checkpoint import ModelFolder

        language = language or ModelFolder(Path(arguments.path)).read_config().data.target_language
        config = runtime.decoding_config(arguments)
        translator = runtime.open_translator(arguments, arguments.path)
        lines = [each.text for each in translator.translate(lines, config)]
    from dragoman.evaluation.bleu import evaluate

    tokenize = getattr(arguments, "tokenize", None)
    scores = evaluate(lines, references, arguments.metrics, language, tokenize)
    print(_write_json(scores) if arguments.format == "json" else write_scores(scores))


def _read_files(file: str, references: list[str]) -> tuple[list[str], list[list[str]]]:
    """Reads what is scored and the references, before anything is translated.

    Raises:
        InputError: naming both counts, where two files don't have as many lines.
    """
    from dragoman.data.corpus import read_lines

    lines = list(read_lines(Path(file)))
    columns = [list(read_lines(Path(reference))) for reference in references]
    for reference, column in zip(references, columns, strict=True):
        if len(column) != len(lines):
            raise InputError(
                f"{file} has {len(lines)} lines and {reference} has {len(column)}, "
                f"accepted is as many in both"
            )
    return lines, columns


def write_scores(scores: list[Score]) -> str:
    """Returns a score a line, aligned, with its signature."""
    width = max(len(score.name) for score in scores)
    return "\n".join(
        f"{score.name:<{width}}  {score.value:6.2f}  {score.signature}" for score in scores
    )


def _write_json(scores: list[Score]) -> str:
    return json.dumps([dataclasses.asdict(score) for score in scores], indent=1)
