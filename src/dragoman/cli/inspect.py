"""`dragoman inspect`: every setting of a model or a preset, and where its parameters are."""

from __future__ import annotations

import argparse
from pathlib import Path

from dragoman.cli.parser import Commands
from dragoman.config import (
    Config,
    InputError,
    ModelConfig,
    build_config,
    nearest_hint,
    write_config,
)
from dragoman.presets import PRESETS


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "inspect",
        help="every setting of a model or a preset, and its parameters by part",
        description="Prints every setting as a file that `dragoman train --config` reads, and the\n"
        "parameters by part as comments.",
        epilog=f"Presets: {', '.join(PRESETS)}.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("name", metavar="MODEL|PRESET", help="a folder or a preset's name")


def run(arguments: argparse.Namespace) -> None:
    """Prints a TOML file."""
    title, config = _find(arguments.name)
    print(f"# {title}\n")
    print(write_config(config))
    counts = count_parameters(config.model)
    print("# parameters")
    for part, count in {**counts, "total": sum(counts.values())}.items():
        print(f"#   {part:<10}  {count:>13,}")


def _find(name: str) -> tuple[str, Config]:
    """Returns a title and the settings of a preset, or else of a model."""
    if name in PRESETS:
        preset = PRESETS[name]
        size = build_config(preset.settings).data.vocab_size
        sizes = {"model": {"source_vocab_size": size, "target_vocab_size": size}}
        return f"preset {name}: {preset.source}", build_config(preset.settings, sizes)
    if not Path(name).exists():
        raise InputError(
            f"{name} is neither a model nor a preset, the presets are {', '.join(PRESETS)}",
            nearest_hint(name, PRESETS),
        )
    from dragoman.checkpoint import ModelFolder

    folder = ModelFolder(Path(name))
    return f"model {folder.path}", folder.read_config()


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Counts the parameters of embeddings, encoder and decoder, a tied matrix once."""
    import torch

    from dragoman.model.transformer import Transformer

    with torch.device("meta"):  # shapes without storage
        model = Transformer(config)
    counts = {"embeddings": 0, "encoder": 0, "decoder": 0}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        counts[part if part in counts else "embeddings"] += parameter.numel()
    return counts
