from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.main import build_parser, main


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([name, "--help"] for name in ("train", "translate", "compare", "bench"))],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from dragoman.cli.main import main\n"
        f"try: main({arguments})\n"
        "except SystemExit: pass\n"
        "print({'torch', 'numpy', 'sacrebleu', 'matplotlib', 'rich', 'babel'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: dragoman")
    assert done.stdout.endswith("set()\n")


def test_the_help_of_train_stays_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 40
    assert "dragoman inspect PRESET" in shown


def test_every_command_has_a_line_in_the_help() -> None:
    shown = build_parser().format_help()
    names = "demo train translate score evaluate compare average inspect attend bench"
    for name in names.split():
        assert f"\n    {name} " in shown or f"\n    {name}\n" in shown


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("trainn m", "COMMAND is trainn, accepted is one of demo, train,", "did you mean train?"),
        ("train m --sorce f", "--sorce is not an option", "did you mean --source?"),
        ("train m --model.dmodel 8", "--model.dmodel is not", "did you mean --model.d_model?"),
        ("train m --model.dmodel=8", "--model.dmodel is not", "did you mean --model.d_model?"),
        ("translate m --beam 3", "--beam is not an option", "did you mean --beam-size?"),
        ("train m --preset smalll", "--preset is smalll, accepted is one of tiny, small", "small?"),
        ("translate m --device gpu", "--device is gpu, accepted is one of auto, cpu, cuda", ""),
        ("", "COMMAND: required, but not given", "see dragoman --help"),
        ("score m --source f", "--target: required, but not given", "see dragoman score --help"),
        ("translate m a b", "b: one argument too many", "see dragoman translate --help"),
        ("train m --source", "--source: expected at least one argument", "see dragoman train"),
        ("translate m --threads 0", "--threads: '0', accepted is a whole number of 1 or more", ""),
        ("translate m --buffer-lines x", "--buffer-lines: 'x', accepted is a whole number", ""),
    ],
)
def test_wrong_use_gives_one_line_that_says_what_is_right(
    run: Any, line: str, error: str, hint: str
) -> None:
    finished = run(*line.split())
    assert finished.status == 2
    assert finished.error.startswith(f"error: {error}")
    assert hint in finished.error
    assert finished.out == ""


def raise_from_inspect(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(arguments: object) -> None:
        raise error

    monkeypatch.setattr("dragoman.cli.inspect.run", fail)


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (BrokenPipeError(), 1, ""),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "error: x: No space left on"),
        (MemoryError(), 1, "error: not enough memory\nhint: a smaller --batch-tokens needs less\n"),
        (RuntimeError("CUDA out of memory. Tried"), 1, "error: not enough memory\n"),
    ],
)
def test_what_fails_at_run_time_gives_one_line_and_its_status(
    run: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, shown: str
) -> None:
    raise_from_inspect(monkeypatch, error)
    finished = run("inspect", "tiny")
    assert finished.status == status
    assert finished.err.startswith(shown)
    assert bool(finished.err) == bool(shown)


def test_a_fault_of_ours_is_not_hidden(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from_inspect(monkeypatch, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        run("inspect", "tiny")


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
def test_data_is_utf_8_whatever_the_locale_and_names_of_files_keep_their_bytes(
    tmp_path: Path,
) -> None:
    name = os.fsdecode(b"\xe9\xc3\xbc")
    score = '[{"name": "bleu", "value": 31.0, "signature": "nrefs:1", "details": {}}]'
    (tmp_path / name).write_text(score)
    finished = subprocess.run(
        [sys.executable, "-m", "dragoman", "compare", name, name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        capture_output=True,
        check=True,
    )
    assert finished.stdout.startswith(b"A: \xe9\xc3\xbc\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_stdout_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a b c d\n", "utf-8")
    code = "import sys; from dragoman.cli.main import main; sys.exit(main(sys.argv[1:]))"
    files = ("--hypotheses", "lines", "--reference", "lines", "--metrics", "chrf")
    with open("/dev/full", "w") as full:
        finished = subprocess.run(
            [sys.executable, "-c", code, "evaluate", *files],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (finished.returncode, finished.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_fault(closed: str) -> None:
    command = f"{sys.executable} -m dragoman lab list {closed}"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
