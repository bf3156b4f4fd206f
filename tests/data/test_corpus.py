from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import InputError
from dragoman.data.corpus import read_lines, read_pairs

NOT_LINE_ENDS = ("\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r", "\x00")


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def pairs_of(*files: Path) -> list[tuple[str, str]]:
    return list(read_pairs([], [], [str(file) for file in files]))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, suffix: str) -> None:
    lines = [f"a{character}b" for character in NOT_LINE_ENDS]
    path = write(tmp_path / f"text{suffix}", "\n".join(lines))
    assert list(read_lines(path)) == lines


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
@settings(max_examples=50, deadline=None)
def test_lines_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    lines = [line.removesuffix("\r").removeprefix("\ufeff") for line in lines]
    path = write(tmp_path_factory.mktemp("lines") / "text", "".join(f"{x}\n" for x in lines))
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in lines]


def test_a_byte_order_mark_and_carriage_returns_at_line_ends_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "\ufeffa\r\n\ufeffb\r\r\n\r\nc\r")
    assert list(read_lines(path)) == ["a", "\ufeffb\r", "", "c"]


def test_a_line_longer_than_a_read_comes_back_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "text.zst", "a" * 3_000_017 + "\nb")
    assert [len(line) for line in read_lines(path)] == [3_000_017, 1]


def test_compressed_parts_one_after_the_other_are_one_file(tmp_path: Path) -> None:
    for name, compress in (("a.gz", gzip.compress), ("a.zst", zstandard.compress)):
        write_raw = tmp_path / name
        write_raw.write_bytes(compress(b"a\nb") + compress(b"c\n"))
        assert list(read_lines(write_raw)) == ["a", "bc"]


def test_a_byte_that_is_not_utf_8_is_named_with_file_line_and_place(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b"good\n\xc3\xa9 \xff\n")
    with pytest.raises(InputError, match=r"text:2: byte 4 of the line is 0xff"):
        list(read_lines(path))


@pytest.mark.parametrize(
    "name", ["missing", "folder", "n" * 300, "junk.gz", "junk.zst", "cut.gz", "cut.zst"]
)
def test_a_file_that_cannot_be_read_is_one_line_of_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    noise = os.urandom(1009).hex()
    for suffix in (".gz", ".zst"):
        (tmp_path / f"junk{suffix}").write_bytes(b"this is not compressed")
        cut = write(tmp_path / f"cut{suffix}", noise)
        cut.write_bytes(cut.read_bytes()[:-13])
    with pytest.raises(InputError, match=name) as caught:
        list(read_lines(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_that_breaks_off_says_after_which_line(
    tmp_path: Path, suffix: str
) -> None:
    path = write(
        tmp_path / f"cut{suffix}", "".join(f"{os.urandom(97).hex()}\n" for _ in range(20_011))
    )
    path.write_bytes(path.read_bytes()[:-50_021])
    read: list[str] = []
    with pytest.raises(InputError) as caught:
        read.extend(read_lines(path))
    assert f"not a sound {suffix} file after line {len(read):,}: " in str(caught.value)
    assert 10_007 < len(read) < 20_011


def test_odd_characters_do_not_shift_one_side_against_the_other(tmp_path: Path) -> None:
    source = write(tmp_path / "s", "a\u2028b\x0bc\nd\u0085e\rf\ng\x0c\x1ch\n")
    unix = write(tmp_path / "t", "1\n2\n3\n")
    windows = write(tmp_path / "w", "1\r\n2\r\n3\r\n")
    pairs = list(read_pairs([str(source)], [str(unix)], []))
    assert [target for _, target in pairs] == ["1", "2", "3"]
    assert pairs == list(read_pairs([str(source)], [str(windows)], []))


def test_several_files_a_side_follow_one_another(tmp_path: Path) -> None:
    files = [str(write(tmp_path / name, f"{name}\n")) for name in ("a", "b", "c.gz", "d.zst")]
    assert list(read_pairs(files[::2], files[1::2], [])) == [("a", "b"), ("c.gz", "d.zst")]


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 7), (7, 3), (2, 3)])
def test_unequal_files_are_named_with_both_counts(
    tmp_path: Path, n_source: int, n_target: int
) -> None:
    source, target = (
        write(tmp_path / "s", "x\n" * n_source),
        write(tmp_path / "t", "y\n" * n_target),
    )
    with pytest.raises(InputError, match=f"s has {n_source} lines and .*t has {n_target}"):
        list(read_pairs([str(source)], [str(target)], []))


def test_pipes_are_read_as_files_are(tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(300_000))  # more than is read at once
    command = (
        "import sys; from dragoman.data.corpus import read_pairs\n"
        "pairs = list(read_pairs(sys.argv[1:2], sys.argv[2:3], []))\n"
        "print(len(pairs), pairs[0], pairs[-1])"
    )
    path = write(tmp_path / "text", text)
    shell = f'{sys.executable} -c "$0" <(cat {path}) <(cat {path})'
    found = subprocess.run(["bash", "-c", shell, command], capture_output=True, text=True)
    assert found.stdout == "300000 ('0', '0') ('299999', '299999')\n", found.stderr


def test_an_empty_file_is_refused_by_name(tmp_path: Path) -> None:
    full, empty = write(tmp_path / "full", "x\n"), write(tmp_path / "empty", "")
    for files in ((full, empty), (empty, full), (empty, empty)):
        with pytest.raises(InputError, match="empty: an empty file"):
            list(read_pairs([str(files[0])], [str(files[1])], []))
    with pytest.raises(InputError, match="empty file"):
        pairs_of(write(tmp_path / "x.tsv", ""))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_tsv_and_jsonl_hold_the_same_pairs(tmp_path: Path, suffix: str) -> None:
    pairs = [("a\u2028", "ä"), ("", "b c")]
    tsv = "".join(f"{s}\t{t}\tby somebody\tsomewhere\n" for s, t in pairs)
    jsonl = "".join(json.dumps({"source": s, "target": t, "id": 5}) + "\n" for s, t in pairs)
    assert pairs_of(write(tmp_path / f"a.tsv{suffix}", tsv)) == pairs
    assert pairs_of(write(tmp_path / f"a.jsonl{suffix}", jsonl)) == pairs


@pytest.mark.parametrize(
    "line",
    [
        *("", "no json", "[1]", "[" * 99_999, '{"source": "a"}', '{"source": "a", "target": 5}'),
        r'{"source": "\ud800", "target": "b"}',
    ],
)
def test_a_json_line_that_is_no_pair_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    with pytest.raises(InputError, match=r"a\.jsonl:2: "):
        pairs_of(path)


def test_a_tsv_line_without_a_tab_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tsv:2: no tab"):
        pairs_of(write(tmp_path / "a.tsv", "a\tb\nc d\n"))


def test_pairs_are_told_by_the_extension(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.txt\.gz: .*\.tsv or \.jsonl"):
        pairs_of(write(tmp_path / "a.txt.gz", "a\tb\n"))
