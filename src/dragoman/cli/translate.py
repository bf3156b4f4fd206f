"""`dragoman translate`: lines in, as many lines out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dragoman.cli import runtime
from dragoman.cli.parser import Commands, whole_number
from dragoman.config import DecodingConfig, InputError

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translation

_EPILOG = """\
With --format jsonl each line is an object with the keys
  text             the translation
  score            what translations are ranked by: log_probability / length penalty
  log_probability  natural logarithm of its probability given the source
  tokens           the pieces that it is made of
  flags            "cut": ended for want of room; "source-cut": the source lost its end
  alternatives     the next best, --n-best of them in all, each with the keys above
  alignment        with --alignment: a row for each token and EOS, a weight for each source token
                   and EOS; null without, and where the translation is empty"""


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "translate",
        help="translate a file, or stdin",
        usage="dragoman translate MODEL [FILE] [options]",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", help="the folder of a model")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a sentence a line; else stdin")
    parser.add_argument("--output", metavar="F", help="write there instead of to stdout")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="default: text")
    defaults = DecodingConfig()
    for name, metavar, text in (
        ("beam_size", "N", "hypotheses followed at once; 1 is greedy"),
        ("length_penalty", "A", "above 0 favours longer translations"),
        ("length_penalty_form", "gnmt|power", "((5 + length) / 6)^A or length^A"),
        ("n_best", "N", "translations of each line; above 1 with jsonl only"),
        ("max_source_length", "N", "cut longer lines; in tokens"),
        ("max_output_extra", "N", "tokens an output may have beyond FACTOR x source"),
        ("max_output_factor", "FACTOR", "tokens an output may have for a source token"),
        ("no_repeat_ngram", "N", "no output has the same N tokens twice; 0 allows it"),
    ):
        parser.add_argument(
            "--" + name.replace("_", "-"),
            dest=f"decoding.{name}",
            metavar=metavar,
            help=f"{text}; default: {getattr(defaults, name)}",
        )
    parser.add_argument(
        "--alignment",
        dest="decoding.alignment",
        action="store_true",
        help="add the cross-attention weights; with jsonl only",
    )
    parser.add_argument(
        "--buffer-lines",
        type=whole_number(1),
        default=1000,
        metavar="N",
        help="lines read before they are translated and written; default: 1000",
    )
    runtime.add_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translates buffer after buffer, and counts what had to be cut."""
    from dragoman.cli.lines import open_output, output_path, read_input, split_into_buffers

    config = runtime.decoding_config(arguments)
    for flag, needs_jsonl in (("--n-best", config.n_best > 1), ("--alignment", config.alignment)):
        if needs_jsonl and arguments.format != "jsonl":
            raise InputError(f"{flag} doesn't fit into plain text", "use --format jsonl")
    output = output_path(arguments.output) if "output" in arguments else None
    write = _FORMATS[arguments.format]
    lines = read_input(getattr(arguments, "file", None))
    translator = runtime.open_translator(arguments, arguments.path)
    cut = {"source-cut": 0, "cut": 0}
    with open_output(output) as file:
        for buffer in split_into_buffers(lines, arguments.buffer_lines):
            found = translator.translate(buffer, config)
            file.write("".join(write(each) + "\n" for each in found).encode())
            file.flush()
            for flag in cut:
                cut[flag] += sum(flag in each.flags for each in found)
    _report_cuts(cut, config)


def _report_cuts(cut: dict[str, int], config: DecodingConfig) -> None:
    from dragoman.cli.progress import say

    if count := cut["source-cut"]:
        say(f"warning: cut {count:,} of the lines, accepted is {config.max_source_length} tokens")
    if count := cut["cut"]:
        say(f"warning: {count:,} of the translations ended for want of room (--max-output-extra)")


def _write_text(translation: Translation) -> str:
    return translation.text.replace("\n", " ")  # a line in is a line out, whatever the model says


def _write_json(translation: Translation) -> str:
    alignment = translation.alignment
    content = {
        **_describe(translation),
        "alternatives": [_describe(each) for each in translation.alternatives],
        "alignment": None if alignment is None else alignment.tolist(),
    }
    return json.dumps(content, ensure_ascii=False)


def _describe(translation: Translation) -> dict[str, Any]:
    keys = ("text", "score", "log_probability", "tokens", "flags")
    return {key: getattr(translation, key) for key in keys}


_FORMATS: dict[str, Callable[[Translation], str]] = {"text": _write_text, "jsonl": _write_json}
