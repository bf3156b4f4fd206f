"""`dragoman translate`: lines in, as many lines out."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli import runtime, surgery
from dragoman.cli.parser import Commands, whole_number
from dragoman.config import DecodingConfig, InputError

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translation

_EPILOG = """\
With --format jsonl each line is an object with the keys
  text             the translation
  score            what translations are ranked by: log_probability / length penalty, and what
                   --coverage-penalty and --repetition-penalty take off
  log_probability  natural logarithm of its probability given the source
  tokens           the pieces that it is made of
  flags            "cut": ended for want of room; "source-cut": the source lost its end;
                   and what looks suspicious: "long": far longer than the source; "repeated": the
                   same over and over; "unlikely": improbable to the model itself
  alternatives     the next best, --n-best of them in all, each with the keys above
  alignment        with --alignment: a row for each token and EOS, a weight for each source token
                   and EOS; null without, and where the translation is empty

Flags are counted at the end; they change nothing, nor the exit status. Lines from a pipe are
translated as soon as they come. What --sample draws for a line depends on --seed and the line's
number in the input, not on other lines.

With --without each line has the whole model's translation, a tab, and that of the model without;
with jsonl an object with these under the keys "before" and "after". Flags count what came after.
"""


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
    parser.add_argument(
        "--prefix-file", metavar="F", help="how each translation begins, a line each; may be empty"
    )
    runtime.add_ensemble(parser)
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
        ("repetition_penalty", "X", "times the log-probability of a token already there"),
        ("coverage_penalty", "B", "above 0 favours what leaves no source token out"),
        ("temperature", "T", "with --sample: below 1 favours likely tokens"),
        ("top_k", "N", "with --sample: from the N likeliest tokens; 0 is all"),
        ("top_p", "P", "with --sample: from the likeliest that reach P together"),
        ("seed", "N", "with --sample: other numbers, other draws"),
    ):
        parser.add_argument(
            "--" + name.replace("_", "-"),
            dest=f"decoding.{name}",
            metavar=metavar,
            help=f"{text}; default: {getattr(defaults, name)}",
        )
    parser.add_argument(
        "--sample",
        dest="decoding.sample",
        action="store_true",
        help="draw each token by its probability; no beam",
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
        help="most lines read before they are translated and written; default: 1000",
    )
    surgery.add_option(parser)
    runtime.add_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translates buffer after buffer, and counts what went wrong or looks as if it had."""
    from dragoman.cli.lines import open_output, output_path, read_buffers

    config = runtime.decoding_config(arguments)
    for flag, needs_jsonl in (("--n-best", config.n_best > 1), ("--alignment", config.alignment)):
        if needs_jsonl and arguments.format != "jsonl":
            raise InputError(f"{flag} doesn't fit into plain text", "use --format jsonl")
    if "without" in arguments and "ensemble" in arguments:
        raise InputError("--without and --ensemble are both given, accepted is one")
    output = output_path(arguments.output) if "output" in arguments else None
    write = _FORMATS[arguments.format]
    source = getattr(arguments, "file", None)
    prefixes = _read_prefixes(arguments.prefix_file, source) if "prefix_file" in arguments else None
    buffers = read_buffers(source, arguments.buffer_lines)
    translator = runtime.open_translator(arguments, arguments.path)
    cut = surgery.cut_translator(arguments, translator)
    counts: Counter[str] = Counter()
    with open_output(output) as file:
        for first, texts, forced in _with_prefixes(buffers, prefixes):
            found = translator.translate(texts, config, forced, first)
            lines = [write(each) for each in found]
            if cut is not None:
                found = cut.translate(texts, config, forced, first)
                join = _PAIRS[arguments.format]
                lines = list(map(join, lines, map(write, found)))
            file.write("".join(line + "\n" for line in lines).encode())
            file.flush()
            counts.update(flag for each in found for flag in each.flags)
    runtime.warn_of_flags(counts, config)


def _read_prefixes(file: str, source: str | None) -> list[str]:
    """Reads a prefix a line.

    Raises:
        InputError: if there aren't as many as the source has lines, where they can be counted
            before anything is translated.
    """
    from dragoman.data.corpus import read_lines

    prefixes = list(read_lines(Path(file)))
    if source is not None and Path(source).is_file():
        lines = sum(1 for _ in read_lines(Path(source)))
        if lines != len(prefixes):
            raise _unlike(len(prefixes), lines)
    return prefixes


def _with_prefixes(
    buffers: Iterator[list[str]], prefixes: list[str] | None
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yields with each buffer the place of its first line in the input, and its prefixes."""
    first = 0
    for texts in buffers:
        forced = [] if prefixes is None else prefixes[first : first + len(texts)]
        if prefixes is not None and len(forced) < len(texts):
            raise _unlike(len(prefixes), "more")
        yield first, texts, forced
        first += len(texts)
    if prefixes is not None and first < len(prefixes):
        raise _unlike(len(prefixes), first)


def _unlike(prefixes: int, lines: int | str) -> InputError:
    return InputError(
        f"--prefix-file has {prefixes} lines and the input {lines}, accepted is as many in both"
    )


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


_PAIRS: dict[str, Callable[[str, str], str]] = {
    "text": lambda before, after: before.replace("\t", " ") + "\t" + after,
    "jsonl": lambda before, after: f'{{"before": {before}, "after": {after}}}',
}
"""By format: a line of what the whole model says and what it says without its parts."""

_FORMATS: dict[str, Callable[[Translation], str]] = {"text": _write_text, "jsonl": _write_json}
