"""`dragoman attend`: what a model looks at as it reads a text and writes a translation."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import picture, runtime, surgery
from dragoman.cli.parser import Commands
from dragoman.config import DecodingConfig, InputError

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translator
    from dragoman.view.inspection import Inspection

_EPILOG = """\
A .html file is a page for any browser, without a network, in English and Chinese: all layers and
heads at a glance, a heat map, lines between tokens, and attention beside two measures of what each
source token did for the translation, with their rank correlation. A .png file has the
cross-attention of the decoder's last layer, mean over its heads, or what --attention names. A .json
file has the keys
  text, translation     the translation is the model's, or --target
  log_probability       natural logarithm of its probability given the text
  source, target        tokens with EOS, as SentencePiece has them; a blank is U+2581
  source_ids, target_ids
  target_input          what the decoder reads: the start token, then the target but for its last
  encoder               weights of self-attention, [layer][head][source][source]; null for a
                        recurrent model
  decoder               the same, [layer][head][target_input][target_input]
  cross                 cross-attention, [layer][head][target][source]: a row is what is looked at
                        as that token is chosen; null for a model without
  comparison            null, or what each source token did for each target token, [target][source]:
                        attention (the last layer's, mean over its heads), gradient_x_input and
                        leave_one_out, in nats of its log-probability; and spearman, the rank
                        correlation of the magnitudes of each pair, by_target and their mean
  without               names that --without was given
  before                null, or text, translation and log_probability of the whole model
Rows of weights sum to 1; all numbers are rounded to 8 decimals.

With --picture, .png or .json of
  positions   the vectors that are added for positions, and their dot products
  schedule    the learning rate over the steps of the training run (Noam's, unless set otherwise)
  masks       who may attend to whom among the texts and their translations: padding, causal, both
  shapes      what the first attention does to the shape of the texts: project, reshape, transpose,
              attend, transpose, reshape

With --without two lines go to stdout, log-probability, tab, translation: of the whole model, then
of the one without. --target shows what became of a given translation. As a translation is made a
token at a time, only there is the causal mask missed; the padding mask only beside longer lines.
"""


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "attend",
        help="show the attention of every layer and head",
        description="Shows what a model looks at as it reads a text and writes a translation.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", help="the folder of a model")
    parser.add_argument(
        "--text",
        metavar="T",
        action="append",
        help="the source sentence; with masks and shapes several are a batch",
    )
    parser.add_argument("--target", metavar="T", help="look at this translation, not the model's")
    parser.add_argument(
        "--attention",
        metavar="NAME",
        help="of a .png: another attention (encoder.layers.0.self_attention), or a head of one "
        "(decoder.layers.1.cross_attention.head.3)",
    )
    parser.add_argument("--output", metavar="F", required=True, help="a .html, .png or .json file")
    parser.add_argument(
        "--picture",
        metavar="NAME",
        choices=picture.PICTURES,
        help="another picture than of attention: " + ", ".join(picture.PICTURES),
    )
    surgery.add_option(parser)
    runtime.add_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes a page, a picture, or the numbers behind them."""
    from dragoman.cli.lines import output_path

    output = output_path(arguments.output)
    if output.suffix not in _WRITERS:
        raise InputError(
            f"--output is {output}, accepted is a name that ends in {', '.join(_WRITERS)}"
        )
    texts = getattr(arguments, "text", [])
    if "picture" not in arguments and len(texts) != 1:
        raise InputError(f"--text is given {len(texts)} times, accepted is once")
    attention = getattr(arguments, "attention", "")
    if attention and ("picture" in arguments or output.suffix != ".png"):
        raise InputError(
            f"--attention is {attention}, accepted is none but for a .png of attention",
            "pages and .json files have all of them",
        )
    config = runtime.decoding_config(arguments)
    translator = runtime.open_translator(arguments, arguments.path)
    if "picture" in arguments:
        picture.write_picture(arguments, output, translator)
        return
    cut = surgery.cut_translator(arguments, translator)
    inspection = _inspect(arguments, translator, cut, config)
    write = partial(_write_attention, attention) if attention else _WRITERS[output.suffix]
    write(inspection, output)
    if inspection.before is not None:
        for each in (inspection.before, inspection.reading):
            print(f"{each.log_probability:.4f}\t{each.translation}")


def _inspect(
    arguments: argparse.Namespace,
    translator: Translator,
    cut: Translator | None,
    config: DecodingConfig,
) -> Inspection:
    from dragoman.view.inspection import Inspection
    from dragoman.view.reading import model_of, read

    [text], target = arguments.text, getattr(arguments, "target", None)
    reading = read(translator, text, target, config)
    if cut is None:
        return Inspection(model_of(translator), reading)
    changed = read(cut, text, target, config)
    return Inspection(model_of(cut), changed, tuple(arguments.without), reading)


def _write_picture(inspection: Inspection, path: Path) -> None:
    from dragoman.view.attention import draw_attention

    reading = inspection.reading
    source, target = reading.source.pieces, reading.target.pieces
    draw_attention(reading.alignment(), source, target, path, _missing(inspection))


def _write_attention(name: str, inspection: Inspection, path: Path) -> None:
    from dragoman.view.attention import draw_attention

    found = inspection.reading.weights(name)
    title = f"{name} {_missing(inspection)}".rstrip()
    columns, rows = found.keys.pieces, found.queries.pieces
    draw_attention(found.values, columns, rows, path, title, ("key", "query"))


def _missing(inspection: Inspection) -> str:
    return " ".join(("without", *inspection.without)) if inspection.without else ""


def _write_page(inspection: Inspection, path: Path) -> None:
    from dragoman.view.page import write_page

    write_page(inspection, path)


def _write_json(inspection: Inspection, path: Path) -> None:
    from dragoman.data.atomic import write_text

    write_text(path, json.dumps(inspection.to_json(), ensure_ascii=False) + "\n")


_WRITERS = {".html": _write_page, ".png": _write_picture, ".json": _write_json}
"""By the end of a file's name: what writes it."""
