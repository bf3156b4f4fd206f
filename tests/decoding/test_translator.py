from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS, UNK, DecodingConfig, InputError
from dragoman.data.tokenizer import learn_tokenizer
from dragoman.decoding.engine import Hypothesis
from dragoman.decoding.translator import Translator


class Letters:
    """A tokenizer whose ids are code points."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [chr(id) for id in ids]


class Reversal:
    """An engine that reverses, and keeps what it was asked."""

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        prefixes: Sequence[Sequence[int]] = (),
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        self.sources, self.config, self.prefixes, self.first = sources, config, prefixes, first
        return [
            [
                Hypothesis([*source[::-1], EOS], -rank, -rank / 2, ("cut",), np.eye(3))
                for rank in range(config.n_best)
            ]
            if source
            else [Hypothesis([])]
            for source in sources
        ]

    def longest_source(self, config: DecodingConfig) -> int:
        return config.max_source_length

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: DecodingConfig,
    ) -> list[float]:
        return [
            float(len(source) - len(target))
            for source, target in zip(sources, targets, strict=True)
        ]


@pytest.fixture
def translator() -> Translator:
    return Translator(Reversal(), Letters(), Letters())  # type: ignore[arg-type]


def test_a_translation_carries_text_pieces_scores_and_flags(translator: Translator) -> None:
    [found] = translator.translate(["abc"], n_best=3)
    assert (found.text, found.tokens, found.flags) == ("cba", ["c", "b", "a"], ("cut",))
    assert [each.score for each in found.alternatives] == [-0.5, -1.0]
    assert [each.log_probability for each in found.alternatives] == [-1.0, -2.0]
    assert found.alignment is not None


def test_n_texts_give_n_translations_and_blank_ones_stay_empty(translator: Translator) -> None:
    found = translator.translate(["a", "", " \t\u3000", "b"])
    assert [each.text for each in found] == ["a", "", "", "b"]
    assert translator.engine.sources == [[97], [], [], [98]]  # type: ignore[attr-defined]
    assert found[1].tokens == []
    assert found[1].alternatives == []


def test_overrides_beat_the_configuration(translator: Translator) -> None:
    translator.translate(["a"], DecodingConfig(beam_size=7, length_penalty=1.0), beam_size=2)
    asked = translator.engine.config  # type: ignore[attr-defined]
    assert (asked.beam_size, asked.length_penalty) == (2, 1.0)


def test_a_misspelt_override_is_refused_with_the_nearest_name(translator: Translator) -> None:
    with pytest.raises(InputError, match=r"decoding\.beamsize is not a setting") as caught:
        translator.translate(["a"], beamsize=2)
    assert caught.value.hint == "did you mean decoding.beam_size?"


def test_an_override_of_another_type_is_refused_or_read(translator: Translator) -> None:
    with pytest.raises(
        InputError, match=r"decoding\.beam_size is 2\.5, accepted is a whole number"
    ):
        translator.translate(["a"], beam_size=2.5)
    translator.translate(["a"], beam_size="3")
    assert translator.engine.config.beam_size == 3  # type: ignore[attr-defined]


def test_a_single_text_instead_of_a_list_is_refused(translator: Translator) -> None:
    with pytest.raises(InputError, match="accepted is a list of texts"):
        translator.translate("abc")


def test_score_wants_as_many_targets_as_sources(translator: Translator) -> None:
    assert translator.score(["abc", " "], ["a", ""]) == [2.0, 0.0]
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["a"])


def test_what_is_suspicious_is_flagged_behind_what_the_engine_flags(translator: Translator) -> None:
    [found] = translator.translate(["a" * 7 + "bc"], n_best=23, beam_size=23)
    assert found.flags == ("cut",)
    assert [each.flags for each in found.alternatives[-3:]] == [
        ("cut",),
        ("cut", "unlikely"),
        ("cut", "unlikely"),
    ]


def test_prefixes_and_the_place_in_the_input_reach_the_engine(translator: Translator) -> None:
    translator.translate(["ab", "c"], prefixes=["", " x"], first=7)
    asked: Any = translator.engine
    assert (asked.prefixes, asked.first) == ([[], [32, 120]], 7)


def test_as_many_prefixes_as_texts_are_wanted(translator: Translator) -> None:
    with pytest.raises(InputError, match="2 texts and 1 prefixes, accepted is as many of each"):
        translator.translate(["a", "b"], prefixes=["c"])


TEXTS = ["the dragoman waits", "the court is in two minds", "a word — ein Wort, „zwei“"]
TOKENIZER = learn_tokenizer(TEXTS, 290)


@settings(deadline=None, max_examples=200)
@given(
    st.text(st.characters(codec="utf-8")),
    st.lists(st.integers(UNK, len(TOKENIZER) - 1), max_size=7),
)
def test_whatever_follows_a_prefix_the_text_begins_with_it_exactly(
    prefix: str, rest: list[int]
) -> None:
    class Continuation(Reversal):
        def translate(self, sources: Any, config: Any, prefixes: Any = (), first: int = 0) -> Any:
            return [[Hypothesis([*forced, *rest, EOS])] for forced in prefixes]

    translator = Translator(Continuation(), TOKENIZER, TOKENIZER)  # type: ignore[arg-type]
    [found] = translator.translate(["x"], prefixes=[prefix])
    assert found.text.startswith(prefix)


def test_each_side_is_read_and_written_with_its_own_tokenizer() -> None:
    class Capitals(Letters):
        def encode(self, text: str) -> list[int]:
            return [ord(letter) - 32 for letter in text]

        def pieces(self, ids: Sequence[int]) -> list[str]:
            return [chr(id + 32) for id in ids]

    translator = Translator(Reversal(), Letters(), Capitals())  # type: ignore[arg-type]
    [found] = translator.translate(["ABC"], prefixes=["xy"])
    asked: Any = translator.engine
    assert (asked.sources, asked.prefixes) == ([[65, 66, 67]], [[88, 89]])
    assert (found.text, found.tokens) == ("cba", ["c", "b", "a"])


def test_the_translator_imports_no_torch() -> None:
    code = "import dragoman.decoding.translator, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_source_that_loses_tokens_counts_and_one_that_just_fits_does_not(
    translator: Translator,
) -> None:
    config = DecodingConfig(max_source_length=4)  # EOS included
    assert translator.count_cut_sources(["", "abc", "abcd", "abcdefg"], config) == 2
