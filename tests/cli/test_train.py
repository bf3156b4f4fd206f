from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.checkpoint import ModelFolder
from dragoman.config import Config
from dragoman.presets import PRESETS
from dragoman.settings import build_config

Text = tuple[Path, Path]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, dict[str, Any]]]:
    """What the training would be called with; it isn't."""
    calls: list[tuple[Config, dict[str, Any]]] = []

    def train(path: Path, config: Config, **options: Any) -> None:
        calls.append((config, options))

    monkeypatch.setattr("dragoman.training.loop.train", train)
    return calls


def test_a_flag_beats_the_file_and_the_file_the_preset(
    run: Any, asked: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'preset = "tiny"\n[data]\npairs = "file.tsv"\n'
        "[model]\nd_model = 64\nd_ff = 48\n[training]\nmax_steps = 7\n"
    )
    assert run("train", tmp_path / "m", "--config", file, "--model.d_ff=40").status == 0
    config = asked[0][0]
    assert (config.model.d_ff, config.model.d_model, config.training.max_steps) == (40, 64, 7)
    assert config.training.clip_norm == 25.0  # of the preset
    assert config.training.adam_beta2 == 0.98  # the default
    assert config.data.pairs == ("file.tsv",)


def test_a_preset_given_by_flag_beats_the_one_of_the_file(
    run: Any, asked: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text('preset = "tiny"\n')
    run("train", "m", "--config", tmp_path / "f.toml", "--preset", "paper-big")
    assert asked[0][0].model.d_model == 1024


def test_small_is_the_default_preset(run: Any, asked: list[Any]) -> None:
    run("train", "m", "--pairs", "a.tsv", "b.jsonl", "--max-hours", "1.5", "--seed", "3")
    config = asked[0][0]
    assert (config.model.d_model, config.model.num_encoder_layers) == (256, 3)
    assert config.data.pairs == ("a.tsv", "b.jsonl")
    assert (config.training.max_hours, config.training.seed) == (1.5, 3)


def test_files_given_by_flag_replace_those_of_the_file_whatever_their_kind(
    run: Any, asked: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text(
        '[data]\npairs = "p.tsv"\nvalid_source="s"\nvalid_target="t"\n'
    )
    files = ("--source", "a", "b", "--target", "c", "d", "--valid-pairs", "v.tsv")
    run("train", "m", "--config", tmp_path / "f.toml", *files)
    data = asked[0][0].data
    assert (data.source, data.target, data.pairs) == (("a", "b"), ("c", "d"), ())
    assert (data.valid_source, data.valid_target, data.valid_pairs) == ((), (), ("v.tsv",))


def test_a_model_from_another_has_its_architecture_and_languages(
    run: Any, asked: list[Any], model: Path
) -> None:
    run("train", "m", "--pairs", "p.tsv", "--from", model)
    config, options = asked[0]
    stored = ModelFolder(model).read_config()
    assert config.model == stored.model
    assert config.data.target_language == "zh"
    of_preset = build_config(PRESETS["small"].settings)
    assert config.training.max_steps == of_preset.training.max_steps  # not of the other model
    assert options["from_model"] == str(model)


def test_a_run_tells_what_it_read_how_it_goes_and_what_to_do_next(
    run: Any, text: Text, settings: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "m"
    finished = run("train", path, "--source", text[0], "--target", text[1], *settings)
    assert (finished.status, finished.out) == (0, "")
    for shown in (
        "read 200 pairs, kept 1",
        "held out from the text, for none was given",
        "step 1/3  loss ",
        "validation BLEU ",
        "  reference   ",
        "done: reached training.max_steps (3)",
        f"dragoman translate {path}",
    ):
        assert shown in finished.err


def test_resume_needs_no_more_than_the_model_and_goes_on(
    run: Any, model: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(model, tmp_path / "m")
    finished = run("train", path, "--resume", "--max-steps", "4")
    assert finished.status == 0
    assert "going on after step 3" in finished.err
    assert [step for step, _ in ModelFolder(path).checkpoints()][-1] == 4


def test_resume_with_the_same_command_whatever_it_says_of_shared_matrices(
    run: Any, text: Text, settings: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "more").write_text(text[1].read_text("utf-8").replace("a", "ä"), "utf-8")
    files = ("--source", text[0], "--target", tmp_path / "more", *settings)
    apart = ("--data.joint_vocabulary", "false", "--model.tie", "source-target-output")
    assert run("train", tmp_path / "m", *files, *apart).status == 0
    assert run("train", tmp_path / "m", *files, *apart, "--resume").status == 0


def test_resume_with_the_same_command_finds_nothing_left_to_do(
    run: Any, model: Path, text: Text, settings: tuple[str, ...], tmp_path: Path
) -> None:
    path = shutil.copytree(model, tmp_path / "m")
    files = ("--source", text[0], "--target", text[1], "--target-language", "zh")
    assert run("train", path, "--resume", *files, *settings).status == 0


def write(folder: Path, **files: bytes) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


BAD_INPUT = {
    "unequal files": ("--source two --target three", "two has 2 lines and three has 3"),
    "an empty file": ("--source empty --target empty", "empty: an empty file"),
    "no file": ("--source nope --target two", "nope: no such file"),
    "not UTF-8": ("--source latin --target two", "latin:2: byte 3 of the line is 0xe9, accepted"),
    "no pairs": ("--pairs two", "two: not a name of pairs, accepted is .tsv or .jsonl"),
    "nothing left": ("--source two --target two", "no pair is left of the 2 read: identical 2"),
    "one side": ("--source two", "data.source is given without data.target"),
    "no text": ("", "no training text is given"),
    "a wrong key": ("--config wrong.toml", "model.dmodel is not a setting"),
    "a wrong section": ("--config section.toml", "modelx is not a section of the settings"),
    "no TOML": ("--config two", "two: not a TOML file"),
    "no file of settings": ("--config nope.toml", "nope.toml: no such file"),
    "a folder for settings": ("--config .", ".: Is a directory"),
    "a newer format": ("--config newer.toml", "newer.toml: format version 99, accepted is"),
    "an unknown preset": ("--config preset.toml", "preset smalll is unknown, accepted is one of"),
    "no number": ("--max-steps few", "training.max_steps is 'few', accepted is a whole number"),
    "impossible heads": ("--model.num_heads 3", "model.d_model is 256, accepted is a multiple of"),
    "impossible rate": ("--model.dropout 1", "model.dropout is 1.0, accepted is 0 or more and"),
    "a small budget": (
        "--source long --target three --valid-pairs good.tsv --batch-tokens 20",
        "the longest sentence has 32 tokens, training.batch_tokens is 20, accepted is at least",
    ),
    "no parent": ("--pairs good.tsv --from nope", "nope: no such model"),
    "a parent that is none": ("--pairs good.tsv --from .", ".: not a model, for it has no config"),
    "no tokenizer": (
        "--pairs good.tsv --tokenizer two",
        "data.tokenizer: two: not a SentencePiece model",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gives_one_line_and_leaves_nothing_behind(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, two=b"a b\nc d\n", three=b"a\nb\nc\n", empty=b"", latin=b"ab\ncd\xe9\n")
    write(tmp_path, long=b"a\nb\n" + b"xyz " * 30 + b"\n")
    write(tmp_path, **{"wrong.toml": b"[model]\ndmodel = 8\n", "section.toml": b"[modelx]\n"})
    write(
        tmp_path, **{"newer.toml": b"format_version = 99\n", "preset.toml": b'preset = "smalll"\n'}
    )
    write(tmp_path, **{"good.tsv": b"".join(b"s%d\tt%d\n" % (i, i) for i in range(300))})
    before = sorted(tmp_path.iterdir())
    line, error = BAD_INPUT[case]
    finished = run("train", "m", *line.split(), "--device", "cpu", "--data.max_length_ratio", "0")
    assert finished.status == 2
    assert finished.error.startswith(f"error: {error}")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("file", "hint"), [("[model]\ndmodel = 8\n", "model.d_model"), ("[modelx]\n", "model")]
)
def test_a_misspelt_key_of_a_file_names_the_nearest_right_one(
    run: Any, tmp_path: Path, file: str, hint: str
) -> None:
    (tmp_path / "f.toml").write_text(file)
    finished = run("train", tmp_path / "m", "--config", tmp_path / "f.toml")
    assert f"hint: did you mean {hint}?" in finished.error


def test_an_existing_model_is_never_overwritten(run: Any, model: Path, text: Text) -> None:
    before = (model / "weights.safetensors").read_bytes()
    finished = run("train", model, "--source", text[0], "--target", text[1])
    assert finished.status == 2
    assert finished.error.startswith(f"error: {model} exists already\nhint: ")
    assert (model / "weights.safetensors").read_bytes() == before


def test_a_model_goes_on_with_its_own_tokenizer_and_no_other(
    run: Any, model: Path, text: Text, tmp_path: Path
) -> None:
    other = Path(__file__).parents[1] / "models" / "format-1" / "tokenizer.model"
    given = ("--source", text[0], "--target", text[1], "--from", model)
    finished = run("train", tmp_path / "m", *given, "--tokenizer", other)
    assert finished.status == 2
    assert f"data.tokenizer is {other}, but {model} has another tokenizer" in finished.error
    assert not (tmp_path / "m").exists()


def test_what_differs_from_the_preset_is_said_in_a_line(run: Any, asked: list[Any]) -> None:
    given = ("--preset", "paper-base", "--batch-tokens", 4096, "--model.num_heads", 4)
    finished = run("train", "m", "--pairs", "a.tsv", *given)
    line = "unlike preset paper-base: model.num_heads 4 (8), training.batch_tokens 4096 (25000)"
    assert line in finished.err.splitlines()
    assert "unlike" not in run("train", "m", "--pairs", "a.tsv", "--seed", 5).err


def test_resume_of_a_folder_that_is_no_model_is_refused(run: Any, tmp_path: Path) -> None:
    finished = run("train", tmp_path, "--resume")
    assert finished.status == 2
    assert finished.error.startswith(f"error: {tmp_path}: not a model")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("command", ["train m --pairs p.tsv", "translate MODEL"])
def test_cuda_without_a_device_is_refused(run: Any, model: Path, command: str) -> None:
    finished = run(*command.replace("MODEL", str(model)).split(), "--device", "cuda")
    assert finished.status == 2
    assert finished.error.startswith("error: --device is cuda, but torch finds no CUDA device here")
