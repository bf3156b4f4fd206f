from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS
from dragoman.decoding.engine import Hypothesis
from dragoman.decoding.suspicion import repeats, suspicions

SOURCE = [4, 5, 6, 7, 8]


@pytest.mark.parametrize(("length", "flags"), [(20, ()), (21, ("long",))])
def test_an_output_is_long_beyond_twice_its_source_and_ten(
    length: int, flags: tuple[str, ...]
) -> None:
    assert suspicions(SOURCE, Hypothesis(list(range(4, 4 + length)))) == flags


@pytest.mark.parametrize(
    ("tokens", "suspicious"),
    [
        ([9] * 7, False),
        ([9] * 8, True),
        ([4, 5] * 4, True),
        ([4, 5] * 3 + [4], False),
        ([9, *[4, 5, 6] * 4, 7], True),
        ([4, 5, 6, 7] * 3 + [4, 5, 6], False),
        ([4, 5, 6, 4, 5, 6, 7] * 2, False),
        (list(range(16)) * 4, True),
    ],
)
def test_four_times_in_succession_and_eight_tokens_are_suspicious(
    tokens: list[int], suspicious: bool
) -> None:
    assert repeats(tokens) == suspicious
    assert suspicions([4] * 50, Hypothesis(tokens)) == ()  # the source does so too
    found = suspicions(list(range(50)), Hypothesis(tokens))
    assert found == (("repeated",) if suspicious else ())


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(4, 5), max_size=19))
def test_repetition_is_found_wherever_it_stands(tokens: list[int]) -> None:
    grams = [tokens[at : at + n] for n in range(1, 6) for at in range(len(tokens) - n + 1)]
    times = {1: 8, 2: 4, 3: 4, 4: 4}
    text = ",".join(map(str, tokens))
    expected = any(",".join(map(str, gram * times.get(len(gram), 4))) in text for gram in grams)
    assert repeats(tokens) == expected


def test_an_output_is_unlikely_below_a_mean_log_probability() -> None:
    assert suspicions(SOURCE, Hypothesis([9, EOS], -3.9)) == ()
    assert suspicions(SOURCE, Hypothesis([9, EOS], -4.1)) == ("unlikely",)


def test_nothing_is_suspicious_about_nothing() -> None:
    assert suspicions([], Hypothesis([])) == ()
