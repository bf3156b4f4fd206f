"""How a run begins: a new folder from a user's files, or an old one taken up again."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

import torch

from dragoman.checkpoint import ModelFolder
from dragoman.config import Config, InputError
from dragoman.data.atomic import remove_abandoned, remove_leftovers, replacing
from dragoman.data.batching import require_fit
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.preparation import TRAINING, VALIDATION, Preparation, prepare
from dragoman.data.tokenizer import Tokenizer, Tokenizers
from dragoman.model.architecture import build_model
from dragoman.training.card import read_summary
from dragoman.training.metrics import Report

_FREE_ON_RESUME = ("max_steps", "max_hours", "patience", "log_every")
"""Settings that may differ when a run goes on: they don't change what it learns."""


def take_up(folder: ModelFolder, config: Config) -> None:
    """Checks that the settings are those of the run, and writes those that may differ.

    What a kill left half-written goes.

    Raises:
        InputError: naming the first setting that differs.
    """
    stored = folder.read_config()
    config = _fit_vocabulary(config, folder.read_tokenizers())
    for section in ("model", "data", "training"):
        ours, theirs = getattr(config, section), getattr(stored, section)
        for field in dataclasses.fields(ours):
            if field.name in _FREE_ON_RESUME:
                continue
            value, kept = getattr(ours, field.name), getattr(theirs, field.name)
            if value != kept:
                raise InputError(
                    f"{section}.{field.name} is {value!r}, but {folder.path} was started with "
                    f"{kept!r}",
                    "give the same settings as before, or start a new model with --from",
                )
    read_summary(folder)  # what is damaged shows now, not at the end when the card is written
    remove_leftovers(folder.path)
    free = {name: getattr(config.training, name) for name in _FREE_ON_RESUME}
    training = dataclasses.replace(stored.training, **free)
    folder.replace_config(dataclasses.replace(stored, training=training))


def create(
    path: Path, config: Config, from_model: str | Path | None, report: Report
) -> ModelFolder:
    """Reads the data and makes the folder, whole or not at all.

    Raises:
        InputError: for anything wrong with the files or the settings.
    """
    weights = tokenizers = None
    if from_model is not None:
        parent = ModelFolder(Path(from_model))
        weights, tokenizers = parent.read_weights(), parent.read_tokenizers()
        _require_same_tokenizers(parent, config)
        # what doesn't fit shows before hours of reading
        build_model(_fit_vocabulary(config, tokenizers).model).load_arrays(weights)
    remove_abandoned(path)
    with replacing(path) as partial:
        data = partial / "run" / "data"
        data.mkdir(parents=True)
        prepared = prepare(config.data, data, tokenizers)
        config = _fit_vocabulary(config, prepared.tokenizers)
        ModelFolder.write_description(partial, config, prepared.tokenizers)
        _require_room(config, data)
        _write_json(partial / "run" / "environment.json", _environment())
        _write_json(partial / "run" / "data.json", _data_summary(prepared))
        if weights is None:
            build_model(config.model)  # what doesn't fit into memory leaves nothing behind
        else:
            ModelFolder(partial).write_weights(weights)
        require_free(path)  # reading took its time
    report({"event": "data", **_data_summary(prepared)})
    return ModelFolder(path)


def require_free(path: Path) -> None:
    """Checks that nothing stands where a new model is to be.

    Raises:
        InputError: if something does.
    """
    if path.exists():
        raise InputError(
            f"{path} exists already", "give another name, or --resume to go on with it"
        )


def _require_same_tokenizers(parent: ModelFolder, config: Config) -> None:
    """Checks that tokenizers that are given are those of the model to start from."""
    tokenizers, data = parent.read_tokenizers(), config.data
    for setting, ours in (
        ("tokenizer", tokenizers.source),
        ("source_tokenizer", tokenizers.source),
        ("target_tokenizer", tokenizers.target),
    ):
        path = getattr(data, setting)
        if path and Tokenizer.load(Path(path)).fingerprint != ours.fingerprint:
            raise InputError(
                f"data.{setting} is {path}, but {parent.path} has another tokenizer",
                "a model goes on with the tokenizer it was trained with: leave the setting out",
            )


def _fit_vocabulary(config: Config, tokenizers: Tokenizers) -> Config:
    sizes: dict[str, Any] = {
        "source_vocab_size": len(tokenizers.source),
        "target_vocab_size": len(tokenizers.target),
    }
    if not tokenizers.joint and config.model.tie == "source-target-output":
        sizes["tie"] = "target-output"
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **sizes))


def _require_room(config: Config, data: Path) -> None:
    """Checks before the first step that a batch and the learned positions hold every sentence."""
    lengths = {name: EncodedCorpus.open(data / name).lengths for name in (TRAINING, VALIDATION)}
    for name, found in lengths.items():
        longest, most = int(found.max()), config.model.position_limit
        require_fit(longest, config.training.batch_tokens)
        if most is not None and longest > most:
            raise InputError(
                f"the longest {name} sentence has {longest} tokens, model.max_positions is {most}, "
                f"accepted is at least {longest}, for positions are learned",
                "data.max_length leaves long training sentences out",
            )


def _data_summary(prepared: Preparation) -> dict[str, Any]:
    return {
        "report": prepared.report,
        "counts": prepared.counts,
        "validation_pairs": prepared.num_validation,
        "validation_long": prepared.num_validation_long,
        "held_out": prepared.held_out,
        "source_vocab_size": len(prepared.tokenizers.source),
        "target_vocab_size": len(prepared.tokenizers.target),
    }


def _environment() -> dict[str, str]:
    capability = torch.backends.cpu.get_cpu_capability()
    return {"python": platform.python_version(), "torch": torch.__version__, "cpu": capability}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
