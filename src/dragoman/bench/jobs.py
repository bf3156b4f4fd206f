"""The four jobs of `dragoman bench`: what runs, and what its numbers mean."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dragoman.bench.contestants import DECODING, REFERENCE, TRAINING, Contestant, choose
from dragoman.bench.process import Answer, Task, Worker, WorkerFailed
from dragoman.bench.report import Curves, Part, Row, Table
from dragoman.bench.sentences import Workload
from dragoman.bench.setting import BEAM_SIZE, OUTPUT_LENGTH, Setting, config_of_size
from dragoman.bench.start import PEER_COMMANDS, our_commands
from dragoman.bench.step_times import POSITIONS
from dragoman.config import RunError
from dragoman.kernels import resources
from dragoman.kernels.device import resolve_precision
from dragoman.kernels.timing import interleave

_MACHINE = Contestant("matrix products", "dragoman.bench.machine:MatrixProducts")
_DECODED = {32: 64, 1: 8}
"""Sentences of a round, by the size of a batch."""
_LENGTHS = (512, 1024, 2048, 4096, 8192)
_VOCABULARIES = (8_000, 37_000)
_MEMORY_SHARE = 0.7
"""Of the memory that the machine could give, what a contestant may have in the memory job."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    sizes: Sequence[str]
    rounds: int
    peers: Sequence[str]
    threads: int | None
    folder: Path
    """Where `sentences.json` and the tokenizer are, and models for the job `start` go."""
    say: Say
    """Tells a person what is going on."""
    device: str = "cpu"

    def setting(self, size: str) -> Setting:
        """Returns what the contestants of a size are given."""
        return Setting(size, self.folder / "sentences.json", self.threads, self.device)

    def choose(self, contestants: Sequence[Contestant]) -> tuple[list[Contestant], dict[str, str]]:
        """Returns who takes part, and of the others why not."""
        bfloat16 = resolve_precision("auto", torch.device(self.device)) == "bfloat16"
        return choose(contestants, self.peers, bfloat16=bfloat16)


@dataclass(frozen=True)
class Measured:
    """A contestant's answers."""

    ready: Answer
    rounds: list[Answer]

    @property
    def rates(self) -> list[float]:
        """Tokens or sentences a second, of each round."""
        return [answer["count"] / answer["seconds"] for answer in self.rounds]

    @property
    def cores(self) -> float:
        """CPU seconds a second: below the number of threads the machine had other work to do."""
        shares = [answer["cpu_seconds"] / answer["seconds"] for answer in self.rounds]
        return float(statistics.median(shares))


def measure(
    contestants: Sequence[Contestant],
    setting: Setting,
    rounds: int,
    say: Say,
    options: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Lets contestants work in turn, round after round, each in a process of its own.

    Args:
        contestants: who.
        setting: on what.
        rounds: how many times.
        say: tells who is being prepared, and each round's time.
        options: further ones, the same for all.

    Returns:
        The answers by name; and those that failed before the first round, with the reason.

    Raises:
        RunError: if one fails later, or if they have counted differently.
    """
    found, failed = {}, {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for each in contestants:
            say(f"preparing {each.name}")
            task = Task(each.home, {**each.options, **(options or {})}, setting)
            try:
                workers[each.name] = stack.enter_context(Worker(task))
            except WorkerFailed as failure:
                failed[each.name] = f"failed: {failure}"
        for name, worker in workers.items():
            found[name] = Measured(worker.ready, [])
        try:
            measures = {name: worker.round for name, worker in workers.items()}
            for number, name, answer in interleave(measures, rounds):
                found[name].rounds.append(answer)
                say(f"round {number + 1} of {rounds}: {name} {answer['seconds']:.2f} s")
        except WorkerFailed as failure:
            raise RunError(f"a contestant has ended: {failure}") from None
    _require_same_counts(found)
    return found, failed


def _require_same_counts(found: Mapping[str, Measured]) -> None:
    """Checks that all have had the same tokens, those that count none aside."""
    counts = {
        name: count
        for name, measured in found.items()
        if (count := sum(answer["count"] for answer in measured.rounds))
    }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise RunError(f"the contestants have counted differently: {listed}")


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:,.0f}"


def _name_size(size: str) -> str:
    model = config_of_size(size).model
    return (
        f"model {size} ({model.num_encoder_layers}+{model.num_decoder_layers} layers, "
        f"d_model {model.d_model}, {model.num_heads} heads, d_ff {model.d_ff}, vocabulary "
        f"{model.target_vocab_size:,})"
    )


def train(plan: Plan) -> Iterator[Part]:
    """Training steps: real target tokens a second, peak memory, share of the machine's rate."""
    about = Workload.load(plan.folder / "sentences.json").describe()
    for size in plan.sizes:
        chosen, absent = plan.choose(TRAINING)
        found, failed = measure([_MACHINE, *chosen], plan.setting(size), plan.rounds, plan.say)
        machine = found.pop(_MACHINE.name, None)
        if machine is None:
            raise RunError(f"the machine's own rate: {failed[_MACHINE.name]}")
        products = {
            dtype: statistics.median(answer["notes"]["rates"][dtype] for answer in machine.rounds)
            for dtype in machine.ready["notes"]["rates"]
        }
        operations = machine.ready["facts"]["operations"] / about["target_tokens"]
        best = ", ".join(f"{dtype} {rate / 1e9:,.0f}" for dtype, rate in products.items())
        yield Table(
            job="train",
            title=f"training, {_name_size(size)}",
            unit="tokens/s",
            rows=[
                _training_row(name, measured, operations, max(products.values()))
                for name, measured in found.items()
            ],
            reference=REFERENCE,
            absent={**absent, **failed},
            remarks=[f"best rate of matrix products, GFLOP/s: {best}"],
            about={
                "sentences": about,
                "matrix_products": products,
                "operations_per_token": operations,
            },
        )


def _training_row(name: str, measured: Measured, operations: float, best: float) -> Row:
    """Returns a row with the useful operations a second: those on padding aren't."""
    rates, peak = measured.rates, measured.ready["peak_bytes"]
    useful = operations * statistics.median(rates)
    return Row(
        name,
        rates,
        {
            "GFLOP/s": f"{useful / 1e9:,.1f}",
            "of best": f"{useful / best:.0%}",
            "peak MB": _megabytes(peak),
            "cores": f"{measured.cores:.2f}",
            "loss": f"{measured.rounds[-1]['notes']['loss']:.3f}",
        },
        {
            **measured.ready["facts"],
            "useful_operations_per_second": useful,
            "share_of_best": useful / best,
            "peak_bytes": peak,
            "cores": measured.cores,
            "cpu_seconds": [answer["cpu_seconds"] for answer in measured.rounds],
            "losses": [answer["notes"]["loss"] for answer in measured.rounds],
        },
    )


def decode(plan: Plan) -> Iterator[Part]:
    """Decoding: sentences a second, whether outputs agree, and a token's time by its position."""
    for size in plan.sizes:
        for batch, sentences in _DECODED.items():
            chosen, absent = plan.choose(DECODING)
            options = {"batch": batch, "sentences": sentences}
            found, failed = measure(chosen, plan.setting(size), plan.rounds, plan.say, options)
            ours = next(iter(found.values())).ready["notes"]["outputs"]
            yield Table(
                job="decode",
                title=f"decoding, {_name_size(size)}; beam {BEAM_SIZE}, {OUTPUT_LENGTH} tokens "
                f"each, batches of {batch}",
                unit="sentences/s",
                rows=[_decoding_row(name, measured, ours) for name, measured in found.items()],
                reference="ctranslate2" if "ctranslate2" in found else "transformers",
                absent={**absent, **failed},
                about={"batch": batch, "sentences": sentences},
            )
        yield _step_times(plan, size)


def _decoding_row(name: str, measured: Measured, ours: list[list[int]]) -> Row:
    outputs = measured.ready["notes"]["outputs"]
    if any(len(tokens) != OUTPUT_LENGTH for tokens in outputs):
        raise RunError(f"{name} has made outputs that haven't {OUTPUT_LENGTH} tokens")
    same = sum(output == our_output for output, our_output in zip(outputs, ours, strict=True))
    columns = {"same outputs": f"{same} of {len(outputs)}", "cores": f"{measured.cores:.2f}"}
    facts = {
        **measured.ready["facts"],
        "same_outputs": same,
        "outputs": len(outputs),
        "cores": measured.cores,
        "cpu_seconds": [answer["cpu_seconds"] for answer in measured.rounds],
    }
    return Row(name, measured.rates, columns, facts)


def _step_times(plan: Plan, size: str) -> Curves:
    home = "dragoman.bench.step_times:StepTimes"
    ways = [
        Contestant("with the cache", home, {"cached": True}),
        Contestant("without", home, {"cached": False}),
    ]
    found, failed = measure(ways, plan.setting(size), plan.rounds, plan.say)
    series = {
        name: {
            position: 1000
            * statistics.median(
                answer["notes"]["seconds"][str(position)] for answer in measured.rounds
            )
            for position in POSITIONS
        }
        for name, measured in found.items()
    }
    title = f"a generated token, {_name_size(size)}; 8 sentences, beam {BEAM_SIZE}"
    return Curves("decode", title, "position", "milliseconds", series, failed)


def memory(plan: Plan) -> Iterator[Part]:
    """Peak memory: of training, of one long sentence, of the loss."""
    for size in plan.sizes:
        setting = plan.setting(size)
        chosen, absent = plan.choose(TRAINING)
        found, failed = measure(chosen, setting, 0, plan.say)
        yield Table(
            job="memory",
            title=f"peak memory of training above a bare import of torch, {_name_size(size)}",
            unit="MB",
            rows=[
                Row(name, [measured.ready["peak_bytes"] / 1e6], facts=measured.ready["facts"])
                for name, measured in found.items()
                if measured.ready["peak_bytes"] is not None
            ],
            reference=REFERENCE,
            absent={**absent, **failed},
        )
        yield _sweep(
            plan,
            f"forward and backward of one pair, {_name_size(size)}, attention dropout",
            "tokens of each side",
            "dragoman.bench.memory:SentenceMemory",
            {"default path": {"readable": False}, "readable path": {"readable": True}},
            ("length", _LENGTHS),
            setting,
        )
        yield _sweep(
            plan,
            f"the loss of 2,048 tokens alone, d_model {config_of_size(size).model.d_model}",
            "vocabulary",
            "dragoman.bench.memory:LossMemory",
            {"dragoman": {"whole_logits": False}, "whole logits": {"whole_logits": True}},
            ("vocab_size", _VOCABULARIES),
            setting,
        )


def _sweep(
    plan: Plan,
    title: str,
    x: str,
    home: str,
    ways: Mapping[str, Mapping[str, Any]],
    swept: tuple[str, Sequence[int]],
    setting: Setting,
) -> Curves:
    """Measures the memory of a way of doing something as an option grows, a process each."""
    available = resources.available_bytes()
    limit = None if available is None else int(available * _MEMORY_SHARE)
    option, values = swept
    series: dict[str, dict[int, float]] = {name: {} for name in ways}
    absent = {}
    for name, options in ways.items():
        for value in values:
            plan.say(f"measuring {name} at {value:,}")
            task = Task(home, {**options, option: value}, setting, memory_limit=limit)
            try:
                with Worker(task) as worker:
                    taken = worker.ready["notes"]["bytes"]
            except WorkerFailed as failure:
                absent[f"{name} at {value:,}"] = f"failed: {failure}"
                break  # more won't do either
            if taken is not None:
                series[name][value] = taken / 1e6
    return Curves("memory", title, x, "MB", series, absent)


def start(plan: Plan) -> Iterator[Part]:
    """Cold processes: seconds until a sentence is translated, and until --help is there."""
    [source] = Workload.load(plan.folder / "sentences.json").sources(1)
    for size in plan.sizes:
        plan.say("writing models")
        commands = our_commands(plan.folder, size, source)
        absent = {}
        for peer, build in PEER_COMMANDS.items():
            if peer not in plan.peers:
                continue
            try:
                commands[peer] = build(plan.folder, size, source)
            except ImportError as error:
                absent[peer] = f"not installed: {error}"
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        runs = {name: command.run for name, command in commands.items()}
        try:
            for command in commands.values():
                command.run()  # the first one reads its files from the disk
            for number, name, taken in interleave(runs, plan.rounds):
                plan.say(f"round {number + 1} of {plan.rounds}: {name} {taken:.2f} s")
                seconds[name].append(taken)
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode("utf-8", "replace").strip().splitlines()
            raise RunError(f"a cold process has failed: {said[-1] if said else error}") from None
        yield Table(
            job="start",
            title=f"a cold process that translates one sentence, {_name_size(size)}",
            unit="seconds",
            rows=[Row(name, values) for name, values in seconds.items()],
            absent=absent,
        )


JOBS: dict[str, Callable[[Plan], Iterator[Part]]] = {
    "train": train,
    "decode": decode,
    "memory": memory,
    "start": start,
}
