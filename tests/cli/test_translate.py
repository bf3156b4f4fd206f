from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.decoding.translator import Translation, Translator

ODD = "a\u2028b\u0085c\x0bd\x0ce\rf\x1c\0g"
"""Every character that `str.splitlines` takes for a line's end, and NUL."""


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every translation be its source."""

    def translate(self: Translator, texts: list[str], *_: Any) -> list[Translation]:
        return [Translation(text, 0.0, 0.0, []) for text in texts]

    monkeypatch.setattr(Translator, "translate", translate)


def test_empty_lines_stay_empty_and_every_line_has_its_own(run: Any, model: Path) -> None:
    finished = run("translate", model, stdin=b"a b\n\n\nb\n")
    assert finished.status == 0
    assert finished.out.count("\n") == 4
    assert finished.out.split("\n")[1:3] == ["", ""]


@pytest.mark.usefixtures("echo")
def test_lines_end_at_newlines_and_nowhere_else(run: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(f"{ODD}\n{ODD}\r\nlast".encode())
    finished = run("translate", model, tmp_path / "text")
    assert finished.out.split("\n") == [ODD, ODD, "last", ""]
    assert run("translate", model, stdin=(tmp_path / "text").read_bytes()).out == finished.out


@pytest.mark.usefixtures("echo")
def test_the_file_may_stand_behind_the_options(run: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    assert run("translate", model, "--beam-size", 2, tmp_path / "text").out == "a b\n"
    finished = run("translate", model, "--beam-size", 2, tmp_path / "text", "more")
    assert finished.error.startswith("error: more: one argument too many")


def test_no_line_in_gives_no_line_out(run: Any, model: Path) -> None:
    assert run("translate", model).out == ""


def test_a_newline_inside_a_translation_does_not_make_two_lines(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Translation("one\ntwo", 0.0, 0.0, [])]
    monkeypatch.setattr(Translator, "translate", lambda *_: found)
    assert run("translate", model, stdin=b"x\n").out == "one two\n"
    finished = run("translate", model, "--format", "jsonl", stdin=b"x\n")
    assert json.loads(finished.out)["text"] == "one\ntwo"


def test_the_size_of_the_buffer_changes_nothing(run: Any, model: Path) -> None:
    lines = b"a b c\n\nb\nc d e f\na\n"
    at_once = run("translate", model, stdin=lines).out
    assert run("translate", model, "--buffer-lines", 2, stdin=lines).out == at_once


def test_a_closed_stdin_is_told(run: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.lines.sys", SimpleNamespace(stdin=None, stdout=sys.stdout))
    finished = run("translate", model)
    assert finished.error == "error: standard input is closed\nhint: give a FILE"


def test_each_buffer_is_written_before_the_next_is_read(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def translate(self: Translator, texts: list[str], *_: Any) -> list[Translation]:
        sizes.append(len(texts))
        return [Translation(text, 0.0, 0.0, []) for text in texts]

    monkeypatch.setattr(Translator, "translate", translate)
    finished = run("translate", model, "--buffer-lines", 2, stdin=b"a\nb\nc\nd\n\xff\n")
    assert sizes == [2, 2]
    assert finished.out == "a\nb\nc\nd\n"
    assert finished.error.startswith("error: standard input:5: byte 1 of the line is 0xff")


def test_the_lines_of_a_stream_before_one_that_is_no_text_are_translated(
    run: Any, model: Path
) -> None:
    finished = run("translate", model, stdin=b"a\nb\n\xff\nc\n")
    assert (finished.status, finished.out.count("\n")) == (2, 2)
    assert finished.error.startswith("error: standard input:3: byte 1 of the line is 0xff")


def test_jsonl_has_the_keys_that_the_help_names(run: Any, model: Path) -> None:
    options = ("--format", "jsonl", "--n-best", 3, "--alignment", "--max-output-extra", 5)
    finished = run("translate", model, *options, stdin=b"a b\n\n")
    full, empty = (json.loads(line) for line in finished.out.splitlines())
    keys = ["text", "score", "log_probability", "tokens", "flags", "alternatives", "alignment"]
    assert list(full) == list(empty) == keys
    assert [list(each) for each in full["alternatives"]] == [keys[:5], keys[:5]]
    assert {len(row) for row in full["alignment"]} == {3}  # a, b and EOS
    assert (empty["text"], empty["alternatives"], empty["alignment"]) == ("", [], None)


def test_what_is_cut_is_flagged_and_counted_at_the_end(run: Any, model: Path) -> None:
    options = ("--max-source-length", 5, "--max-output-extra", 0, "--max-output-factor", 0.2)
    lines = b"a b c d e f g h\na\n"
    finished = run("translate", model, *options, "--format", "jsonl", stdin=lines)
    long, short = (json.loads(line)["flags"] for line in finished.out.splitlines())
    assert "source-cut" in long
    assert "source-cut" not in short
    warning = "warning: cut 1 of the lines: longer than 5 tokens, or than the model takes\n"
    assert warning in finished.err


def test_flags_are_counted_in_a_line_each_and_change_no_exit_status(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [("long", "repeated"), ("unlikely",), (), ("unlikely", "cut")]
    found = [Translation("x", 0.0, 0.0, [], flags=each) for each in flags]
    monkeypatch.setattr(Translator, "translate", lambda *_: found)
    finished = run("translate", model, "--buffer-lines", 4, stdin=b"a\n" * 8)
    assert finished.status == 0
    assert finished.err.splitlines() == [
        "warning: 2 of the translations ended for want of room (--max-output-extra)",
        "warning: 2 of the translations are far longer than their source",
        "warning: 2 of the translations say the same over and over",
        "warning: 4 of the translations are improbable to the model itself",
    ]


@pytest.mark.parametrize("options", ["", "--beam-size 1", "--sample", "--ensemble MODEL"])
def test_every_translation_begins_with_its_prefix(
    run: Any, model: Path, tmp_path: Path, options: str
) -> None:
    (tmp_path / "prefixes").write_bytes(b"c d\n\n \xe2\x80\xa8x \nb\n")
    given = options.replace("MODEL", str(model)).split()
    buffers = ("--prefix-file", tmp_path / "prefixes", "--buffer-lines", 3)
    finished = run("translate", model, *given, *buffers, stdin=b"a b\na\nb c\n\n")
    lines = finished.out.split("\n")
    assert (finished.status, len(lines)) == (0, 5)
    assert lines[0].startswith("c d")
    assert lines[2].startswith(" \u2028x ")
    assert lines[3] == ""  # an empty line stays empty


@pytest.mark.parametrize("from_stdin", [True, False])
@pytest.mark.parametrize(
    ("prefixes", "shown", "shown_early"),
    [(b"a\n", "1 lines and the input more", 0), (b"a\n" * 5, "5 lines and the input 3", 3)],
)
def test_other_than_as_many_prefixes_as_lines_are_refused(
    run: Any,
    model: Path,
    tmp_path: Path,
    prefixes: bytes,
    shown: str,
    shown_early: int,
    from_stdin: bool,
) -> None:
    (tmp_path / "prefixes").write_bytes(prefixes)
    (tmp_path / "text").write_bytes(b"a\nb\nc\n")
    file, stdin = ((), b"a\nb\nc\n") if from_stdin else ((tmp_path / "text",), b"")
    finished = run(
        "translate", model, *file, "--prefix-file", tmp_path / "prefixes", "--ensemble", model,
        stdin=stdin,
    )  # fmt: skip
    if not from_stdin:  # both can be counted before anything is done
        shown, shown_early = shown.replace("more", "3"), 0
    assert finished.status == 2
    assert finished.error == f"error: --prefix-file has {shown}, accepted is as many in both"
    assert finished.out.count("\n") == shown_early


def test_an_ensemble_of_a_model_and_itself_translates_as_the_model(run: Any, model: Path) -> None:
    lines = b"a b c\nd\n"
    alone = run("translate", model, stdin=lines)
    together = run("translate", model, "--ensemble", model, model, stdin=lines)
    assert (together.status, together.out) == (0, alone.out)


def test_samples_depend_on_the_seed_and_not_on_the_buffer(run: Any, model: Path) -> None:
    options = ("--sample", "--max-output-extra", 7, "--format", "jsonl", "--n-best", 2)
    lines = b"a b\n" * 5
    samples = [
        [
            [json.loads(line)["text"], json.loads(line)["alternatives"][0]["text"]]
            for line in run("translate", model, *options, *more, stdin=lines).out.splitlines()
        ]
        for more in ((), ("--buffer-lines", 2, "--batch-tokens", 3), ("--seed", 2))
    ]
    assert samples[0] == samples[1] != samples[2]
    assert len({text for pair in samples[0] for text in pair}) > 5


COMMAND = "import sys; from dragoman.cli.main import main; sys.exit(main(sys.argv[1:]))"


def start(model: Path) -> subprocess.Popen[bytes]:
    options = ("--format", "jsonl", "--threads", "1")
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "translate", str(model), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_line_from_a_pipe_is_translated_before_the_next_comes(run: Any, model: Path) -> None:
    expected = [
        run("translate", model, "--format", "jsonl", stdin=line).out.encode()
        for line in (b"a b\n", b"c\n", b"d\n")
    ]
    with start(model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for sent, line in zip((b"a b\nc", b"\n", b"d\n"), expected, strict=True):
            process.stdin.write(sent)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_who_reads_our_output_may_leave_early(model: Path) -> None:
    with start(model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"b\n" * 7)
        process.stdin.close()
        assert process.stderr is not None
        errors = process.stderr.read()
    assert (process.returncode, errors) == (1, b"")


def test_output_goes_to_a_file_of_its_own(run: Any, model: Path, tmp_path: Path) -> None:
    finished = run("translate", model, "--output", tmp_path / "out", stdin=b"a\n\n")
    assert finished.out == ""
    assert (tmp_path / "out").read_text("utf-8").count("\n") == 2


def test_an_output_that_could_not_be_finished_is_not_there(
    run: Any, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_bytes(b"a\nb\xe9\n")
    (tmp_path / "out").write_text("what was there before")
    finished = run(
        "translate", model, tmp_path / "text", "--output", tmp_path / "out", "--buffer-lines", 1
    )
    assert finished.status == 2
    assert finished.error.startswith(f"error: {tmp_path / 'text'}:2: byte 2 of the line is 0xe9")
    assert (tmp_path / "out").read_text("utf-8") == "what was there before"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--n-best 2", "--n-best doesn't fit into plain text\nhint: use --format jsonl"),
        ("--alignment", "--alignment doesn't fit into plain text\nhint: use --format jsonl"),
        ("--n-best 9 --format jsonl", "decoding.n_best is 9, accepted is at most decoding.beam"),
        ("--beam-size 0", "decoding.beam_size is 0, accepted is a number above 0"),
        ("--beam-size x", "decoding.beam_size is 'x', accepted is a whole number"),
        ("--length-penalty-form gnm", "decoding.length_penalty_form is 'gnm', accepted is one of"),
        ("--top-k 3", "decoding.top_k is 3, accepted is 0 without decoding.sample"),
        ("--sample --top-p 0", "decoding.top_p is 0.0, accepted is above 0 and at most 1"),
        ("--sample --temperature 0", "decoding.temperature is 0.0, accepted is a number above 0"),
        ("--sample --seed -1", "decoding.seed is -1, accepted is from 0 to 2^64 - 1"),
        ("--coverage-penalty 1 --beam-size 1", "decoding.coverage_penalty is 1.0, accepted is 0"),
        (
            "--coverage-penalty 1 --sample",
            "decoding.coverage_penalty is 1.0, accepted is 0 without",
        ),
        ("--repetition-penalty 0", "decoding.repetition_penalty is 0.0, accepted is a number"),
        ("--prefix-file nope", "nope: no such file"),
        ("--ensemble nope", "nope: no such model"),
        ("--output nowhere/out", "nowhere/out: there is no folder nowhere"),
        ("--output .", ".: not a file, accepted is the name of one"),
        ("nope", "nope: no such file"),
    ],
)
def test_wrong_use_is_told(run: Any, model: Path, options: str, error: str) -> None:
    finished = run("translate", model, *options.split(), stdin=b"a\n")
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith(f"error: {error}")


@pytest.mark.parametrize("command", ["translate", "inspect", "average"])
def test_a_folder_that_is_no_model_is_refused(run: Any, tmp_path: Path, command: str) -> None:
    finished = run(command, tmp_path, stdin=b"a\n")
    assert finished.status == 2
    assert finished.error.startswith(f"error: {tmp_path}: not a model, for it has no config.toml")


def test_threads_are_set_for_the_whole_process(
    run: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", asked.append)
    monkeypatch.setattr("dragoman.kernels.process.tune_process", lambda frugal: None)
    assert (
        run("translate", model, "--threads", 3, "--precision", "float32", stdin=b"a\n").status == 0
    )
    assert asked == [3]
