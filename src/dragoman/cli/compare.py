"""`dragoman compare`: whether one system's translations are better than another's."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dragoman.cli.evaluate import check_counts, read_files, read_scores
from dragoman.cli.parser import Commands, whole_number
from dragoman.config import InputError, RunError
from dragoman.kernels.memory import is_want_of_memory

if TYPE_CHECKING:
    from dragoman.evaluation.significance import Difference

_EPILOG = """\
HYPOTHESES_A and HYPOTHESES_B are translations, a line each, of the same source. Or both are what
`dragoman evaluate --format json` wrote: scores of the same signature are compared, but a
significance test needs the lines themselves, and --reference.
"is better" stands where both p-values are below 0.05."""
_OPTIONS = ("metrics", "target_language", "tokenize", "samples", "seed")


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "compare",
        help="whether one system's translations are better than another's",
        usage="dragoman compare HYPOTHESES_A HYPOTHESES_B --reference F... [options]",
        description="Tests the difference of two systems by paired bootstrap resampling and by\n"
        "approximate randomisation, as sacreBLEU does.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("hypotheses", metavar="HYPOTHESES", nargs="*", help="two files")
    parser.add_argument("--reference", metavar="F", nargs="+", help="right translations")
    parser.add_argument(
        "--metrics", metavar="M", nargs="+", help="as of evaluate; default: bleu chrf"
    )
    parser.add_argument("--target-language", metavar="L", help="such as de, zh")
    parser.add_argument("--tokenize", metavar="T", help="sacreBLEU's tokeniser for bleu")
    parser.add_argument(
        "--samples",
        type=whole_number(1),
        metavar="N",
        help="of each test, at most 10000; default: 1000 by bootstrap, 10000 at random",
    )
    parser.add_argument("--seed", type=whole_number(1), metavar="N", help="default: 12345")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def _run(arguments: argparse.Namespace) -> None:
    """Compares, and prints each metric when it is done."""
    from dragoman.evaluation.significance import compare_scores

    files, references = _split_files(arguments)
    columns = read_files(files)
    options = {name: value for name, value in vars(arguments).items() if name in _OPTIONS}
    a, b = (read_scores(lines) for lines in columns)
    found: Iterable[Difference]
    if a and b:
        if options or references:
            raise InputError(f"{files[0]} holds saved scores, accepted is no option but --format")
        found = compare_scores(a, b)
    elif a or b:
        raise InputError(
            f"{files[0]} and {files[1]}: one is saved scores, the other text, accepted is two of "
            f"a kind"
        )
    else:
        found = _compare_lines([*files, *references], columns, options)
    if arguments.format == "json":
        print(json.dumps([_as_json(each) for each in found], indent=1))
        return
    print("\n".join(f"{name}: {file}" for name, file in zip("AB", files, strict=True)))
    for each in found:
        print(f"\n{_as_text(each)}", flush=True)


def run(arguments: argparse.Namespace) -> None:
    """Compares, with a hint of its own where the memory isn't enough."""
    try:
        _run(arguments)
    except Exception as error:
        if not is_want_of_memory(error):
            raise
        raise RunError("not enough memory", "fewer --samples need less") from None


def _split_files(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Returns both files of hypotheses, and the references.

    In `--reference F... A B` nothing but their number tells argparse where the references end.
    """
    files, references = getattr(arguments, "hypotheses", []), getattr(arguments, "reference", [])
    if not files:
        files, references = references[-2:], references[:-2]
    if len(files) != 2:
        raise InputError(
            f"HYPOTHESES: {len(files)} given, accepted is 2",
            "give them first: dragoman compare A B --reference F",
        )
    return files, references


def _compare_lines(
    files: Sequence[str], columns: list[list[str]], options: dict[str, Any]
) -> Iterable[Difference]:
    from dragoman.cli.progress import say
    from dragoman.evaluation.significance import compare

    columns = [*columns, *read_files(files[2:])]
    check_counts(files, columns)
    a, b, *references = columns
    if not references:
        raise InputError("--reference: required, but not given", "see dragoman compare --help")
    say(f"testing {len(a):,} lines, metric by metric; chrf takes longer than bleu, ter the longest")
    return compare(a, b, references, **options)


def _as_json(each: Difference) -> dict[str, Any]:
    computed = {"difference": each.difference, "conclusion": each.conclusion}
    return {**dataclasses.asdict(each), **computed}


def _as_text(each: Difference) -> str:
    lines = [
        f"{each.name}  {each.signature}",
        f"  A      {each.a:6.2f}",
        f"  B      {each.b:6.2f}",
        f"  B - A  {each.difference:+6.2f}",
    ]
    if found := each.significance:
        for index, (low, high) in ((1, found.interval_a), (2, found.interval_b)):
            lines[index] += (
                f"  95 % of {found.bootstrap_samples:,} samples: {low:.2f} to {high:.2f}"
            )
        lines[3] += (
            f"  p = {found.p_bootstrap:.4f} by bootstrap, {found.p_randomization:.4f} by "
            f"{found.randomization_trials:,} random swaps; seed {found.seed}"
        )
    return "\n".join([*lines, f"  {each.conclusion}"])
