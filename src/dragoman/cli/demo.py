"""`dragoman demo`: a translator in minutes, from the phrases that come with Dragoman."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from dragoman.cli import runtime
from dragoman.cli.parser import Commands, settings_of
from dragoman.config import Config, InputError
from dragoman.settings import Settings, build_config

if TYPE_CHECKING:
    from dragoman.data.cldr import CldrPairs, Phrase
    from dragoman.decoding.translator import Translation, Translator

_SETTINGS: dict[str, dict[str, Any]] = {
    "model": {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
        # there are far more phrases than are read in a few minutes: nothing is learnt by heart
        "dropout": 0.0,
        "embedding_dropout": 0.0,
    },
    "data": {"vocab_size": 1500, "drop_identical": False},
    "training": {
        "batch_tokens": 2048,
        "schedule": "inverse-square-root",
        "peak_learning_rate": 4e-3,
        "warmup_steps": 400,
        "clip_norm": 1.0,
        "max_steps": 2600,
        "max_hours": 0.08,  # on a slow machine the promise of minutes comes first
        "validate_every": 250,
        "validation_lines": 100,
        "best_by": "loss",  # on so few phrases BLEU goes up and down by chance
        "keep_checkpoints": 3,
        "average_last": 3,
    },
}
_QUICK: Settings = {"training": {"max_steps": 200, "warmup_steps": 100, "validate_every": 100}}
_PHRASES, _QUICK_PHRASES, _VALIDATION_PHRASES, _SEED = 60_000, 5_000, 300, 1


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "demo",
        help="train, translate, evaluate and draw, in minutes, without any files",
        description="Trains a translator from English on phrases of the Unicode CLDR and shows "
        "what it can do.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument(
        "--language", metavar="L", default="de", help="to translate into, such as zh; default: de"
    )
    parser.add_argument(
        "--output", metavar="DIR", help="default: dragoman-demo-LANGUAGE, such as dragoman-demo-de"
    )
    parser.add_argument(
        "--quick", action="store_true", default=False, help="a minute's run that learns little"
    )
    runtime.add_options(parser, trains=True)


def run(arguments: argparse.Namespace) -> None:
    """Does everything that one does with a model, and says where it lies."""
    from dragoman.data.cldr import make_pairs

    folder = Path(getattr(arguments, "output", f"dragoman-demo-{arguments.language}"))
    if folder.exists():
        raise InputError(f"{folder} exists already", "give another name with --output")
    phrases = _QUICK_PHRASES if arguments.quick else _PHRASES
    pairs = make_pairs("en", arguments.language, phrases, _SEED)
    data = folder / "data"
    config = build_config(
        _SETTINGS,
        _QUICK if arguments.quick else {},
        {
            "data": {
                "pairs": str(data / "train.tsv"),
                "valid_pairs": str(data / "valid.tsv"),
                "source_language": "en",
                "target_language": arguments.language,
            }
        },
        settings_of(arguments),
    )
    model = folder / "model"
    _write_data(pairs, data)
    try:
        _train(model, config, arguments)
    except BaseException:
        if not model.exists():  # nothing has been learnt: the name is free for another try
            shutil.rmtree(folder)
        raise
    precision = config.training.precision
    arguments.precision = "float32" if precision == "float64" else precision
    translator = runtime.open_translator(arguments, model)
    found = translator.translate([source for _, source, _ in pairs.test])
    _show_results(pairs.test, found, arguments.language)
    _draw(folder, translator, pairs.test, found)


def _write_data(pairs: CldrPairs, folder: Path) -> None:
    """Writes a phrase a line: source, tab, target; in the test also the kind."""
    folder.mkdir(parents=True)
    shuffled = Random(_SEED).sample(pairs.train, len(pairs.train))  # they come kind by kind
    held_out = min(_VALIDATION_PHRASES, len(shuffled) // 2)
    parts = {"train": shuffled[held_out:], "valid": shuffled[:held_out], "test": pairs.test}
    for name, phrases in parts.items():
        lines = [f"{source}\t{target}\t{kind}\n" for kind, source, target in phrases]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def _train(model: Path, config: Config, arguments: argparse.Namespace) -> None:
    from dragoman.cli.progress import Progress
    from dragoman.training.loop import train

    runtime.prepare_process(arguments)
    again = f"dragoman train {shlex.quote(str(model))} --resume"
    with Progress(config.training.max_steps, to_go_on=again) as progress:
        train(model, config, device=arguments.device, report=progress)


def _show_results(test: list[Phrase], found: list[Translation], language: str) -> None:
    """Prints what share of each kind is right to the letter, a sample of each, and the scores."""
    from dragoman.cli.evaluate import write_scores
    from dragoman.evaluation.bleu import evaluate

    texts = [each.text for each in found]
    references = [target for _, _, target in test]
    right = Counter(
        phrase[0] for phrase, text in zip(test, texts, strict=True) if text == phrase[2]
    )
    asked = Counter(kind for kind, _, _ in test)
    print("\nexact translations of phrases that were not in the training text\n")
    for kind in asked:
        _print_share(kind, right[kind], asked[kind])
    _print_share("all", right.total(), asked.total())
    print()
    samples = {phrase[0]: (*phrase, text) for phrase, text in zip(test, texts, strict=True)}
    for _, source, target, text in samples.values():
        print(f"  {source}\n    {text}{'' if text == target else f'  (right is: {target})'}")
    print()
    print(write_scores(evaluate(texts, [references], target_language=language)))


def _print_share(kind: str, right: int, asked: int) -> None:
    print(f"  {kind:<10}{right:>5} of {asked:>5}{right / asked:>7.0%}")


def _draw(
    folder: Path, translator: Translator, test: list[Phrase], found: list[Translation]
) -> None:
    """Draws the attention of a right translation, if there is one, and the curves of the run."""
    from dragoman.training.metrics import read_metrics
    from dragoman.view.attention import draw_attention
    from dragoman.view.curves import draw_curves
    from dragoman.view.reading import read

    right = [
        source for (_, source, target), each in zip(test, found, strict=True) if each.text == target
    ]
    reading = read(translator, (right or [test[0][1]])[0])
    pictures = {name: folder / f"{name}.png" for name in ("attention", "curves")}
    labels = reading.source.pieces, reading.target.pieces
    draw_attention(reading.alignment(), *labels, pictures["attention"])
    draw_curves(read_metrics(folder / "model" / "run" / "metrics.jsonl"), pictures["curves"])
    print()
    for name, path in pictures.items():
        print(f"{name:<10}{path}")
    print(f"{'model':<10}{folder / 'model'}: dragoman translate {folder / 'model'} < FILE")
