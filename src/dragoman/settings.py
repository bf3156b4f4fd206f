"""From settings as text, in a TOML file, a preset or flags, to a configuration and back."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from dragoman.config import (
    Config,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    InputError,
    ModelConfig,
    TrainingConfig,
    nearest_hint,
)

SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "training": TrainingConfig,
}
FORMAT_VERSION = 1
"""The version of the model folder; a newer one is refused."""

Settings = Mapping[str, Mapping[str, Any]]
"""Values by section and field, as a TOML file, a preset or the command line gives them."""


_MOST = 2**63 - 1
"""What torch and numpy take for a whole number."""
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
"""What no file name has, and bytes of a file name that no TOML file can hold."""


def _read_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("true or false")


def _read_int(value: object) -> int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            number = int(value)
        except ValueError:
            number = _MOST + 1
        if abs(number) <= _MOST:
            return number
    raise ValueError("a whole number")


def _read_float(value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = float("nan")
        if abs(number) < float("inf"):
            return number
    raise ValueError("a number")


def _read_str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    if _UNWRITABLE.search(value):
        raise ValueError("a text in UTF-8")
    return value


def _read_corpora(value: object) -> tuple[CorpusConfig, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, dict) for each in value):
        raise ValueError("[[data.corpora]] tables in a file")
    corpora = []
    for number, table in enumerate(value, start=1):
        try:
            _check_keys("data.corpora", CorpusConfig, table)
            corpora.append(_build("data.corpora", CorpusConfig, table))
        except InputError as error:
            raise InputError(f"[[data.corpora]] {number}: {error}", error.hint) from None
    return tuple(corpora)


def _read_files(value: object) -> tuple[str, ...]:
    files = (value,) if isinstance(value, str) else value
    if isinstance(files, list | tuple) and all(isinstance(item, str) for item in files):
        return tuple(map(_read_str, files))
    raise ValueError("a file name or a list of them")


_READERS: dict[Any, Callable[[object], Any]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
    tuple[str, ...]: _read_files,
    tuple[CorpusConfig, ...]: _read_corpora,
}


def _check_keys(section: str, kind: type, values: Mapping[str, Any]) -> None:
    accepted = [f.name for f in dataclasses.fields(kind)]
    for key in values:
        if key not in accepted:
            near = nearest_hint(key, accepted)
            hint = near and near.replace("mean ", f"mean {section}.")
            raise InputError(f"{section}.{key} is not a setting", hint)


def build_config(*layers: Settings) -> Config:
    """Makes a configuration from layers of settings, a later one beating an earlier.

    Raises:
        InputError: naming the setting, its value and what is accepted.
    """
    merged: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for layer in layers:
        for section, values in layer.items():
            if section not in SECTIONS:
                raise InputError(
                    f"{section} is not a section of the settings, "
                    f"accepted is one of {', '.join(SECTIONS)}",
                    nearest_hint(section, SECTIONS),
                )
            _check_keys(section, SECTIONS[section], values)
            merged[section].update(values)
    return Config(
        **{section: _build(section, kind, merged[section]) for section, kind in SECTIONS.items()}
    )


def build_decoding(
    values: Mapping[str, Any],
    base: DecodingConfig = DecodingConfig(),  # noqa: B008 (frozen)
) -> DecodingConfig:
    """Makes the settings of a search, as `build_config` makes the others.

    Args:
        values: those that are given.
        base: where the others come from.

    Raises:
        InputError: as `build_config`.
    """
    _check_keys("decoding", DecodingConfig, values)
    return dataclasses.replace(base, **_read_values("decoding", DecodingConfig, values))


def _build(section: str, kind: type, values: Mapping[str, Any]) -> Any:
    return kind(**_read_values(section, kind, values))


def _read_values(section: str, kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    read_values = {}
    for key, value in values.items():
        read = _READERS.get(hints[key], _read_str)  # a Literal is a text that checks itself
        try:
            read_values[key] = read(value)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"{section}.{key} is {value!r}, accepted is {error}") from None
    return read_values


def read_settings(path: Path) -> dict[str, dict[str, Any]]:
    """Reads the settings of a TOML file, without its `format_version` and `preset` keys.

    Raises:
        InputError: if the file is missing, isn't TOML, or is of a newer format.
    """
    return read_recipe(path)[1]


def read_recipe(path: Path) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Reads the name of the preset that a TOML file starts from, if any, and its settings.

    Raises:
        InputError: as `read_settings`.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from None
    version = document.pop("format_version", FORMAT_VERSION)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {version}, accepted is at most {FORMAT_VERSION}",
            "a newer Dragoman wrote it: upgrade",
        )
    preset = document.pop("preset", None)
    if not isinstance(preset, str | None):
        raise InputError(f"{path}: preset is {preset!r}, accepted is a preset's name")
    for section, values in document.items():
        if not isinstance(values, dict):
            raise InputError(f"{path}: {section} stands outside of a [section]")
    return preset, document


def write_config(config: Config) -> str:
    """Returns a configuration as TOML, complete, so that later defaults can't change it."""
    document = {"format_version": FORMAT_VERSION, **dataclasses.asdict(config)}
    return tomli_w.dumps(document)
