from __future__ import annotations

import re
from collections import Counter

import pytest

from dragoman.config import InputError
from dragoman.data.cldr import KINDS, CldrPairs, make_pairs

WORD = re.compile(r"[^\W\d]+")


@pytest.fixture(scope="module")
def german() -> CldrPairs:
    return make_pairs("en", "de", 10_000, seed=1)


def test_the_kinds_have_equal_shares(german: CldrPairs) -> None:
    for phrases, wanted in ((german.train, 1000), (german.test, 100)):
        counts = Counter(kind for kind, _, _ in phrases)
        assert tuple(counts) == KINDS
        assert all(0.85 * wanted <= count <= wanted + 3 for count in counts.values())


def test_no_source_is_twice_in_training_or_in_both_parts(german: CldrPairs) -> None:
    train = [source for _, source, _ in german.train]
    test = [source for _, source, _ in german.test]
    assert len({*train, *test}) == len(train) + len(test)


def test_every_word_of_the_test_stands_in_the_training_phrases(german: CldrPairs) -> None:
    seen = {word for _, *sides in german.train for side in sides for word in WORD.findall(side)}
    test = [{word for side in sides for word in WORD.findall(side)} for _, *sides in german.test]
    assert sum(words <= seen for words in test) >= 0.99 * len(test)


def test_sources_with_two_answers_are_left_out(german: CldrPairs) -> None:
    dates = [source for kind, source, _ in german.train if kind == "date"]
    assert any(re.match(r"Jun(e)? \d", source) for source in dates)
    assert not any(re.match(r"May \d", source) for source in dates)


def test_blanks_are_plain(german: CldrPairs) -> None:
    french = make_pairs("en", "fr", 500, seed=1)
    text = "".join(f"{source}{target}" for _, source, target in german.train + french.train)
    assert {character for character in text if character.isspace()} == {" "}


def test_the_seed_decides_the_phrases(german: CldrPairs) -> None:
    assert make_pairs("en", "de", 500, seed=3) == make_pairs("en", "de", 500, seed=3)
    assert make_pairs("en", "de", 500, seed=3) != make_pairs("en", "de", 500, seed=5)


@pytest.mark.parametrize("language", ["zh", "ja", "ar", "th", "cy", "pt_BR", "zh-Hant"])
def test_every_kind_is_there_in_other_languages(language: str) -> None:
    pairs = make_pairs("en", language, 300, seed=1)
    assert {kind for kind, _, _ in pairs.train} == {kind for kind, _, _ in pairs.test} == set(KINDS)


def test_what_a_phrase_says_is_what_cldr_says(german: CldrPairs) -> None:
    months = {source: target for kind, source, target in german.train if kind == "month"}
    march = [source for source in months if source.startswith("March ")]
    assert march
    assert all(re.search(r"\bMärz\b", months[source]) for source in march)
    durations = {target for kind, _, target in german.train if kind == "duration"}
    assert any(re.match(r"[a-z]+ \d+ Tagen$", target) for target in durations)


@pytest.mark.parametrize("name", ["", "xx", "../de", "en-", "de_DEE"])
def test_an_unknown_locale_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"{name!r} is not a locale"):
        make_pairs("en", name, 100, seed=1)


def test_a_misspelt_locale_gets_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        make_pairs("en", "pt_BRA", 100, seed=1)
    assert caught.value.hint == "did you mean pt_BR?"
