"""`dragoman score`: how probable a model finds given translations."""

from __future__ import annotations

import argparse
from collections import Counter

from dragoman.cli import runtime
from dragoman.cli.parser import Commands


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "score",
        help="the log-probability of given translations",
        description="Prints the natural logarithm of each target's probability, given its source.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", help="the folder of a model")
    parser.add_argument("--source", metavar="F", required=True, help="source lines")
    parser.add_argument("--target", metavar="F", required=True, help="their translations")
    runtime.add_ensemble(parser)
    runtime.add_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Prints a log-probability a line."""
    from dragoman.data.corpus import read_pairs
    from dragoman.decoding.engine import SOURCE_CUT

    config = runtime.decoding_config(arguments)
    pairs = list(read_pairs([arguments.source], [arguments.target], []))
    translator = runtime.open_translator(arguments, arguments.path)
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    for log_probability in translator.score(sources, targets, config):
        print(repr(log_probability))
    cut = translator.count_cut_sources(sources, config)
    runtime.warn_of_flags(Counter({SOURCE_CUT: cut}), config)
