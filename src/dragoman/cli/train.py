"""`dragoman train`: from two text files to a model."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli import runtime
from dragoman.cli.parser import Commands, Parser, settings_of
from dragoman.config import Config
from dragoman.presets import PRESETS, preset_settings
from dragoman.settings import SECTIONS, Settings, build_config, read_recipe

if TYPE_CHECKING:
    from dragoman.training.metrics import Event, Report

_DEFAULT_PRESET = "small"
_WHAT_MATTERS: dict[str, tuple[str, ...]] = {
    "model": (),
    "data": ("vocab_size", "joint_vocabulary"),
    "training": (
        "batch_tokens",
        "schedule",
        "warmup_steps",
        "noam_factor",
        "peak_learning_rate",
        "adam_beta2",
        "label_smoothing",
        "max_steps",
    ),
}
"""Settings whose change makes another model of a preset; () is all of a section."""
_DERIVED = ("d_k", "d_v", "source_vocab_size", "target_vocab_size")
_FILES = ("source", "target", "pairs")
_EPILOG = """\
every setting is an option: --model.d_model 256, --data.drop_duplicates false, ...
`dragoman inspect PRESET` prints all of them with their values, in the form of a --config file.
A flag beats the file, the file beats the preset, the preset beats the default.
Without validation data 1 % of the pairs, at most 1,000, are held out."""


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "train",
        help="train a model on parallel text",
        usage="dragoman train MODEL (--source F... --target F... | --pairs F... | --config F.toml)"
        " [options]",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("path", metavar="MODEL", help="the folder of the new model")
    _add_data_options(parser)
    parser.add_argument("--config", metavar="F.toml", help="settings, and a preset's name")
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        metavar="PRESET",
        help=f"{', '.join(PRESETS)}; default: {_DEFAULT_PRESET}",
    )
    parser.add_argument("--from", dest="parent", metavar="MODEL", help="go on from its weights")
    parser.add_argument(
        "--resume", action="store_true", default=False, help="go on where MODEL stopped, or start"
    )
    parser.add_argument(
        "--tensorboard", action="store_true", default=False, help="curves in MODEL/run/tensorboard"
    )
    for flag, setting, metavar, text in (
        ("--tokenizer", "data.tokenizer", "F.model", "use it instead of learning one"),
        ("--max-length", "data.max_length", "N", "leave longer pairs out; in tokens"),
        ("--max-steps", "training.max_steps", "N", "stop after so many steps"),
        ("--max-hours", "training.max_hours", "H", "stop after so many hours"),
        ("--seed", "training.seed", "N", "of all that is left to chance"),
    ):
        parser.add_argument(flag, dest=setting, metavar=metavar, help=text)
    runtime.add_options(parser, trains=True)
    _add_settings(parser)


def _add_data_options(parser: Parser) -> None:
    for prefix, of in (("", "of the text"), ("valid-", "of the validation text")):
        for side, text in zip(
            _FILES, ("source lines", "target lines", ".tsv or .jsonl files"), strict=True
        ):
            parser.add_argument(
                f"--{prefix}{side}",
                dest=f"data.{prefix}{side}".replace("-", "_"),
                nargs="+",
                metavar="F",
                help=f"{text} {of}",
            )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language", dest=f"data.{side}_language", metavar="L", help="such as en, zh"
        )


def _add_settings(parser: Parser) -> None:
    """Adds every setting as a hidden option: --section.key."""
    for section, kind in SECTIONS.items():
        for field in dataclasses.fields(kind):
            name = f"{section}.{field.name}"
            several = "+" if str(field.type).startswith("tuple") else None
            parser.add_argument(f"--{name}", dest=name, nargs=several, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> None:
    """Trains a model and shows how it goes."""
    model = Path(arguments.path)
    preset, layers = _layers(arguments)
    config = build_config(*layers)
    from dragoman.cli.progress import Progress, say
    from dragoman.training.loop import train
    from dragoman.training.tensorboard import TensorBoard

    runtime.prepare_process(arguments, frugal=config.training.gradient_checkpointing)
    curves = [TensorBoard(model / "run" / "tensorboard")] if arguments.tensorboard else []
    first = os.environ.get("RANK", "0") == "0"  # of several processes one speaks
    if first and not model.exists():
        say("reading, cleaning and encoding the text")
    if first and preset is not None and (found := differences(preset, config)):
        say(f"unlike preset {preset}: {', '.join(found)}")
    with Progress(config.training.max_steps, quiet=not first) as progress:
        listeners: list[Report] = [progress, *curves]

        def report(event: Event) -> None:
            for listen in listeners:
                listen(event)

        train(
            model,
            config,
            resume=arguments.resume,
            from_model=getattr(arguments, "parent", None),
            device=arguments.device,
            report=report,
        )
    if first:
        say(f"the model is in {model}; to use it: dragoman translate {model} < FILE")


def differences(preset: str, config: Config) -> list[str]:
    """Returns the settings that decide what is learnt and that aren't those of a preset."""
    whole = build_config(preset_settings(preset))
    return [
        f"{section}.{name} {ours} ({theirs})"
        for section, names in _WHAT_MATTERS.items()
        for name in names or [field.name for field in dataclasses.fields(SECTIONS[section])]
        if name not in _DERIVED
        and (ours := getattr(getattr(config, section), name))
        != (theirs := getattr(getattr(whole, section), name))
    ]


def _layers(arguments: argparse.Namespace) -> tuple[str | None, list[Settings]]:
    """Returns the preset and the settings, from the weakest to the strongest."""
    flags = settings_of(arguments)
    preset, file = read_recipe(Path(arguments.config)) if "config" in arguments else (None, {})
    preset = getattr(arguments, "preset", preset)
    layers: list[Settings] = []
    model = Path(arguments.path)
    if arguments.resume and model.exists():
        stored = _stored_settings(model)
        for side in ("source", "target"):  # the tokenizers tell, whatever else the flags change
            del stored["model"][f"{side}_vocab_size"]
        layers.append(stored)
    elif preset is None:
        preset = _DEFAULT_PRESET
    if preset is not None:
        layers.append(preset_settings(preset))
    if "parent" in arguments:
        layers.append(_inherited_settings(Path(arguments.parent)))
    return preset, [*layers, file, _replace_other_files(flags), flags]


def _stored_settings(model: Path) -> dict[str, dict[str, Any]]:
    from dragoman.checkpoint import ModelFolder

    return dataclasses.asdict(ModelFolder(model).read_config())


def _inherited_settings(parent: Path) -> Settings:
    """Returns what a model has from the one it starts from: its architecture and languages."""
    stored = _stored_settings(parent)
    languages = ("source_language", "target_language", "joint_vocabulary")
    return {"model": stored["model"], "data": {key: stored["data"][key] for key in languages}}


def _replace_other_files(flags: Settings) -> Settings:
    """Returns a layer without the files of a kind that a flag replaces by files of the other."""
    given = flags.get("data", {})
    without: dict[str, Any] = {}
    for prefix in ("", "valid_"):
        if prefix + "pairs" in given:
            without |= {prefix + "source": (), prefix + "target": ()}
        elif prefix + "source" in given or prefix + "target" in given:
            without |= {prefix + "pairs": ()}
    return {"data": without}
