from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dragoman.bench.sentences import Workload, prepare_sentences
from dragoman.bench.setting import SIZES
from dragoman.config import EOS, PAD
from dragoman.data.cldr import make_pairs


def test_a_workload_survives_its_file(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path / "w.json")
    assert Workload.load(tmp_path / "w.json") == workload


@pytest.mark.parametrize("shuffled", [False, True])
def test_every_order_has_the_same_target_tokens(workload: Workload, shuffled: bool) -> None:
    batches = workload.padded(shuffled=shuffled)
    real = sum(int((target != PAD).sum()) for _, target in batches)
    assert real == workload.describe()["target_tokens"] == sum(len(t) for _, t in workload.pairs)
    assert len(batches) == 3


def test_the_shuffled_batches_hold_each_pair_once(workload: Workload) -> None:
    places = Counter(place for batch in workload.shuffled_batches for place in batch)
    assert places == Counter(range(len(workload.pairs)))
    assert workload.describe()["padding_shuffled"] > workload.describe()["padding_sorted"]  # type: ignore[operator]


def test_sources_have_no_eos_and_come_shortest_first(workload: Workload) -> None:
    sources = workload.sources(5)
    assert [len(source) for source in sources] == sorted(len(source) for source in sources)
    assert not any(EOS in source for source in sources)


def test_text_becomes_batches_of_every_length_within_the_budget(tmp_path: Path) -> None:
    for side, name in ((1, "en"), (2, "de")):
        phrases = make_pairs("en", "de", 3000, 1).train
        (tmp_path / name).write_text("".join(f"{each[side]}\n" for each in phrases), "utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    workload = prepare_sentences(folder, [str(tmp_path / "en")], [str(tmp_path / "de")], 3)
    sizes = [max(source.size, target.size) for source, target in workload.padded()]
    assert len(sizes) == 3
    assert max(sizes) <= SIZES["S"].batch_tokens
    widths = [max(source.shape[1], target.shape[1]) for source, target in workload.padded()]
    assert max(widths) > np.median([len(target) for _, target in workload.pairs])
