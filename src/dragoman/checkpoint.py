"""A model is a folder: what is in it, how it is written whole, how it is read. No torch needed.

MODEL/config.toml           every setting, resolved
MODEL/weights.safetensors   float32; a tied matrix once
MODEL/tokenizer.model       or source.model and target.model
MODEL/card.md               what the model is and how well it does
MODEL/run/                  what sharing the model doesn't need: encoded text, validation text,
                            checkpoints/step-N/, metrics.jsonl, environment.json
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dragoman.config import Config, InputError
from dragoman.data.atomic import replacing, write_text
from dragoman.data.tokenizer import Tokenizer, Tokenizers
from dragoman.settings import build_config, read_settings, write_config

Arrays = dict[str, npt.NDArray[Any]]

_CONFIG, _WEIGHTS, _CARD = "config.toml", "weights.safetensors", "card.md"
_JOINT, _SOURCE, _TARGET = "tokenizer.model", "source.model", "target.model"
_OPTIMIZER, _STATE = "optimizer.safetensors", "state.json"
_MADE_WITH, _DIGESTS = "made_with", "sha256"
OLDER = "remove that checkpoint's folder to go on from the one before"


class _Stored(Mapping[str, npt.NDArray[Any]]):
    """The arrays of an open file, each read when it is asked for."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.metadata: dict[str, str] = file.metadata() or {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self._file.get_tensor(name)
        return array

    def __iter__(self) -> Iterator[str]:
        names: list[str] = self._file.keys()
        return iter(names)

    def __len__(self) -> int:
        return len(self._file.keys())


@contextmanager
def _open_arrays(path: Path) -> Iterator[_Stored]:
    try:
        with safe_open(path, framework="np") as file:
            yield _Stored(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not a sound safetensors file: {error}") from None


def _write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(arrays, path, metadata)
        path.chmod(mode)  # safetensors lets nobody else read it
    except SafetensorError as error:  # a full disk, most likely
        code = re.search(r"os error (\d+)", str(error))
        reason = os.strerror(int(code[1])) if code else str(error)
        raise OSError(int(code[1]) if code else 0, reason, str(path)) from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_state(checkpoint: Path) -> dict[str, Any]:
    """Reads the state of a checkpoint, and checks that its other files were written with it."""
    path = checkpoint / _STATE
    try:
        state = dict(json.loads(path.read_text(encoding="utf-8")))
        digests = dict(state.pop(_DIGESTS, {}))  # older checkpoints have none
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not sound JSON: {error}") from None
    for name, digest in digests.items():
        if name not in (_WEIGHTS, _OPTIMIZER) or _digest(checkpoint / name) != digest:
            raise InputError(f"{checkpoint / name}: not what {_STATE} was written with")
    return state


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a training run: all it takes to go on exactly."""

    weights: Arrays
    optimizer: Arrays
    state: dict[str, Any]


class ModelFolder:
    """The folder of one model.

    Attributes:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        """Opens an existing model.

        Raises:
            InputError: if there is no model at path.
        """
        self.path = path
        if not path.exists():
            raise InputError(f"{path}: no such model")
        if not (path / _CONFIG).is_file():
            raise InputError(f"{path}: not a model, for it has no {_CONFIG}")

    @property
    def run(self) -> Path:
        """What stays at home when the model is shared."""
        return self.path / "run"

    @staticmethod
    def write_description(path: Path, config: Config, tokenizers: Tokenizers) -> None:
        """Writes configuration and tokenizers into a new folder."""
        if tokenizers.joint:
            (path / _JOINT).write_bytes(tokenizers.source.model)
        else:
            (path / _SOURCE).write_bytes(tokenizers.source.model)
            (path / _TARGET).write_bytes(tokenizers.target.model)
        (path / _CONFIG).write_text(write_config(config), encoding="utf-8")

    def read_config(self) -> Config:
        """Reads every setting."""
        return build_config(read_settings(self.path / _CONFIG))

    def replace_config(self, config: Config) -> None:
        """Writes every setting anew."""
        write_text(self.path / _CONFIG, write_config(config))

    def read_tokenizers(self) -> Tokenizers:
        """Reads how the model cuts text."""
        if (self.path / _JOINT).exists():
            joint = Tokenizer.load(self.path / _JOINT)
            return Tokenizers(joint, joint)
        return Tokenizers(Tokenizer.load(self.path / _SOURCE), Tokenizer.load(self.path / _TARGET))

    def has_weights(self) -> bool:
        """Whether there are weights to translate with yet."""
        return (self.path / _WEIGHTS).exists()

    def read_weights(self) -> Arrays:
        """Reads the parameters.

        Raises:
            InputError: if there are none yet, or weights, tokenizers and configuration don't
                belong together.
        """
        if not self.has_weights():
            raise InputError(f"{self.path}: the model has no weights yet", "train it first")
        tokenizers = self.read_tokenizers()
        config = self.read_config().model
        for side, size, tokenizer in (
            ("source", config.source_vocab_size, tokenizers.source),
            ("target", config.target_vocab_size, tokenizers.target),
        ):
            if size != len(tokenizer):
                raise InputError(
                    f"{self.path}: the {side} tokenizer has {len(tokenizer)} entries, the model "
                    f"{size}: they come from different runs"
                )
        return self._read_own(self.path / _WEIGHTS)

    def _origin(self) -> dict[str, Any]:
        """Returns what weights must have been trained with to be this model's."""
        model = dataclasses.asdict(self.read_config().model)
        return {"tokenizer": self.read_tokenizers().fingerprint, "model": model}

    def _metadata(self) -> dict[str, str]:
        # one key, for safetensors writes several in any order, and equal weights are equal files
        return {_MADE_WITH: json.dumps(self._origin())}

    def _read_own(self, path: Path) -> Arrays:
        with _open_arrays(path) as weights:
            self._check_own(path, weights.metadata)
            return dict(weights)

    def _check_own(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Checks that weights are of these tokenizers and this configuration.

        A configuration that fits the shapes may still be another model's: positions, heads and
        scaling have no parameters.
        """
        ours = self._origin()
        try:  # older weights know less about themselves
            theirs = {**ours, **metadata, **json.loads(metadata.get(_MADE_WITH, "{}"))}
        except (TypeError, ValueError):
            raise InputError(f"{path}: damaged: what it was trained with can't be read") from None
        if theirs["tokenizer"] != ours["tokenizer"]:
            raise InputError(
                f"{path}: trained with tokenizer {theirs['tokenizer']}, the folder holds "
                f"{ours['tokenizer']}: they come from different runs"
            )
        made_as = dataclasses.asdict(build_config({"model": theirs["model"]}).model)
        for name, value in ours["model"].items():
            if value != made_as[name]:
                raise InputError(
                    f"{path}: trained with model.{name} {made_as[name]!r}, {_CONFIG} has "
                    f"{value!r}: they come from different runs"
                )

    def write_weights(self, weights: Arrays) -> None:
        """Puts weights in the place of those there are."""
        single = {name: np.asarray(array, np.float32) for name, array in weights.items()}
        with replacing(self.path / _WEIGHTS) as partial:
            _write_arrays(partial, single, self._metadata())

    def write_card(self, text: str) -> None:
        """Writes what the model is and how well it does."""
        write_text(self.path / _CARD, text)

    def has_card(self) -> bool:
        """Whether a run has come to its end and described the weights; no step has come since."""
        return (self.path / _CARD).exists()

    def remove_card(self) -> None:
        """Removes the card of a run that goes on."""
        (self.path / _CARD).unlink(missing_ok=True)

    def amend_card(self, paragraph: str) -> None:
        """Adds to the card what has happened since it was written, if there is one."""
        card = self.path / _CARD
        if self.has_card():
            self.write_card(f"{card.read_text(encoding='utf-8', errors='replace')}\n{paragraph}\n")

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Returns step and folder of the checkpoints kept, the oldest first."""
        found = (self.run / "checkpoints").glob("step-*")
        steps = ((path.name.removeprefix("step-"), path) for path in found)
        return sorted((int(step), path) for step, path in steps if step.isdecimal())

    def write_checkpoint(self, step: int, checkpoint: Checkpoint) -> None:
        """Adds a checkpoint."""
        (self.run / "checkpoints").mkdir(exist_ok=True)
        with replacing(self.run / "checkpoints" / f"step-{step}") as partial:
            partial.mkdir()
            _write_arrays(partial / _WEIGHTS, checkpoint.weights, self._metadata())
            _write_arrays(partial / _OPTIMIZER, checkpoint.optimizer)
            digests = {name: _digest(partial / name) for name in (_WEIGHTS, _OPTIMIZER)}
            state = json.dumps({**checkpoint.state, _DIGESTS: digests}, indent=1)
            (partial / _STATE).write_text(state, encoding="utf-8")

    def read_checkpoint(self, path: Path) -> Checkpoint:
        """Reads all that a checkpoint holds.

        Raises:
            InputError: if a file is missing or damaged, or not of this run.
        """
        try:
            weights = self._read_own(path / _WEIGHTS)
            with _open_arrays(path / _OPTIMIZER) as optimizer:
                return Checkpoint(weights, dict(optimizer), _read_state(path))
        except InputError as error:
            raise InputError(str(error), OLDER) from None

    def remove_checkpoints(self, keep: int, also: int, every: int) -> None:
        """Removes all checkpoints but the last few and that of one more step.

        One that was saved out of turn, between two multiples of `every`, goes when it isn't the
        last any more: an interrupted run ends with the checkpoints that it would have had.
        """
        *earlier, last = self.checkpoints()
        in_turn = [(step, path) for step, path in earlier if step and step % every == 0]
        kept = {step for step, _ in [*in_turn, last][-keep:]} | {also}
        for step, path in earlier:
            if step not in kept:
                gone = path.rename(path.with_name(f".{path.name}"))  # never half of one
                shutil.rmtree(gone)

    def average_last(self, count: int) -> Arrays:
        """Averages the weights of the last checkpoints.

        Raises:
            InputError: if there are fewer.
        """
        paths = [path / _WEIGHTS for _, path in self.checkpoints()]
        if not paths:
            raise InputError(
                f"{self.path}: no checkpoints are kept here", "they are in the run/ of a training"
            )
        if not 1 <= count <= len(paths):
            raise InputError(
                f"{self.path}: the average of {count} checkpoints was asked for, accepted is 1 to "
                f"the {len(paths)} that are kept",
            )
        with ExitStack() as files:
            models = [files.enter_context(_open_arrays(path)) for path in paths[-count:]]
            for path, model in zip(paths[-count:], models, strict=True):
                self._check_own(path, model.metadata)
            return average_weights(models)


def average_weights(models: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Arrays:
    """Averages the weights of models of one shape, in float64: their order doesn't matter.

    Of models that are read as they are asked for, one parameter at a time is in memory.
    """
    names = list(models[0])
    if any(set(model) != set(names) for model in models):
        raise InputError("the checkpoints to average don't hold the same parameters")
    # Even float64 sums depend on their order in the last digit, so each number's are sorted.
    averages = {}
    for name in names:
        arrays = [model[name] for model in models]
        mean = np.sort(arrays, axis=0).mean(axis=0, dtype=np.float64)
        averages[name] = np.asarray(mean, arrays[0].dtype)
    return averages
