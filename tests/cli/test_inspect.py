from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.checkpoint import ModelFolder
from dragoman.config import Config
from dragoman.presets import PRESETS
from dragoman.settings import build_config, read_settings


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


def number(shown: str, name: str) -> float:
    """Returns what stands behind the last row of that name, for some tables share a name."""
    *_, line = [line for line in shown.splitlines() if line.startswith(f"#   {name} ")]
    return float(line.split()[-1].replace(",", ""))


def test_the_parameters_and_the_plan_of_the_paper_base_model(run: Any) -> None:
    shown = run("inspect", "paper-base", "--training.accumulation", "8", "--device", "cpu").out
    parts = [count(shown, part) for part in ("embeddings", "encoder", "decoder")]
    assert (parts[0], count(shown, "total")) == (37000 * 512, sum(parts))
    assert round(sum(parts) / 1e6, 1) == 63.0
    memory = [number(shown, part) for part in ("weights", "gradients", "moments")]
    assert memory == [240, 240, 481]  # numbers of 4 bytes, once, once and twice
    tensors = sum(memory) + number(shown, "activations") + number(shown, "work space")
    rest = number(shown, "allocator") + number(shown, "program")
    assert number(shown, "allocator") == pytest.approx(tensors / 2, abs=2)
    assert number(shown, "in all") == pytest.approx(tensors + rest, abs=3)
    assert number(shown, "100,000 steps") == pytest.approx(9.5e17, rel=0.01)
    assert "published, not run here: 3.3e+18" in shown


def test_attention_weights_grow_with_the_square_of_the_length(run: Any, model: Path) -> None:
    shown = run("inspect", model).out
    assert "those of 4,096 tokens are 64 times those of 512" in shown
    assert number(shown, "4,096 tokens") == 64 * number(shown, "512 tokens") == 2 * 4096**2 / 2**18
    assert "published" not in shown


def test_the_settings_that_spare_memory_can_be_tried(run: Any, model: Path, tmp_path: Path) -> None:
    changes = ("--training.accumulation", "5", "--batch-tokens", "10007", "--device", "cuda")
    before, after = (run("inspect", model, *changes[n:]).out for n in (2, 0))
    assert number(after, "activations") < number(before, "activations") / 4
    assert "allocator" not in after  # torch has its own for a GPU, which was not measured
    assert "training on cuda in " in after  # whether one is here or not
    (tmp_path / "f.toml").write_text(after, "utf-8")
    training = build_config(read_settings(tmp_path / "f.toml")).training
    assert (training.accumulation, training.batch_tokens) == (5, 10007)


def test_days_follow_from_a_rate_and_the_usual_length(run: Any, model: Path) -> None:
    changes = ("--batch-tokens", "250000", "--length", "17")
    shown = run("inspect", model, "--flops", "1e5", *changes).out
    assert "17 tokens a side" in shown
    assert number(shown, "3 steps") == pytest.approx(
        3 * number(shown, "a step") / 5e4 / 86400, rel=0.02
    )


def test_the_rate_can_be_measured(run: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.training.budget.measure_rate", lambda *_: 1.25e12)
    assert "50% of 1.25e+12 operations a second" in run("inspect", model, "--flops", "measure").out


def test_the_rate_of_what_is_not_here_cannot_be_measured(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    finished = run("inspect", model, "--device", "cuda", "--flops", "measure")
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith("error: --device is cuda, but torch finds no CUDA device")


@pytest.mark.parametrize("rate", ["0", "-1e12", "fast", "nan"])
def test_what_is_no_rate_is_refused(run: Any, rate: str) -> None:
    finished = run("inspect", "tiny", f"--flops={rate}")
    assert finished.status == 2
    assert finished.error.startswith(f"error: --flops: '{rate}', accepted is a number above 0")
