from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.config import BOS, EOS, PAD, UNK, InputError
from dragoman.data.tokenizer import Tokenizer, learn_tokenizer

ENGLISH = ["The quick brown fox jumps over the lazy dog.", "Press “OK” (now), or wait 35 seconds."]
GERMAN = ["Der schnelle braune Fuchs springt über den faulen Hund.", "„Größe“: 35 m²"]
CHINESE = [
    "请按“确定”，或等待３５秒！",
    "《红楼梦》（上）：第一回；甄士隐？",
    "全角：ＡＢＣ，１２３。",
]
MIXED = [*ENGLISH, *CHINESE, "按 Ctrl+C 复制，按 Ctrl+V 粘贴。"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_tokenizer(MIXED, 500)


@given(st.text())
@settings(max_examples=300, deadline=None)
@example("")
@example("  two  blanks  ")
@example("\n\r\t\x00\u2028\u00a0\u3000\ufeff")
@example("\u2581 a\u2581\u2581 \u2585 ␛0␛1␛␛2")
@example("</s><unk><pad><s><0x41>\u2047")
@example("🇩🇪👨\u200d👩\u200d👧 e\u0301 \ufffd\uffff\ufdd0\U0010ffff")
@example("ａｂｃ，！？①ﬁ½")
def test_every_text_comes_back_unchanged(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text("\u2581␛012 a\u2585"))
@settings(max_examples=200, deadline=None)
def test_reserved_characters_in_any_order_come_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.text(min_size=1), min_size=1))
@settings(max_examples=20, deadline=None)
def test_a_tokenizer_learnt_from_any_text_gives_that_text_back(texts: list[str]) -> None:
    learnt = learn_tokenizer(texts, 2000)
    assert [learnt.decode(ids) for ids in learnt.encode_batch(texts)] == texts


def test_a_text_without_reserved_characters_costs_no_escape(tokenizer: Tokenizer) -> None:
    assert not any(
        "␛" in piece for text in MIXED for piece in tokenizer.pieces(tokenizer.encode(text))
    )


def test_the_names_of_special_pieces_are_ordinary_text(tokenizer: Tokenizer) -> None:
    assert not {PAD, UNK, BOS, EOS} & set(tokenizer.encode("<pad><unk><s></s>"))


def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"U\+D800.*'good '"):
        tokenizer.encode("good \ud800")


def test_special_ids_have_no_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("fox")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "fox"


def test_a_batch_is_encoded_as_its_texts_one_by_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_batch(MIXED) == [tokenizer.encode(text) for text in MIXED]
    assert tokenizer.encode_batch([]) == []


def test_pieces_of_an_ascii_text_join_to_it(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.pieces(tokenizer.encode(ENGLISH[0]))
    assert "".join(pieces).replace("\u2581", " ") == f" {ENGLISH[0]}"


def test_numbers_are_cut_into_digits(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("35353535")) >= 8


def test_learning_is_deterministic(tokenizer: Tokenizer) -> None:
    again = learn_tokenizer(iter(MIXED), 500)
    assert again.model == tokenizer.model
    assert again.fingerprint == tokenizer.fingerprint


def test_a_vocabulary_is_lowered_to_what_the_text_supports() -> None:
    learnt = learn_tokenizer(["a b c"], 8000)
    assert 260 < learnt.vocab_size == len(learnt) < 300


def test_a_vocabulary_without_room_for_the_characters_is_refused_with_both_sizes() -> None:
    with pytest.raises(InputError, match=r"data\.vocab_size is 307, accepted is at least 6\d\d"):
        learn_tokenizer(["".join(map(chr, range(0x4E00, 0x4E00 + 401)))], 307)


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(InputError, match="no line"):
        learn_tokenizer(["", ""], 500)


def test_a_long_line_is_learnt_from_too() -> None:
    words = ["".join(random.Random(i).choices("abcdefgh", k=5)) for i in range(23)]
    long_line = " ".join(words * 101)
    assert len(learn_tokenizer([long_line], 500).encode(words[5])) == 1


def test_learning_and_loading_say_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Tokenizer(learn_tokenizer(["a\u2585", "", "a\x00b\t"], 500).model)
    with pytest.raises(InputError):
        Tokenizer(b"junk")
    assert capfd.readouterr() == ("", "")


def test_each_of_two_tokenizers_gives_its_own_side_back() -> None:
    for side in (ENGLISH, GERMAN):
        own = learn_tokenizer(side * 3, 400)
        for text in (*ENGLISH, *GERMAN):
            assert own.decode(own.encode(text)) == text


def test_a_file_comes_back_as_the_same_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.model)
    assert Tokenizer.load(path).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("content", [None, b"", b"junk"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tokenizer.model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"tokenizer\.model: "):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad_id": 3, "eos_id": 0}, "ids of pad, unk, bos and eos"),
        ({"normalization_rule_name": "nmt_nfkc"}, "changes text"),
        ({"remove_extra_whitespaces": True}, "changes text"),
        ({"byte_fallback": False}, "changes text"),
    ],
)
def test_a_foreign_model_that_would_change_text_is_refused(
    options: dict[str, Any], message: str
) -> None:
    ours = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "byte_fallback": True}
    exact = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(MIXED), model_writer=(model := io.BytesIO()), model_type="bpe",
        vocab_size=500, hard_vocab_limit=False, minloglevel=2, **(ours | exact | options),
    )  # fmt: skip
    with pytest.raises(InputError, match=message):
        Tokenizer(model.getvalue())


def test_byte_pair_encoding_is_known_from_other_models(tokenizer: Tokenizer) -> None:
    assert tokenizer.is_bpe
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(MIXED), model_writer=(model := io.BytesIO()), model_type="unigram",
        vocab_size=400, hard_vocab_limit=False, minloglevel=2, pad_id=0, unk_id=1, bos_id=2,
        eos_id=3, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )  # fmt: skip
    assert not Tokenizer(model.getvalue()).is_bpe


def test_an_error_in_the_text_comes_out_of_learning_as_it_is() -> None:
    def broken() -> Iterator[str]:
        yield "a b c"
        raise InputError("line 2 is no text")

    with pytest.raises(InputError, match=r"^line 2 is no text$"):
        learn_tokenizer(broken(), 300)
