"""`dragoman average`: the weights of the last checkpoints, averaged (section 6.1)."""

from __future__ import annotations

import argparse
from pathlib import Path

from dragoman.cli.parser import Commands, whole_number

_LAST = 5


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "average",
        help="put the average of the last checkpoints in the place of the weights",
        description="Replaces the weights of a model by the average of its last checkpoints.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", help="the folder of a model with checkpoints")
    parser.add_argument(
        "--last",
        type=whole_number(1),
        metavar="N",
        help=f"default: {_LAST}, or as many as there are",
    )


def run(arguments: argparse.Namespace) -> None:
    """Averages, replaces, and says so, on the model's card too."""
    from dragoman.checkpoint import ModelFolder
    from dragoman.cli.progress import say
    from dragoman.data.atomic import held_alone

    folder = ModelFolder(Path(arguments.path))
    with held_alone(folder.path):  # a run in training removes checkpoints
        steps = [step for step, _ in folder.checkpoints()]
        last = getattr(arguments, "last", min(_LAST, len(steps)))
        folder.write_weights(folder.average_last(last))
        done = f"the average of the checkpoints of steps {', '.join(map(str, steps[-last:]))}"
        folder.amend_card(f"The weights were replaced by {done}; the scores are of those before.")
    say(f"{folder.path}: the weights are now {done}")
