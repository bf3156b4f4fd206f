"""A small trained model, and the command line run in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.data.tasks import make_task

SETTINGS = (
    *("--model.num_encoder_layers", "1", "--model.num_decoder_layers", "1"),
    *("--model.d_model", "16", "--model.d_ff", "32", "--model.num_heads", "2"),
    *("--data.vocab_size", "300", "--data.drop_identical", "false", "--data.held_out_share", "0.1"),
    *("--batch-tokens", "512", "--max-steps", "3", "--precision", "float32", "--device", "cpu"),
    *("--training.log_every", "1", "--training.validate_every", "1"),
    *("--training.validation_lines", "5"),
)


@dataclass
class Finished:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a mistake gives, a hint aside."""
        lines = self.err.splitlines()
        [error] = [line for line in lines if line.startswith("error: ")]
        rest = lines[lines.index(error) + 1 :]
        assert all(line.startswith("hint: ") for line in rest)
        assert len(rest) <= 1
        assert "Traceback" not in self.err
        return "\n".join([error, *rest])


Run = Callable[..., Finished]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs the command line: run("translate", model, stdin=b"a\\n")."""

    def run_command(*arguments: object, stdin: bytes = b"") -> Finished:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Finished(status, *capsys.readouterr())

    return run_command


@pytest.fixture(scope="session")
def settings() -> tuple[str, ...]:
    return SETTINGS


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two parallel files: letters, and the same reversed."""
    folder = tmp_path_factory.mktemp("text")
    pairs = make_task("reverse", 200, 2, 5, 8, seed=1)
    for side, name in enumerate(("source", "target")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), "utf-8")
    return folder / "source", folder / "target"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, text: tuple[Path, Path]) -> Path:
    path = tmp_path_factory.mktemp("models") / "reverse"
    files = ("--source", str(text[0]), "--target", str(text[1]), "--target-language", "zh")
    assert main(["train", str(path), *files, *SETTINGS]) == 0
    return path
