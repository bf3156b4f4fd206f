"""The recipes of the paper's two tasks, on text that is small enough."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from dragoman.checkpoint import ModelFolder
from dragoman.cli.main import main
from dragoman.data.cldr import make_pairs
from dragoman.presets import preset_settings
from dragoman.settings import build_config, read_settings

RECIPES = Path(__file__).parent.parent / "examples" / "wmt14"
STUBS = {
    # what they print or make lies in $STAND_IN; the last argument of mtdata is the folder
    "mtdata": 'echo "$@" >"$STAND_IN/asked"; cp -r "$STAND_IN/train-parts" "${@: -1}"',
    "sacrebleu": 'cat "$STAND_IN/$(basename "$2").$6"',  # -t TEST -l PAIR --echo SIDE
    "dragoman": 'printf "%s\\n" "$@" "" >>"$STAND_IN/commands"',
}
TINY = (
    *("--model.num_encoder_layers", "1", "--model.num_decoder_layers", "1"),
    *("--model.d_model", "16", "--model.d_ff", "32", "--model.num_heads", "2"),
    *("--data.vocab_size", "400", "--batch-tokens", "512", "--precision", "float32"),
    *("--max-steps", "5", "--training.validate_every", "1", "--training.validation_lines", "1"),
    *("--device", "cpu"),
)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small text, from which stubs take what the network would give."""
    (tmp_path / "train-parts").mkdir()
    phrases = make_pairs("en", "de", 300, seed=1)
    for side, language in enumerate(("eng", "deu"), start=1):
        text = "".join(phrase[side] + "\n" for phrase in phrases.train)
        part = tmp_path / "train-parts" / f"phrases.{language}.gz"
        part.write_bytes(gzip.compress(text.encode()))
    short = sorted(phrases.test, key=lambda phrase: len(phrase[1]))
    for name, lines in (("wmt13", short[:7]), ("full", short[7:18])):
        for side, ending in enumerate(("src", "ref"), start=1):
            text = "".join(phrase[side] + "\n" for phrase in lines)
            (tmp_path / f"{name}.{ending}").write_text(text, "utf-8")
    (tmp_path / "bin").mkdir()
    for name, line in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    return tmp_path


def run_script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(RECIPES / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commands_given(stand_in: Path) -> list[list[str]]:
    """Returns the arguments of each `dragoman` that a script called."""
    commands = (stand_in / "commands").read_text("utf-8").split("\n\n")
    return [command.split("\n") for command in commands[:-1]]


def test_both_scripts_lead_from_nothing_to_the_papers_metric(
    stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = stand_in / "data", stand_in / "model"
    data.mkdir()
    assert run_script("data.sh", "de", data).returncode == 0
    finished = run_script("run.sh", "de", "base", data, model, *TINY)
    assert (finished.returncode, finished.stdout) == (0, "valid\ntest\n")
    for command in commands_given(stand_in):  # in this process, where torch is loaded already
        assert main(command) == 0, command
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["paper", "bleu", "chrf"] * 2
    assert "+compounds" in shown[0]
    config = ModelFolder(model).read_config()
    assert (config.training.accumulation, config.data.target_language) == (8, "de")
    assert len((model / "run" / "test.de").read_text("utf-8").splitlines()) == 11


def test_french_asks_for_five_corpora_and_averages_twenty_checkpoints(stand_in: Path) -> None:
    (stand_in / "train-parts" / "phrases.deu.gz").rename(
        stand_in / "train-parts" / "phrases.fra.gz"
    )
    data = stand_in / "data"
    data.mkdir()
    assert run_script("data.sh", "fr", data).returncode == 0
    asked = (stand_in / "asked").read_text("utf-8").split()
    assert asked[:3] == ["get", "--langs", "eng-fra"]
    assert len([part for part in asked if part.endswith(("-fra-eng", "-eng-fra"))]) == 5
    assert run_script("run.sh", "fr", "big", data, "model").returncode == 0
    train, average, *_ = commands_given(stand_in)
    assert train[:6] == ["train", "model", "--resume", "--preset", "paper-big", "--config"]
    assert average == ["average", "model", "--last", "20"]


@pytest.mark.parametrize(
    ("target", "size", "dropout", "pieces", "steps", "averaged"),
    [
        ("de", "base", 0.1, 37000, 100_000, 5),
        ("de", "big", 0.3, 37000, 300_000, 20),
        ("fr", "base", 0.1, 32000, 100_000, 5),
        ("fr", "big", 0.1, 32000, 300_000, 20),
    ],
)
def test_a_recipe_over_its_preset_is_the_papers(
    target: str, size: str, dropout: float, pieces: int, steps: int, averaged: int
) -> None:
    config = build_config(
        preset_settings(f"paper-{size}"), read_settings(RECIPES / f"en-{target}.toml")
    )
    assert config.model.dropout == config.model.embedding_dropout == dropout
    assert (config.data.vocab_size, config.data.joint_vocabulary) == (pieces, True)
    assert (config.training.max_steps, config.training.batch_tokens) == (steps, 25_000)
    assert (config.training.average_last, config.training.keep_checkpoints) == (averaged, averaged)


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("data.sh", ("it", "data"), "error: the target is it, accepted is de or fr"),
        ("run.sh", ("it", "base", "data", "model"), "error: the target is it, accepted is"),
        ("run.sh", ("de", "huge", "data", "model"), "error: the size is huge, accepted is base"),
    ],
)
def test_what_the_paper_has_not_is_refused(
    stand_in: Path, script: str, arguments: tuple[str, ...], said: str
) -> None:
    finished = run_script(script, *arguments)
    assert finished.returncode == 2
    assert finished.stderr.startswith(said)


def test_published_scores_are_always_named_as_such() -> None:
    for line in (RECIPES / "README.md").read_text("utf-8").splitlines():
        for score in ("27.3", "28.4", "38.1", "41.8"):
            assert line.count(score) == line.count(f"{score}, published, not run here")
