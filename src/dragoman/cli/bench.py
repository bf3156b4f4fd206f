"""`dragoman bench`: this tool beside its peers, in one table."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.bench.contestants import PACKAGES, check_peers, versions
from dragoman.bench.setting import SIZES
from dragoman.cli.parser import Commands, whole_number
from dragoman.config import InputError, nearest_hint

if TYPE_CHECKING:
    from dragoman.bench.report import Part

_JOBS = {
    "train": "training steps: tokens a second, peak memory, share of the machine's rate",
    "decode": "beam search: sentences a second, and a token's time by its position",
    "memory": "peak memory of training, of one long sentence, and of the loss",
    "start": "cold processes that translate one sentence",
}
_EPILOG = (
    "jobs, all of them if none is named:\n"
    + "".join(f"  {name:<8}{text}\n" for name, text in _JOBS.items())
    + """
The peers that are installed take part, torch.nn.Transformer always; pip install '.[bench]' brings
others. Each has a process of its own, gets the same sentences, and works in turn with the others,
round after round; shown are medians, and the spread from the lowest to the highest. docs/bench.md
says how to read the tables."""
)


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "bench",
        help="this tool beside its peers, in one table",
        description="Measures speed and memory of this tool and of its peers, side by side.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("job", metavar="JOB", nargs="?", help="see below")
    parser.add_argument(
        "--model",
        nargs="+",
        choices=tuple(SIZES),
        default=["S"],
        metavar="SIZE",
        help="S (the preset small), B (the paper's base, vocabulary 8,000); default: S",
    )
    parser.add_argument("--rounds", type=whole_number(1), default=5, metavar="N", help="default: 5")
    parser.add_argument(
        "--batches",
        type=whole_number(1),
        default=8,
        metavar="N",
        help="training steps of a round; default: 8",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        default=list(PACKAGES),
        metavar="NAME",
        help=f"of {', '.join(PACKAGES)}; default: all",
    )
    parser.add_argument(
        "--threads", type=whole_number(1), metavar="N", help="CPU threads; default: torch's choice"
    )
    parser.add_argument("--source", nargs="+", metavar="F", help="text; default: CLDR phrases")
    parser.add_argument("--target", nargs="+", metavar="F", help="its translation, line by line")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--output", metavar="F.json", help="write the JSON there, too")
    parser.add_argument("--plot", metavar="F.png", help="draw the tables there")


def run(arguments: argparse.Namespace) -> None:
    """Runs the jobs, and prints each table when it is done."""
    jobs = _jobs(getattr(arguments, "job", None))
    check_peers(arguments.peers)
    source, target = (getattr(arguments, side, []) for side in ("source", "target"))
    if len(source) != len(target):
        raise InputError(
            f"--source has {len(source)} files and --target {len(target)}, accepted is as many of "
            f"each"
        )
    from dragoman.bench.chart import draw_report
    from dragoman.bench.jobs import JOBS, Plan
    from dragoman.bench.report import to_json
    from dragoman.bench.sentences import prepare_sentences
    from dragoman.cli.lines import output_path
    from dragoman.cli.progress import say
    from dragoman.data.atomic import write_text

    kept, drawn = (
        output_path(getattr(arguments, name)) if name in arguments else None
        for name in ("output", "plot")
    )
    parts: list[Part] = []
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as name:
        folder = Path(name)
        say("preparing the sentences")
        workload = prepare_sentences(folder, source, target, arguments.batches)
        workload.save(folder / "sentences.json")
        plan = Plan(
            sizes=arguments.model,
            rounds=arguments.rounds,
            peers=arguments.peers,
            threads=getattr(arguments, "threads", None),
            folder=folder,
            say=say,
        )
        environment = _environment(workload.describe())
        for job in jobs:
            for part in JOBS[job](plan):
                parts.append(part)
                if arguments.format == "text":
                    print("\n".join(part.to_lines()) + "\n", flush=True)
                if kept is not None:  # after each table: a run may be broken off
                    write_text(kept, json.dumps(to_json(parts, environment), indent=1) + "\n")
    if arguments.format == "json":
        print(json.dumps(to_json(parts, environment), indent=1))
    if drawn is not None:
        draw_report(parts, drawn)


def _jobs(name: str | None) -> list[str]:
    """Returns the job that is asked for, or all."""
    if name is None:
        return list(_JOBS)
    if name not in _JOBS:
        raise InputError(
            f"JOB is {name}, accepted is one of {', '.join(_JOBS)}", nearest_hint(name, _JOBS)
        )
    return [name]


def _environment(sentences: dict[str, Any]) -> dict[str, Any]:
    import datetime
    import os
    import platform

    import torch

    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "versions": versions(),
        "sentences": sentences,
    }
