"""`dragoman lab`: break one design choice at a time and watch what happens."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import runtime
from dragoman.cli.lab_progress import LabProgress
from dragoman.cli.parser import Commands, Parser, whole_number
from dragoman.cli.progress import say
from dragoman.config import InputError, RunError

if TYPE_CHECKING:
    from dragoman.lab.data import LabData
    from dragoman.lab.experiment import Experiment, Results

    Found = Mapping[str, tuple[Experiment, Results]]

_SEEDS = 3
_FORMATS = ("html", "json", "png")


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "lab",
        help="leave one design choice out and see what happens",
        description="Runs experiments: a base and variants that differ in one setting each, with "
        "the same\nseeds, data order and steps. Predictions stand before the run; verdicts are "
        "computed from it.",
    )
    parser.set_defaults(parser=parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the experiments and what each asks")
    listing.set_defaults(run=_list, parser=listing)
    running = actions.add_parser("run", help="run experiments; what was run before is kept")
    running.set_defaults(run=_run, parser=running)
    running.add_argument("names", metavar="NAME", nargs="+", help="an experiment, or all")
    running.add_argument(
        "--quick", action="store_true", default=False, help="one seed and fewer steps"
    )
    running.add_argument(
        "--seeds", type=whole_number(1), metavar="N", help=f"default: {_SEEDS}, with --quick 1"
    )
    running.add_argument(
        "--threads",
        type=whole_number(1),
        metavar="N",
        help="trials at once, each with a CPU thread; default: torch's choice, with cuda 1",
    )
    running.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="cpu", help="to train on; default: cpu"
    )
    running.add_argument("--source", nargs="+", metavar="F", help="your own text instead")
    running.add_argument("--target", nargs="+", metavar="F", help="its translation, line by line")
    running.add_argument("--pairs", nargs="+", metavar="F", help="or .tsv or .jsonl files of both")
    running.add_argument(
        "--language", metavar="L", help="phrases from English into L, such as de, instead"
    )
    running.add_argument(
        "--target-language", metavar="L", help="of your own text, for BLEU; such as zh, ja"
    )
    reporting = actions.add_parser("report", help="write all results as one HTML file")
    reporting.set_defaults(run=_report, parser=reporting)
    reporting.add_argument(
        "--format",
        nargs="+",
        choices=_FORMATS,
        default=[_FORMATS[0]],
        metavar="F",
        help="html: report.html, the default; json: report.json, all numbers and verdicts; png: "
        "the pictures, a file for each experiment",
    )
    for each in (running, reporting):
        _add_folder(each)


def _add_folder(parser: Parser) -> None:
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="dragoman-lab",
        help="where results are kept; default: dragoman-lab",
    )


def _list(arguments: argparse.Namespace) -> None:
    from dragoman.lab.experiments import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        takes = " (give a text)" if experiment.needs_text else ""
        print(f"{experiment.name:<16}{experiment.question.en}{takes}")


def _run(arguments: argparse.Namespace) -> None:
    from dragoman.kernels.device import resolve_device
    from dragoman.lab.experiments import find_experiments
    from dragoman.lab.runner import Plan, run_experiment

    experiments = find_experiments(arguments.names)
    data = _data(arguments)
    runtime.prepare_process(arguments)
    import torch

    seeds = getattr(arguments, "seeds", 1 if arguments.quick else _SEEDS)
    device = resolve_device(arguments.device).type
    # One trial keeps a GPU busy, and all would share its memory.
    one = device == "cuda" and "threads" not in arguments
    processes = 1 if one else torch.get_num_threads()
    plan = Plan(Path(arguments.output), seeds, arguments.quick, processes, data, device)
    if seeds == 1:
        say("one seed: intervals hold for it alone")
    stopped: dict[str, InputError | RunError] = {}
    for experiment in experiments:
        say(f"{experiment.name}: {experiment.question.en}")
        if data is not None and not experiment.variants:
            say("this one trains nothing: your text plays no part in it")
        try:
            with LabProgress(experiment, seeds) as progress:
                results = run_experiment(experiment, plan, progress)
        except (InputError, RunError) as error:  # a text or a machine may do for the others
            stopped[experiment.name] = error
            continue
        print("\n".join(_describe(experiment, results)), flush=True)
    if stopped:
        raise _in_one(stopped)
    say(f"for curves and code: dragoman lab report --output {arguments.output}")


def _in_one(stopped: Mapping[str, InputError | RunError]) -> InputError | RunError:
    """Returns an error that names all experiments that were stopped; a failure before misuse."""
    failures_first = sorted(stopped.items(), key=lambda each: isinstance(each[1], InputError))
    (name, first), *rest = failures_first
    others = f"; stopped, too: {', '.join(each for each, _ in rest)}" if rest else ""
    return type(first)(f"{name}: {first}{others}", first.hint)


def _data(arguments: argparse.Namespace) -> LabData | None:
    """Returns the text that was asked for, None for each experiment's own."""
    from dragoman.lab.data import cldr_data, user_data

    source, target, pairs = (getattr(arguments, side, []) for side in ("source", "target", "pairs"))
    if len(source) != len(target):
        raise InputError(
            f"--source has {len(source)} files and --target {len(target)}, accepted is as many of "
            f"each"
        )
    if "language" in arguments:
        if source or pairs:
            raise InputError(
                "--language and files are both given, accepted is one",
                "of your own text, --target-language names the language",
            )
        return cldr_data(arguments.language)
    if source or pairs:
        return user_data(source, target, pairs, getattr(arguments, "target_language", ""))
    if "target_language" in arguments:
        raise InputError("--target-language is given without files, accepted is both")
    return None


def _describe(experiment: Experiment, results: Results) -> list[str]:
    lines = []
    for claim in experiment.claims:
        verdict = experiment.judge(claim, results)
        lines += [
            f"{experiment.name}: {claim.statement.en}",
            f"  predicted: {claim.prediction.en}",
            f"  seen:      {verdict.seen.en}",
            f"  verdict:   {', '.join(filter(None, (verdict.outcome, claim.compare(verdict).en)))}",
        ]
    return lines


def _report(arguments: argparse.Namespace) -> None:
    from dragoman.lab.experiments import EXPERIMENTS
    from dragoman.lab.runner import is_unfinished, stored_results

    folder = Path(arguments.output)
    unfinished = [name for name, each in EXPERIMENTS.items() if is_unfinished(each, folder)]
    found = {
        name: (experiment, results)
        for name, experiment in EXPERIMENTS.items()
        if (results := stored_results(experiment, folder)) is not None
    }
    if not found:
        raise InputError(
            f"{folder}: no experiment has been run to its end",
            f"dragoman lab run {(unfinished or [*EXPERIMENTS])[0]} --quick --output {folder}",
        )
    if unfinished:
        say(f"unfinished: {', '.join(unfinished)}; the same dragoman lab run as before goes on")
    for form in dict.fromkeys(arguments.format):
        for path in _WRITERS[form](found, folder):
            print(path)


def _write_html(found: Found, folder: Path) -> Iterator[Path]:
    from dragoman.data.atomic import write_text
    from dragoman.lab.report import write_report

    path = folder / "report.html"
    write_text(path, write_report(found))
    yield path


def _write_json(found: Found, folder: Path) -> Iterator[Path]:
    from dragoman.data.atomic import write_text
    from dragoman.lab.summary import summarize

    path = folder / "report.json"
    write_text(path, json.dumps(summarize(found), ensure_ascii=False, allow_nan=False) + "\n")
    yield path


def _write_png(found: Found, folder: Path) -> Iterator[Path]:
    from dragoman.lab.figure import draw_pictures
    from dragoman.lab.picture import pictures_of

    for name, (experiment, results) in found.items():
        if pictures := pictures_of(experiment, results):
            path = folder / f"{name}.png"
            draw_pictures(pictures, path)
            yield path


_WRITERS: dict[str, Callable[[Found, Path], Iterator[Path]]] = {
    "html": _write_html,
    "json": _write_json,
    "png": _write_png,
}
