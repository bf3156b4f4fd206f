"""The option --without: a translator whose model lacks some parts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dragoman.cli.parser import Parser
from dragoman.config import InputError

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translator


def add_option(parser: Parser) -> None:
    """Adds the option."""
    parser.add_argument(
        "--without",
        metavar="NAME",
        action="append",
        help="take this part of the model away: scaling, positions, padding-mask, causal-mask, a "
        "layer (encoder.layers.0) or a head (decoder.layers.1.cross_attention.head.3); repeatable",
    )


def cut_translator(arguments: argparse.Namespace, translator: Translator) -> Translator | None:
    """Returns the translator without the parts that were named; None if none was."""
    if "without" not in arguments:
        return None
    from dragoman.decoding.torch_engine import TorchEngine
    from dragoman.decoding.translator import Translator
    from dragoman.model.surgery import without
    from dragoman.model.transformer import Transformer

    assert isinstance(translator.engine, TorchEngine)
    [model] = translator.engine.models
    if not isinstance(model, Transformer):
        raise InputError(
            f"--without is given for a {model.config.architecture} model, accepted is a transformer"
        )
    engine = TorchEngine(without(model, arguments.without), translator.engine.precision)
    return Translator(engine, translator.source_tokenizer, translator.target_tokenizer)
