from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.config import CorpusConfig, DataConfig, InputError
from dragoman.data.cleaning import Cleaner

CONFIG = DataConfig(max_length=11, max_length_ratio=3.0)
SWITCHES = {
    "empty": {"drop_empty": False},
    "identical": {"drop_identical": False},
    "too long": {"max_length": 0},
    "length ratio": {"max_length_ratio": 0.0},
}
FAULTY = {
    "empty": [(" \u3000\t", "b", 5, 5)],
    "identical": [("a", "a", 5, 5)],
    "too long": [("a", "b", 5, 12)],
    "length ratio": [("a", "b", 10, 3)],
}


def clean(cleaner: Cleaner, pairs: list[tuple[str, str, int, int]]) -> list[str | None]:
    return [cleaner.text_reason(s, t) or cleaner.length_reason(n, m) for s, t, n, m in pairs]


@pytest.mark.parametrize("reason", SWITCHES)
def test_each_reason_is_found_and_counted(reason: str) -> None:
    cleaner = Cleaner(CONFIG)
    assert clean(cleaner, FAULTY[reason])[-1] == reason
    assert cleaner.counts[reason] == 1
    assert sum(cleaner.counts.values()) == 2


@pytest.mark.parametrize("reason", SWITCHES)
def test_each_reason_can_be_switched_off(reason: str) -> None:
    cleaner = Cleaner(replace(CONFIG, **SWITCHES[reason]))  # type: ignore[arg-type]
    assert clean(cleaner, FAULTY[reason])[-1] is None


def test_pairs_at_the_limits_are_kept() -> None:
    assert clean(Cleaner(CONFIG), [("a", "b", 11, 11), ("c", "d", 3, 9)]) == [None, None]


def test_the_report_is_a_line_with_the_counts() -> None:
    cleaner = Cleaner(CONFIG)
    assert cleaner.report() == "read 0 pairs, kept 0: nothing left out"
    clean(cleaner, FAULTY["identical"] + FAULTY["empty"] * 1009)
    assert cleaner.report() == "read 1,010 pairs, kept 0: empty 1,009, identical 1"


def test_nothing_left_is_an_error_with_the_counts_by_reason() -> None:
    cleaner = Cleaner(CONFIG)
    clean(cleaner, FAULTY["empty"] * 3 + FAULTY["too long"] + FAULTY["identical"])
    with pytest.raises(InputError, match="of the 5 read: empty 3, identical 1, too long 1"):
        cleaner.require_pairs([CorpusConfig(pairs=("a.tsv",))], [0])


def test_of_several_corpora_the_one_that_is_gone_is_named() -> None:
    cleaner = Cleaner(CONFIG)
    clean(cleaner, FAULTY["identical"])
    corpora = [CorpusConfig(pairs=("a.tsv",)), CorpusConfig(("b", "c"), ("d", "e"))]
    with pytest.raises(InputError, match="left of b, c, among the 1 read of all corpora: ident"):
        cleaner.require_pairs(corpora, [7, 0])
    cleaner.require_pairs(corpora, [7, 1])
