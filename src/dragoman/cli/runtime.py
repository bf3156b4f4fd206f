"""What the commands that run a model share: where and how it runs."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.parser import Parser, settings_of, whole_number
from dragoman.cli.progress import say
from dragoman.config import DecodingConfig
from dragoman.settings import build_decoding

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translator

_WARNINGS = {
    "source-cut": "cut {:,} of the lines: longer than {:,} tokens, or than the model takes",
    "cut": "{:,} of the translations ended for want of room (--max-output-extra)",
    "long": "{:,} of the translations are far longer than their source",
    "repeated": "{:,} of the translations say the same over and over",
    "unlikely": "{:,} of the translations are improbable to the model itself",
}
"""By flag: what is said of so many translations; the second number is the source's limit."""


def add_options(parser: Parser, *, trains: bool = False) -> None:
    """Adds the options of a command that runs a model, or trains one."""
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto"
    )
    parser.add_argument(
        "--precision",
        dest="training.precision" if trains else "precision",
        choices=("auto", "float32", "bfloat16", *(("float64",) if trains else ())),
        metavar="P",
        help="auto, float32, bfloat16; auto: bfloat16 where it is fast",
    )
    parser.add_argument(
        "--threads", type=whole_number(1), metavar="N", help="CPU threads; default: torch's choice"
    )
    parser.add_argument(
        "--batch-tokens",
        dest="training.batch_tokens" if trains else "decoding.batch_tokens",
        metavar="N",
        help="tokens of a step, sentences x longest side" if trains else "tokens of a batch",
    )


def add_ensemble(parser: Parser) -> None:
    """Adds the option that joins further models to the first."""
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        nargs="+",
        help="further models; the mean of all their probabilities is what counts",
    )


def prepare_process(arguments: argparse.Namespace, *, frugal: bool = False) -> None:
    """Makes this process fast, or `frugal`, with as many threads as were asked for."""
    import torch

    from dragoman.kernels.process import tune_process

    if "threads" in arguments:
        torch.set_num_threads(arguments.threads)
    tune_process(frugal=frugal)


def open_translator(arguments: argparse.Namespace, model: str | Path) -> Translator:
    """Opens a model as the options ask for it."""
    prepare_process(arguments)
    from dragoman.decoding.loader import load

    precision = getattr(arguments, "precision", "auto")
    ensemble = getattr(arguments, "ensemble", ())
    return load(model, device=arguments.device, precision=precision, ensemble=ensemble)


def decoding_config(arguments: argparse.Namespace) -> DecodingConfig:
    """Returns how to search, as the options ask for it."""
    return build_decoding(settings_of(arguments).get("decoding", {}))


def warn_of_flags(counts: Counter[str], config: DecodingConfig) -> None:
    """Says how many translations went wrong, or look as if they had."""
    for flag, warning in _WARNINGS.items():
        if counts[flag]:
            say("warning: " + warning.format(counts[flag], config.max_source_length))
