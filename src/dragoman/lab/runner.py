"""Runs the variants of an experiment with each seed, and keeps what was found.

Under the laboratory's folder there is one for each experiment:

EXPERIMENT/run.json       what its latest whole run consists of
EXPERIMENT/begun.json     what the run consists of that has begun since, until it is whole
EXPERIMENT/KEY.json       one trial, or what was observed without any; KEY is a digest of all that
                          it depends on
EXPERIMENT/KEY/           a model in training; goes when the trial is done
text/                     what they train on
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dragoman.checkpoint import ModelFolder
from dragoman.config import Config, InputError
from dragoman.data.atomic import held_alone, remove_leftovers, write_text
from dragoman.kernels.process import one_thread, tune_process
from dragoman.lab.data import LabData
from dragoman.lab.experiment import (
    BrokenOff,
    Corpus,
    Experiment,
    Measured,
    Results,
    Trial,
    Variant,
    flatten,
)
from dragoman.lab.trained import Trained, train_to_end
from dragoman.lab.workers import run_tasks
from dragoman.settings import build_config
from dragoman.training.metrics import Event, read_metrics

Listen = Callable[[Trial], None]
"""Is told of a trial as its curve grows, and once more when it is done and has its measures."""

_POINTS = 20
"""Points of a curve."""
_MOST_LOST = 1500
"""Steps that an interruption may cost a trial, at most."""
_WHOLE, _BEGUN = "run", "begun"
_FILES = ("data.pairs", "data.valid_pairs")


@dataclass(frozen=True)
class Plan:
    """How experiments are run."""

    folder: Path
    """The laboratory's folder."""
    seeds: int = 3
    quick: bool = False
    processes: int = 1
    """Trials at once, at most."""
    data: LabData | None = None
    """The user's text; each experiment's own if None."""
    device: str = "cpu"
    """To train on, `cpu` or `cuda`: either keeps results of its own."""


def run_experiment(experiment: Experiment, plan: Plan, listen: Listen) -> Results:
    """Trains and measures whatever hasn't been yet, and returns everything.

    All trials of a seed share data order and the random numbers that first weights are drawn from:
    models of the same shapes begin alike, others with other weights. All have the same number of
    steps. Each has one thread, so that its numbers don't depend on how many run at once. An
    interrupted trial goes on where its last checkpoint is.

    Args:
        experiment: what to run; in several processes its `measure` is sent to them.
        plan: how.
        listen: is told of every trial, also of those that were run before.

    Raises:
        InputError: for an experiment that brings no text where none is given, or that another
            process is running there.
    """
    data = _find_text(experiment, plan)
    folder = plan.folder / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    with held_alone(folder):
        remove_leftovers(folder)
        return _run_in(folder, experiment, plan, data, listen)


def _run_in(
    folder: Path, experiment: Experiment, plan: Plan, data: LabData, listen: Listen
) -> Results:
    trains = bool(experiment.variants)
    corpus = Corpus(data.name, len(data.train), len(data.test)) if trains else None
    files = data.write(plan.folder.resolve() / "text") if trains else {}
    observed_key = _digest({"experiment": experiment.name, "version": experiment.version})
    trials = {
        key: _Task(variant.name, seed, config, data, folder / key, experiment.measure, plan.device)
        for seed in range(1, plan.seeds + 1)
        for variant in experiment.variants
        for config in [_configure(experiment, variant, seed, plan.quick, data, files)]
        for key in [_key(experiment, variant, config, data, plan.device)]
    }
    run = {
        "version": experiment.version,
        "quick": plan.quick,
        "corpus": corpus and dataclasses.asdict(corpus),
        "observed": observed_key,
        "trials": list(trials),
    }
    _write(folder, _BEGUN, run)
    observed = _read(folder, observed_key)
    if observed is None:
        observed = dict(experiment.observe())
        _write(folder, observed_key, observed)
    kept = {key: _read(folder, key) for key in trials}
    found = {key: Trial.from_json(trial) for key, trial in kept.items() if trial is not None}
    for trial in found.values():
        listen(trial)
    tasks = {key: task for key, task in trials.items() if key not in found}
    for key, trial in _run_all(tasks, plan.processes, listen):
        _write(folder, key, dataclasses.asdict(trial))
        shutil.rmtree(folder / key, ignore_errors=True)
        listen(trial)
        found[key] = trial
    _write(folder, _WHOLE, run)
    (folder / f"{_BEGUN}.json").unlink()
    return Results(observed, [found[key] for key in trials], corpus)


def _find_text(experiment: Experiment, plan: Plan) -> LabData:
    if experiment.needs_text and plan.data is None:
        raise InputError(
            "no text is given, and this experiment brings none",
            "--source and --target, --pairs or --language",
        )
    text = plan.data or (experiment.data() if experiment.data else LabData((), ()))
    return text.thin_out(experiment.thin_out)


def stored_results(experiment: Experiment, folder: Path) -> Results | None:
    """Returns what the latest whole run of an experiment has found, None if there is none.

    Nor is there one where the experiment measured something else then, or of other variants.
    """
    place = folder / experiment.name
    run = _read(place, _WHOLE)
    if run is None or run.get("version", 1) != experiment.version:
        return None
    observed, kept = _read(place, run["observed"]), [_read(place, key) for key in run["trials"]]
    if observed is None or None in kept:
        return None
    trials = [Trial.from_json(trial) for trial in kept]
    if {trial.variant for trial in trials} != {variant.name for variant in experiment.variants}:
        return None
    corpus = run.get("corpus")
    return Results(observed, trials, corpus and Corpus.from_json(corpus))


def is_unfinished(experiment: Experiment, folder: Path) -> bool:
    """Says whether a run of an experiment was begun and not ended, or is of an older version."""
    place = folder / experiment.name
    begun = _read(place, _BEGUN) is not None
    return begun or (place.exists() and stored_results(experiment, folder) is None)


def _configure(
    experiment: Experiment,
    variant: Variant,
    seed: int,
    quick: bool,
    data: LabData,
    files: dict[str, dict[str, Any]],
) -> Config:
    steps = experiment.quick_steps if quick else experiment.steps
    every = max(1, steps // _POINTS)
    budget = {
        "seed": seed,
        "max_steps": steps,
        "log_every": every,
        "validate_every": experiment.checkpoint_every or max(1, min(steps // 4, _MOST_LOST)),
        "keep_checkpoints": steps if experiment.checkpoint_every else 1,
        "average_last": 1,
    }
    layers = experiment.layers(variant)
    # Where any text may come, the experiment says how large a vocabulary it learns; else the text.
    layers = [data.settings, *layers] if experiment.needs_text else [*layers, data.settings]
    return build_config(*layers, files, {"training": budget})


def _key(
    experiment: Experiment, variant: Variant, config: Config, data: LabData, device: str
) -> str:
    settings = {name: value for name, value in flatten(config).items() if name not in _FILES}
    return _digest(
        {
            "experiment": experiment.name,
            "version": experiment.version,
            "variant": variant.name,
            "settings": settings,
            "data": data.digest,
            **({} if device == "cpu" else {"device": device}),
        }
    )


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class _Task:
    """A trial to be run, in this process or in another."""

    variant: str
    seed: int
    config: Config
    data: LabData
    folder: Path
    measure: Callable[[Trained], Mapping[str, Measured]]
    device: str

    def __call__(self, listen: Listen) -> Trial:
        live = Trial(self.variant, self.seed, curve=[])  # after an interruption, what came since

        def report(event: Event) -> None:
            if event["event"] == "log":
                live.curve.append((event["step"], event["nll"]))
                listen(live)

        self._leave_other_place()
        try:
            trained = train_to_end(self.folder, self.config, self.data, self.device, report)
            items = trained.items
            measures = {**self.measure(trained), "exact": sum(items) / len(items)}
        except BrokenOff as error:
            return Trial(self.variant, self.seed, self._read_curve(), failed=str(error))
        return Trial(self.variant, self.seed, self._read_curve(), measures, items)

    def _read_curve(self) -> list[tuple[int, float]]:
        events = read_metrics(ModelFolder(self.folder).run / "metrics.jsonl")
        return [(event["step"], event["nll"]) for event in events if event["event"] == "log"]

    def _leave_other_place(self) -> None:
        """Removes a model that was begun while the laboratory's folder was elsewhere."""
        if self.folder.exists() and ModelFolder(self.folder).read_config().data != self.config.data:
            shutil.rmtree(self.folder)


def _run_all(
    tasks: Mapping[str, _Task], processes: int, listen: Listen
) -> Iterator[tuple[str, Trial]]:
    """Runs trials, each with one thread; yields their keys and what they found, as they come."""
    names = {f"{task.variant}, seed {task.seed}": key for key, task in tasks.items()}
    prepare = partial(_prepare_process, torch.backends.mkldnn.matmul.fp32_precision)  # type: ignore[attr-defined]
    named = {name: tasks[key] for name, key in names.items()}
    with one_thread(), closing(run_tasks(named, processes, prepare, listen)) as results:
        for name, trial in results:
            yield names[name], trial


def _prepare_process(fp32_precision: str) -> None:
    """Makes a new process compute to the last bit as the one that has started it."""
    torch.set_num_threads(1)
    tune_process()
    torch.backends.mkldnn.matmul.fp32_precision = fp32_precision  # type: ignore[attr-defined]


def _read(folder: Path, key: str) -> Any:
    path = folder / f"{key}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise InputError(f"{path}: not sound JSON", "remove it, and run again") from None


def _write(folder: Path, key: str, content: Mapping[str, Any]) -> None:
    write_text(folder / f"{key}.json", json.dumps(content) + "\n")
