from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.config import InputError
from dragoman.data.atomic import (
    held_alone,
    remove_abandoned,
    remove_leftovers,
    replacing,
    write_text,
)


def write_half(path: Path, error: BaseException) -> None:
    """Fails in the midst of writing a file."""
    with replacing(path) as partial:
        partial.write_text("half of the n", "utf-8")
        raise error


def test_a_file_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", "utf-8")
    with replacing(path) as partial:
        partial.write_text("new", "utf-8")
        assert path.read_text("utf-8") == "old"
    assert path.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", "utf-8")
    with pytest.raises(KeyboardInterrupt):
        write_half(path, KeyboardInterrupt())
    assert path.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_nothing_where_there_was_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full"):
        write_half(tmp_path / "file", OSError("disk full"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_takes_the_place_of_the_old_one_with_all_that_was_in_it(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with replacing(path) as partial:
        (partial / "deep").mkdir(parents=True)
        (partial / "deep" / "new").write_text("new", "utf-8")
    assert [each.relative_to(path).as_posix() for each in path.rglob("*")] == ["deep", "deep/new"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_writes_nothing_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", "utf-8")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text("utf-8") == "old"


def test_a_folder_that_can_not_be_put_in_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d" / "old").mkdir(parents=True)

    def fail(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "d") as partial:
        partial.mkdir()
    assert [each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*")] == ["d", "d/old"]


def test_text_is_written_as_utf_8_with_its_own_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "ü\u2028\n")
    assert (tmp_path / "file").read_bytes() == "ü\u2028\n".encode()


def test_what_a_kill_left_behind_is_found_and_nothing_else(tmp_path: Path) -> None:
    for name in (
        "run/.step-18",
        "run/.step-20.ab1_cd2e",
        ".weights.safetensors.00000000",
        "run/.kept",
        ".a.b",
    ):
        (tmp_path / name / "partial").mkdir(parents=True)
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob(".*")) == [".a.b", ".kept"]


def test_a_folder_that_was_out_of_the_way_is_put_back(tmp_path: Path) -> None:
    (tmp_path / ".step-20.ab1_cd2e" / "old").mkdir(parents=True)
    (tmp_path / ".step-20.ab1_cd2e" / "old" / "state.json").write_text("{}", "utf-8")
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["step-20", "state.json"]


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with held_alone(tmp_path):
        with pytest.raises(InputError, match="another process"), held_alone(tmp_path):
            pass
        with pytest.raises(InputError, match="another process"), held_alone(tmp_path):
            pass
    with held_alone(tmp_path):
        pass


def test_what_a_killed_process_left_goes_and_nothing_else(tmp_path: Path) -> None:
    model = tmp_path / "m"
    abandoned = tmp_path / ".m.a1b2c3_d"
    (abandoned / "m" / "run").mkdir(parents=True)
    others = [".m.settings/more", ".m.short/m", ".n.a1b2c3_d/n", ".m.a1b2c3_e"]
    for other in others:
        (tmp_path / other).mkdir(parents=True)
    with replacing(model) as partial:
        partial.mkdir()
        remove_abandoned(model)
        assert partial.exists()
        assert not abandoned.exists()
    assert all((tmp_path / other).exists() for other in others)
