from __future__ import annotations

import dataclasses
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import CorpusConfig, DataConfig, InputError
from dragoman.data.cleaning import Cleaner
from dragoman.data.selection import Pair, Selection, hash_pair, select_pairs

DISTINCT = [(f"a {i}", f"b {i}") for i in range(1009)]
SIDE = st.sampled_from(["", " ", "a", "b", "ab", "1 a"])


def select(
    folder: Path, corpora: list[list[Pair]], hold_out: bool = False, **changes: Any
) -> tuple[Selection, dict[str, int]]:
    """Writes corpora into files and returns what is selected of them, and the counts."""
    names = [folder / f"{i}.tsv" for i in range(len(corpora))]
    for name, pairs in zip(names, corpora, strict=True):
        name.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    config = DataConfig(corpora=tuple(CorpusConfig(pairs=(str(name),)) for name in names))
    config = dataclasses.replace(config, **changes)
    cleaner = Cleaner(config)
    selection = select_pairs(config, cleaner, folder, hold_out)
    assert sorted(folder.iterdir()) == sorted(names)
    return selection, cleaner.counts


def training(selection: Selection) -> list[list[Pair]]:
    return [list(part) for part in selection.read_training()]


@given(st.lists(st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=11), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_the_first_of_equal_pairs_stays_whichever_corpus_it_is_in(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[list[Pair]]
) -> None:
    selection, counts = select(tmp_path_factory.mktemp("s"), corpora)
    sound = [[(s, t) for s, t in pairs if s.strip() and t.strip() and s != t] for pairs in corpora]
    owners: dict[Pair, int] = {}
    for number, pairs in enumerate(sound):
        for pair in pairs:
            owners.setdefault(pair, number)
    expected = [[p for p, owner in owners.items() if owner == i] for i in range(len(corpora))]
    assert training(selection) == expected
    assert selection.count_training() == [len(pairs) for pairs in expected]
    assert counts["duplicate"] == sum(map(len, sound)) - len(owners)


def test_hashes_that_went_to_disk_decide_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = [DISTINCT, DISTINCT[::-7]]
    in_memory, _ = select(tmp_path, corpora, hold_out=True)
    monkeypatch.setattr("dragoman.data.selection._BUFFERED_BYTES", 17)
    on_disk, counts = select(tmp_path, corpora, hold_out=True)
    assert on_disk == in_memory
    assert counts["duplicate"] == len(corpora[1])


def test_repeated_pairs_stay_where_duplicates_are_wanted(tmp_path: Path) -> None:
    corpora = [DISTINCT[:5] * 2, DISTINCT[3:7]]
    selection, counts = select(tmp_path, corpora, drop_duplicates=False)
    assert training(selection) == corpora
    assert counts["duplicate"] == 0


def test_the_pairs_with_the_smallest_hashes_are_held_out(tmp_path: Path) -> None:
    corpora = [DISTINCT[:307], DISTINCT[307:]]
    by_hash = sorted(DISTINCT, key=lambda pair: hash_pair(*pair))
    for share, most, count in ((0.05, 7, 7), (0.5, 10_000, None), (0.0001, 7, 1)):
        selection, counts = select(
            tmp_path, corpora, hold_out=True, held_out_share=share, held_out_most=most
        )
        held_out = selection.read_held_out()
        assert counts["held out"] == len(held_out) == (count or len(held_out))
        assert held_out == [pair for pair in DISTINCT if pair in by_hash[: len(held_out)]]
        assert sorted(held_out + list(chain(*training(selection)))) == sorted(DISTINCT)
        if count is None:
            assert len(held_out) == pytest.approx(share * len(DISTINCT), rel=0.15)


@pytest.mark.parametrize("drop_duplicates", [True, False])
def test_no_copy_of_a_held_out_pair_is_trained_on(tmp_path: Path, drop_duplicates: bool) -> None:
    selection, _ = select(
        tmp_path,
        [DISTINCT * 2, DISTINCT],
        hold_out=True,
        held_out_share=0.1,
        held_out_most=13,
        drop_duplicates=drop_duplicates,
    )
    held_out = selection.read_held_out()
    assert len(set(held_out)) == len(held_out) == 13
    assert not set(held_out) & set(chain(*training(selection)))


def test_nothing_is_held_out_where_it_is_not_wanted(tmp_path: Path) -> None:
    selection, counts = select(tmp_path, [DISTINCT], held_out_share=0.5)
    assert (selection.read_held_out(), counts["held out"]) == ([], 0)


def test_a_hash_tells_both_sides_and_where_they_meet() -> None:
    pairs = [("a", "bc"), ("ab", "c"), ("1 a", "b"), ("a", "b"), ("\ud800", ""), ("", "\ud800")]
    assert len({hash_pair(*pair) for pair in pairs}) == len(pairs)
    assert hash_pair("a", "b") == hash_pair("a", "b")


def test_a_broken_line_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tb\n\xff\tc\n")
    config = DataConfig(pairs=(str(tmp_path / "a.tsv"),))
    with pytest.raises(InputError, match=r"a\.tsv:2: byte 1"):
        select_pairs(config, Cleaner(config), tmp_path, hold_out=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]
