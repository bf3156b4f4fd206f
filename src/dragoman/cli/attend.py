"""`dragoman attend`: which source tokens a model looks at as it writes a translation."""

from __future__ import annotations

import argparse
import json

from dragoman.cli import runtime
from dragoman.cli.parser import Commands
from dragoman.config import InputError


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "attend",
        help="draw the attention from a translation to its source",
        description="Shows the cross-attention of the decoder's last layer, mean over its heads.",
        epilog='A .json file has the keys "source" and "target" (tokens) and "weights" (a row for\n'
        "each target token).",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", help="the folder of a model")
    parser.add_argument("--text", metavar="T", required=True, help="the source sentence")
    parser.add_argument("--target", metavar="T", help="look at this translation, not the model's")
    parser.add_argument("--output", metavar="F", required=True, help="a .png or .json file")
    runtime.add_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes a picture, or the numbers behind it."""
    from dragoman.cli.lines import output_path

    output = output_path(arguments.output)
    if output.suffix not in (".png", ".json"):
        raise InputError(f"--output is {output}, accepted is a name that ends in .png or .json")
    config = runtime.decoding_config(arguments)
    translator = runtime.open_translator(arguments, arguments.path)
    found = translator.attend(arguments.text, getattr(arguments, "target", None), config)
    if output.suffix == ".png":
        from dragoman.view.attention import draw_attention

        draw_attention(found.weights, found.source, found.target, output)
    else:
        from dragoman.data.atomic import write_text

        content = {
            "source": found.source,
            "target": found.target,
            "weights": found.weights.tolist(),
        }
        write_text(output, json.dumps(content, ensure_ascii=False) + "\n")
