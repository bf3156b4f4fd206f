from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from dragoman.config import EOS, DecodingConfig, InputError
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
        self, sources: Sequence[Sequence[int]], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        self.sources, self.config = sources, config
        return [
            [
                Hypothesis([*source[::-1], EOS], -rank, -rank / 2, ("cut",), np.eye(3))
                for rank in range(config.n_best)
            ]
            if source
            else [Hypothesis([])]
            for source in sources
        ]

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
    assert caught.value.hint == "did you mean beam_size?"


def test_a_single_text_instead_of_a_list_is_refused(translator: Translator) -> None:
    with pytest.raises(InputError, match="accepted is a list of texts"):
        translator.translate("abc")


def test_score_wants_as_many_targets_as_sources(translator: Translator) -> None:
    assert translator.score(["abc", " "], ["a", ""]) == [2.0, 0.0]
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["a"])


def test_the_translator_imports_no_torch() -> None:
    code = "import dragoman.decoding.translator, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
