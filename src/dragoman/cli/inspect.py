"""`dragoman inspect`: every setting of a model or a preset, and what it takes to train it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from dragoman.cli import runtime
from dragoman.cli.parser import Commands, settings_of, whole_number
from dragoman.config import Config, InputError, nearest_hint
from dragoman.presets import PRESETS
from dragoman.settings import Settings, build_config, write_config

_LENGTH = 32
_SHARE = 0.5
"""Of the rate of large products, what training is taken to reach; one core reached 0.41 with preset
tiny and 0.50 with preset small."""
_COMPARED_LENGTHS = (512, 4096)


def add_parser(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "inspect",
        help="every setting of a model or a preset, and what it takes to train it",
        description="Prints every setting as a file that `dragoman train --config` reads, and as\n"
        "comments the parameters by part and what training will take: memory, tokens,\n"
        "floating-point operations.",
        epilog=f"Presets: {', '.join(PRESETS)}.\n"
        "The device need not be here. What cuda takes is estimated without having been measured.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("name", metavar="MODEL|PRESET", help="a folder or a preset's name")
    runtime.add_options(parser, trains=True)
    for setting, metavar, text in (
        ("training.accumulation", "N", "micro-batches of a step"),
        ("training.gradient_checkpointing", "BOOL", "make activations again, for less memory"),
    ):
        parser.add_argument(f"--{setting}", dest=setting, metavar=metavar, help=text)
    parser.add_argument(
        "--length",
        type=whole_number(1),
        default=_LENGTH,
        metavar="N",
        help=f"tokens of a usual sentence, for the operations; default: {_LENGTH}",
    )
    parser.add_argument(
        "--flops",
        type=_read_rate,
        metavar="F",
        help="operations a second of the machine, such as 1e13, or measure: for the days it takes",
    )


def _read_rate(text: str) -> float | None:
    """Reads a rate; None is for what is to be measured."""
    if text == "measure":
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, accepted is a number above 0, or measure")
    return rate


def run(arguments: argparse.Namespace) -> None:
    """Prints a TOML file."""
    title, config = _find(arguments.name, settings_of(arguments))
    lines = list(_plan(arguments, config))
    print(f"# {title}\n")
    print(write_config(config))
    for line in lines:
        print(f"# {line}" if line else "")


def _find(name: str, changes: Settings) -> tuple[str, Config]:
    """Returns a title and the settings of a preset, or else of a model, with changes."""
    if name in PRESETS:
        preset = PRESETS[name]
        size = build_config(preset.settings).data.vocab_size
        sizes = {"model": {"source_vocab_size": size, "target_vocab_size": size}}
        return f"preset {name}: {preset.source}", build_config(preset.settings, sizes, changes)
    if not Path(name).exists():
        raise InputError(
            f"{name} is neither a model nor a preset, the presets are {', '.join(PRESETS)}",
            nearest_hint(name, PRESETS),
        )
    from dragoman.checkpoint import ModelFolder

    folder = ModelFolder(Path(name))
    stored = dataclasses.asdict(folder.read_config())
    return f"model {folder.path}", build_config(stored, changes)


def _plan(arguments: argparse.Namespace, config: Config) -> Iterator[str]:
    """Yields what training takes, a line each; an empty one stands between two tables."""
    from dragoman.kernels.device import resolve_device
    from dragoman.training import budget

    runtime.prepare_process(arguments)
    device = arguments.device
    if device == "auto":
        device = resolve_device(device).type
    precision = budget.plan_precision(config.training.precision, device)
    yield from _plan_memory(config, precision, device)

    usual, steps = budget.step_shape(config, arguments.length), config.training.max_steps
    yield ""
    yield "tokens of both sides, padding included"
    yield from _table({"a step": usual.tokens, f"{steps:,} steps": usual.tokens * steps}, "{:,}")

    step = budget.count_operations(config.model, usual)
    yield ""
    yield f"floating-point operations of matrix products, with {usual.length:,} tokens a side"
    each = {"a token": step / usual.tokens, "a step": step, f"{steps:,} steps": step * steps}
    yield from _table(each, "{:.2e}")
    preset = PRESETS.get(arguments.name)
    if preset is not None and preset.published_operations is not None:
        yield f"published, not run here: {preset.published_operations:.1e}, which was not counted"
        yield "but is time x devices x the rate of a device, so that it need not agree"

    if "flops" in arguments:
        rate = arguments.flops or budget.measure_rate(resolve_device(device), precision)
        days = step * steps / (rate * _SHARE) / 86_400
        yield ""
        yield f"days at {_SHARE:.0%} of {rate:.2e} operations a second"
        yield from _table({f"{steps:,} steps": days}, "{:,.1f}")


def _plan_memory(config: Config, precision: str, device: str) -> Iterator[str]:
    """Yields the parameters by part and the memory by what it is for."""
    from dragoman.training import budget

    parameters = budget.count_parameters(config.model)
    total = sum(parameters.values())
    yield "parameters"
    yield from _table({**parameters, "total": total}, "{:,}")

    estimates = [
        (budget.estimate_memory(config, total, shape, precision, device), shape)
        for shape in budget.largest_micro_batches(config, precision, device)
    ]
    memory, largest = max(estimates, key=lambda estimate: sum(estimate[0].values()))
    yield ""
    yield f"MiB at the peak of training on {device} in {precision}; the largest micro-batch has"
    yield f"{largest.pairs:,} pairs of {largest.length:,} tokens a side"
    if device == "cpu":
        memory |= budget.estimate_overhead(config, sum(memory.values()))
    in_mib = {name: size / 2**20 for name, size in memory.items()}
    yield from _table({**in_mib, "in all": sum(in_mib.values())}, "{:,.0f}")
    if device == "cpu":
        yield "above what Python and torch take before they do anything; the allocator holds what"
        yield "was freed and fits nothing else"

    if config.model.architecture == "transformer":
        yield from _compare_lengths(config.model.num_heads)


def _compare_lengths(num_heads: int) -> Iterator[str]:
    """Yields what attention weights would take, for one length and for a multiple of it."""
    short, long = _COMPARED_LENGTHS
    yield ""
    yield "MiB of attention weights, n x n for each head, of one sentence in one layer, if they"
    yield f"were kept; those of {long:,} tokens are {(long // short) ** 2} times those of {short:,}"
    weights = {f"{n:,} tokens": num_heads * n * n / 2**18 for n in (short, long)}
    yield from _table(weights, "{:,.0f}")


def _table(rows: Mapping[str, float], form: str) -> Iterator[str]:
    """Yields a name and a number a line."""
    for name, value in rows.items():
        yield f"  {name:<16}{form.format(value):>20}"
