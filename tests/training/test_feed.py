from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from dragoman.config import Config
from dragoman.data import batching
from dragoman.data.encoded import EncodedCorpus
from dragoman.settings import build_config
from dragoman.training import feed
from dragoman.training.feed import Feed
from dragoman.training.state import RunState


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EncodedCorpus:
    """97 pairs of up to 13 tokens in two corpora, planned in pools of 31."""
    monkeypatch.setattr(batching, "_POOL_PAIRS", 31)
    random = np.random.default_rng(3)
    pairs = [([5] * int(a), [7] * int(b)) for a, b in random.integers(1, 13, (97, 2))]
    return EncodedCorpus.write(tmp_path / "corpus", [pairs[:60], pairs[60:]], 11)


def config(weight: float) -> Config:
    corpora = [{"pairs": "a.tsv"}, {"pairs": "b.tsv", "weight": weight}]
    return build_config({"data": {"corpora": corpora}, "training": {"batch_tokens": 53}})


def test_an_epoch_deals_out_every_pair_as_often_as_its_weight_says(corpus: EncodedCorpus) -> None:
    state = RunState()
    dealt = Feed(corpus, config(2.0), state)
    seen = [dealt.next()]
    while state.epoch == 0:
        seen.append(dealt.next())
    reads = np.bincount(np.concatenate(seen[:-1]), minlength=97)
    assert reads.tolist() == [1] * 60 + [2] * 37


@pytest.mark.parametrize("stop", [1, 11, 29, 53])
def test_a_feed_taken_up_anywhere_goes_on_as_it_would_have(
    corpus: EncodedCorpus, stop: int
) -> None:
    state = RunState()
    whole = Feed(corpus, config(0.5), state)
    for _ in range(stop):
        whole.next()
    resumed = Feed(corpus, config(0.5), copy.deepcopy(state))
    for _ in range(37):
        assert resumed.next().tolist() == whole.next().tolist()


@pytest.mark.parametrize("epoch", [0, 855])
def test_taking_up_a_late_run_costs_no_more_than_an_early_one(
    corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    calls: list[str] = []
    plan, pool = batching.EpochPlan.__init__, batching.EpochPlan.pool
    monkeypatch.setattr(
        feed.EpochPlan, "__init__", lambda *given: calls.append("plan") or plan(*given)
    )
    monkeypatch.setattr(feed.EpochPlan, "pool", lambda *given: calls.append("pool") or pool(*given))
    Feed(corpus, config(0.5), RunState(epoch=epoch, pool=2, position=1)).next()
    assert calls == ["plan", "pool"]


def test_a_corpus_that_an_epoch_may_not_reach_ends_in_no_error(tmp_path: Path) -> None:
    corpus = EncodedCorpus.write(tmp_path / "c", [[([5], [7])] * 3], 11)
    rare = {"data": {"corpora": [{"pairs": "a.tsv", "weight": 0.1}]}}
    state = RunState()
    dealt = Feed(corpus, build_config(rare), state)
    assert len({int(dealt.next()[0]) for _ in range(3)}) == 3
    assert state.epoch == 9


def test_an_epoch_has_about_as_many_steps_wherever_it_is_asked(corpus: EncodedCorpus) -> None:
    counts = [Feed(corpus, config(1.0), RunState(pool=pool)).steps_per_epoch() for pool in range(4)]
    assert max(counts) < 2 * min(counts)
