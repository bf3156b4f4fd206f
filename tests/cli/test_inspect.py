from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.checkpoint import ModelFolder
from dragoman.config import Config, build_config, read_settings
from dragoman.presets import PRESETS


def count(shown: str, part: str) -> int:
    [line] = [line for line in shown.splitlines() if line.startswith(f"#   {part} ")]
    return int(line.split()[-1].replace(",", ""))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_shown_with_its_source_and_every_key(
    run: Any, preset: str, tmp_path: Path
) -> None:
    shown = run("inspect", preset).out
    assert shown.startswith(f"# preset {preset}: {PRESETS[preset].source}\n")
    (tmp_path / "f.toml").write_text(shown, "utf-8")
    config = build_config(read_settings(tmp_path / "f.toml"))
    vocabulary = dict.fromkeys(VOCABULARIES, config.data.vocab_size)
    assert config == build_config(PRESETS[preset].settings, {"model": vocabulary})
    sections = tomllib.loads(shown)
    assert [len(sections[name]) for name in ("model", "data", "training")] == [
        len(vars(section)) for section in vars(Config()).values()
    ]


VOCABULARIES = ("source_vocab_size", "target_vocab_size")


def test_the_paper_base_model_has_63_million_parameters_by_part(run: Any) -> None:
    shown = run("inspect", "paper-base").out
    parts = [count(shown, part) for part in ("embeddings", "encoder", "decoder")]
    assert parts[0] == 37000 * 512
    assert count(shown, "total") == sum(parts)
    assert round(sum(parts) / 1e6, 1) == 63.0


def test_a_model_is_shown_as_it_was_trained(run: Any, model: Path, tmp_path: Path) -> None:
    shown = run("inspect", model).out
    folder = ModelFolder(model)
    (tmp_path / "f.toml").write_text(shown, "utf-8")
    assert build_config(read_settings(tmp_path / "f.toml")) == folder.read_config()
    assert count(shown, "total") == sum(array.size for array in folder.read_weights().values())


def test_neither_a_model_nor_a_preset_names_the_nearest(run: Any) -> None:
    finished = run("inspect", "smalll")
    assert finished.status == 2
    assert finished.error.startswith(
        "error: smalll is neither a model nor a preset, the presets are"
    )
    assert finished.error.endswith("hint: did you mean small?")
