"""Whatever a file or a folder holds: done, or one line of error, and as many lines out as in.

`DRAGOMAN_CASES=100 pytest tests/cli/test_robustness.py` tries a hundred times as much.
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dragoman import InputError, load

CASES = int(os.environ.get("DRAGOMAN_CASES", "1"))
QUICK = ("--beam-size", 1, "--max-output-extra", 1, "--device", "cpu")
ODD = (
    *("\r", "\0", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff", "\t", " ", "\u3000"),
    *("</s>", "<unk>", "<0x0A>", "\u2581", "\u2585", "␛", "␛1", "e\u0301", "漢", "\U0010ffff"),
    *('{"source": "a", "target": "b"}', "[model]", "d_model = 3", "a b c", "=", '"', "\\ud800"),
)  # fmt: skip


def odd_text(chance: random.Random) -> str:
    """Returns a line out of what readers of text are known to stumble over."""
    odd = (chance.choice([*ODD, chr(chance.randrange(0xD800))]) for _ in range(chance.randrange(9)))
    return "".join(odd).replace("\n", "")


def odd_bytes(chance: random.Random) -> bytes:
    """Returns lines of such text, or noise that is mostly no UTF-8."""
    if chance.random() < 0.5:
        return chance.randbytes(chance.choice((0, 1, 7, 97)))
    return "\n".join(odd_text(chance) for _ in range(chance.choice((1, 2, 11)))).encode()


def require_promises_kept(finished: Any) -> None:
    """Fails unless a command was done, or refused its input by one line."""
    assert finished.status in (0, 2), finished.err
    assert finished.status == 0 or finished.error


@pytest.mark.parametrize("form", ["text", "jsonl"])
@pytest.mark.parametrize("seed", range(2 * CASES))
def test_any_lines_give_as_many_translations(run: Any, model: Path, seed: int, form: str) -> None:
    chance = random.Random(seed)
    lines = "".join(odd_text(chance) + "\n" for _ in range(53)).encode()
    finished = run("translate", model, *QUICK, "--format", form, stdin=lines)
    assert (finished.status, finished.out.count("\n")) == (0, 53)


@pytest.mark.parametrize(
    "command",
    [
        "translate MODEL F --beam-size 1 --max-output-extra 1",
        "score MODEL --source F --target F",
        "evaluate --hypotheses F --reference F --metrics bleu chrf ter paper multi-bleu-lc",
        "compare F F --reference F --samples 2",
        "train NEW --config F --max-steps 1",
        "train NEW --max-steps 1 --source F --target F --tokenizer F",
        "train NEW --max-steps 1 --pairs F.tsv",
        "train NEW --max-steps 1 --pairs F.jsonl.gz",
        "translate MODEL F.zst",
    ],
)
@pytest.mark.parametrize("seed", range(3 * CASES))
def test_any_file_is_read_or_refused(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    content = odd_bytes(random.Random(f"{seed} {command}"))
    for name in ("F", "F.tsv", "F.jsonl.gz", "F.zst"):
        Path(name).write_bytes(content)
    finished = run(*command.replace("MODEL", str(model)).split())
    require_promises_kept(finished)
    assert not Path("NEW").exists() or finished.status == 0


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("seed", range(11 * CASES))
def test_damaged_compressed_files_are_refused_or_sound_again(
    run: Any, tmp_path: Path, compress: Callable[[bytes], bytes], seed: int
) -> None:
    chance = random.Random(seed)
    content = compress(b"a b c\n" * 1009)
    path = tmp_path / ("f.gz" if compress is gzip.compress else "f.zst")
    path.write_bytes(content)
    chance.choice([cut, flip, prepend])(path, chance)
    require_promises_kept(
        run("evaluate", "--hypotheses", path, "--reference", path, "--metrics", "chrf")
    )


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 2, 7))):
        content[chance.randrange(min(len(content), 499))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def prepend(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(7) + path.read_bytes())


def fill(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(997))


def empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def make_a_folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def link_to_itself(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def swap(path: Path, chance: random.Random) -> None:
    others = [each for each in path.parent.iterdir() if each.is_file() and each != path]
    shutil.copy(chance.choice(others), path)


DAMAGES = (cut, flip, prepend, fill, empty, delete, make_a_folder, link_to_itself, swap)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "file", ["config.toml", "tokenizer.model", "weights.safetensors", "card.md"]
)
@pytest.mark.parametrize("seed", range(CASES))
def test_a_damaged_model_is_refused_or_sound(
    run: Any,
    model: Path,
    text: tuple[Path, Path],
    tmp_path: Path,
    file: str,
    damage: Any,
    seed: int,
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("run")))
    damage(copy / file, random.Random(f"{seed} {file}"))
    lines = tmp_path / "lines"
    lines.write_bytes(b"a b\n\nc\n")

    translated = run("translate", copy, *QUICK, stdin=lines.read_bytes())
    require_promises_kept(translated)
    assert translated.out.count("\n") == (3 if translated.status == 0 else 0)

    evaluated = run("evaluate", copy, "--source", lines, "--reference", lines, "--device", "cpu")
    require_promises_kept(evaluated)
    assert evaluated.status == translated.status

    fine_tune = ("--from", copy, "--max-steps", 1, "--batch-tokens", 128, "--device", "cpu")
    trained = run("train", tmp_path / "new", *fine_tune, "--source", text[0], "--target", text[1])
    require_promises_kept(trained)
    assert (tmp_path / "new").exists() == (trained.status == 0)

    if translated.status == 0:
        assert len(load(copy, device="cpu").translate(["a b", "", "c"])) == 3
    else:
        with pytest.raises(InputError, match=r"\A[^\n]+\Z"):
            load(copy, device="cpu").translate(["a b", "", "c"])


@pytest.mark.parametrize("damage", [cut, prepend, fill, empty, delete, make_a_folder])
@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_run_does_not_go_on_from_a_damaged_checkpoint(
    run: Any, model: Path, tmp_path: Path, file: str, damage: Any
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "m"))
    damage(copy / "run" / "checkpoints" / "step-3" / file, random.Random(file))
    finished = run("train", copy, "--resume", "--max-steps", 4, "--device", "cpu")
    assert finished.status == 2
    assert file in finished.error


@pytest.mark.parametrize("damage", [flip, fill])
def test_the_average_of_a_model_does_not_need_a_sound_card(
    run: Any, model: Path, tmp_path: Path, damage: Any
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "m"))
    damage(copy / "card.md", random.Random(1))
    assert run("average", copy).status == 0
    assert "The weights were replaced" in (copy / "card.md").read_text("utf-8")
