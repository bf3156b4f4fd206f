from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS, PAD, InputError
from dragoman.data.encoded import EncodedCorpus, Ids, pad_batch

PAIRS: list[tuple[list[int], list[int]]] = [([5, 7, 11], [13]), ([], [17, 19]), ([23], [])]
IDS = st.lists(st.integers(0, 69_999), max_size=7)


def rows_of(corpus: EncodedCorpus) -> list[tuple[list[int], list[int]]]:
    pairs = [corpus[i] for i in range(len(corpus))]
    return [(source.tolist(), target.tolist()) for source, target in pairs]


@given(st.lists(st.tuples(IDS, IDS), max_size=5))
@settings(max_examples=20, deadline=None)
def test_pairs_come_back_with_eos_at_their_ends(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[list[int], list[int]]]
) -> None:
    corpus = EncodedCorpus.write(tmp_path_factory.mktemp("e") / "encoded", [iter(pairs)], 70_000)
    expected = [([*source, EOS], [*target, EOS]) for source, target in pairs]
    assert rows_of(corpus) == expected
    assert corpus.lengths.tolist() == [[len(source), len(target)] for source, target in expected]


@pytest.mark.parametrize(("vocab_size", "width"), [(65_536, 2), (65_537, 4)])
def test_ids_are_stored_as_narrow_as_the_vocabulary_allows(
    tmp_path: Path, vocab_size: int, width: int
) -> None:
    corpus = EncodedCorpus.write(tmp_path / "encoded", [[([vocab_size - 1], [])]], vocab_size)
    source, _ = corpus[0]
    assert source.tolist() == [vocab_size - 1, EOS]
    assert source.dtype.itemsize == width


def test_a_corpus_longer_than_the_buffer_is_written_whole(tmp_path: Path) -> None:
    long = list(range(4, 60_004))
    corpus = EncodedCorpus.write(
        tmp_path / "encoded", [((long, long[:i]) for i in range(37))], 60_004
    )
    assert corpus[31][0].tolist() == [*long, EOS]
    assert corpus[31][1].tolist() == [*long[:31], EOS]


def test_opening_gives_what_was_written(tmp_path: Path) -> None:
    written = EncodedCorpus.write(tmp_path / "deep" / "encoded", [PAIRS], 29)
    assert rows_of(EncodedCorpus.open(tmp_path / "deep" / "encoded")) == rows_of(written)


def test_a_failure_half_way_leaves_the_old_corpus_and_nothing_else(tmp_path: Path) -> None:
    def fail() -> Iterator[tuple[list[int], list[int]]]:
        yield [5], [7]
        raise InputError("a bad line")

    before = rows_of(EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29))
    with pytest.raises(InputError, match="a bad line"):
        EncodedCorpus.write(tmp_path / "encoded", [fail()], 29)
    assert rows_of(EncodedCorpus.open(tmp_path / "encoded")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["encoded"]


def test_writing_again_replaces_also_after_a_kill(tmp_path: Path) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    (tmp_path / "encoded.partial").mkdir()
    (tmp_path / "encoded.partial" / "tokens.bin").write_bytes(b"half")
    assert rows_of(EncodedCorpus.write(tmp_path / "encoded", [[([5], [7])]], 29)) == [
        ([5, 3], [7, 3])
    ]


@pytest.mark.parametrize("name", ["tokens.bin", "lengths.npy", "encoded.json"])
def test_a_missing_part_is_named(tmp_path: Path, name: str) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    (tmp_path / "encoded" / name).unlink()
    with pytest.raises(InputError, match=name):
        EncodedCorpus.open(tmp_path / "encoded")


@pytest.mark.parametrize("name", ["tokens.bin", "lengths.npy", "encoded.json"])
def test_a_cut_part_is_refused(tmp_path: Path, name: str) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    part = tmp_path / "encoded" / name
    part.write_bytes(part.read_bytes()[:-3])
    with pytest.raises(InputError, match="damaged"):
        EncodedCorpus.open(tmp_path / "encoded")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    path = tmp_path / "encoded" / "encoded.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 2}))
    with pytest.raises(InputError, match="format version 2, accepted is at most 1"):
        EncodedCorpus.open(tmp_path / "encoded")


def test_a_batch_is_padded_on_the_right_to_its_longest() -> None:
    batch = pad_batch([np.array(row, np.uint16) for row in ([5, 7, 3], [3], [11, 3])])
    assert batch.dtype == np.int64
    assert batch.tolist() == [[5, 7, 3], [3, PAD, PAD], [11, 3, PAD]]


def test_the_corpora_stay_apart_one_after_the_other(tmp_path: Path) -> None:
    parts = [iter(PAIRS), iter([]), iter(PAIRS[:2])]
    corpus = EncodedCorpus.write(tmp_path / "encoded", parts, 29)
    assert corpus.parts == EncodedCorpus.open(tmp_path / "encoded").parts == (3, 0, 2)
    assert rows_of(corpus)[3:] == rows_of(corpus)[:2]


def test_a_folder_of_the_time_before_corpora_is_one_corpus(tmp_path: Path) -> None:
    written = EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    path = tmp_path / "encoded" / "encoded.json"
    description = json.loads(path.read_text())
    del description["parts"]
    path.write_text(json.dumps(description))
    np.save(tmp_path / "encoded" / "lengths.npy", np.array(written.lengths))
    old = EncodedCorpus.open(tmp_path / "encoded")
    assert (old.parts, rows_of(old)) == ((3,), rows_of(written))


def test_text_of_other_tokenizers_is_refused(tmp_path: Path) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29, "these")
    assert len(EncodedCorpus.open(tmp_path / "encoded", "these")) == len(PAIRS)
    with pytest.raises(InputError, match="of another model's tokenizers"):
        EncodedCorpus.open(tmp_path / "encoded", "those")


def test_a_folder_of_the_time_before_their_fingerprint_is_taken(tmp_path: Path) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29, "these")
    path = tmp_path / "encoded" / "encoded.json"
    description = json.loads(path.read_text())
    del description["made_with"]
    path.write_text(json.dumps(description))
    assert len(EncodedCorpus.open(tmp_path / "encoded", "those")) == len(PAIRS)


def test_parts_that_hold_other_numbers_of_pairs_are_refused(tmp_path: Path) -> None:
    EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    path = tmp_path / "encoded" / "encoded.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"parts": [2]}))
    with pytest.raises(InputError, match="damaged"):
        EncodedCorpus.open(tmp_path / "encoded")


def test_every_pair_of_a_long_corpus_is_found(tmp_path: Path) -> None:
    pairs = [([i] * (i % 7), [i] * (i % 11)) for i in range(1009)]
    corpus = EncodedCorpus.write(tmp_path / "encoded", [pairs], 1009)
    assert rows_of(corpus) == [([*source, EOS], [*target, EOS]) for source, target in pairs]


def test_a_batch_can_be_cut_anew(tmp_path: Path) -> None:
    def swap(sources: Sequence[Ids], targets: Sequence[Ids]) -> tuple[Sequence[Ids], Sequence[Ids]]:
        return targets, sources

    corpus = EncodedCorpus.write(tmp_path / "encoded", [PAIRS], 29)
    source, target = corpus.batch(np.array([0, 2]))
    assert source.tolist() == [[5, 7, 11, EOS], [23, EOS, PAD, PAD]]
    new_source, new_target = corpus.batch(np.array([0, 2]), swap)
    assert (new_source.tolist(), new_target.tolist()) == (target.tolist(), source.tolist())


MILLION_PAIRS = """
import resource, sys
from pathlib import Path
import dragoman.training.feed
from dragoman.settings import build_config
from dragoman.data.encoded import EncodedCorpus
from dragoman.training.feed import Feed
from dragoman.training.state import RunState

pairs = (([number % 97, 5, 7], [number % 89 + 3] * (number % 5)) for number in range(10**6))
bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
corpus = EncodedCorpus.write(Path(sys.argv[1]), [pairs], 101)
feed = Feed(corpus, build_config({"data": {"pairs": "one.tsv"}}), RunState())
for _ in range(100):
    corpus.batch(feed.next())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - bare) / 1024)
"""


def test_a_million_pairs_are_trained_on_in_little_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MILLION_PAIRS, str(tmp_path / "corpus")]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(finished.stdout) < 150
