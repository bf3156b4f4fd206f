from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS
from dragoman.data.subword_dropout import SubwordDropout
from dragoman.data.tokenizer import Tokenizer, learn_tokenizer

WORDS = ["translation", "translated", "language", "languages", "between", "two", "of", "the"]
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=7)) for i in range(101)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_tokenizer([*TEXTS, "ünïcode ␛ \u2581 ，"], 400)


def rows_of(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    return [np.array([*ids, EOS], np.uint16) for ids in tokenizer.encode_batch(texts)]


def recut(
    tokenizer: Tokenizer, texts: list[str], seed: Any, probability: float = 0.1, longest: int = 0
) -> list[list[list[int]]]:
    """Returns the ids of both sides, cut anew."""
    rows = rows_of(tokenizer, texts)
    dropout = SubwordDropout(tokenizer, tokenizer, probability, longest)
    return [[row.tolist() for row in side] for side in dropout.recut(seed)(rows, rows)]


def test_the_seed_alone_decides_the_cuts(tokenizer: Tokenizer) -> None:
    first = recut(tokenizer, TEXTS, (3, 5))
    assert recut(tokenizer, TEXTS, (3, 7)) != first
    assert recut(tokenizer, TEXTS, (3, 5)) == first


def test_another_process_cuts_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    script = """if True:
        import sys, numpy as np
        from pathlib import Path
        from dragoman.data.subword_dropout import SubwordDropout
        from dragoman.data.tokenizer import Tokenizer
        tokenizer = Tokenizer.load(Path(sys.argv[1]))
        rows = [np.array([*tokenizer.encode(text), 3], np.uint16) for text in sys.argv[2:]]
        sides = SubwordDropout(tokenizer, tokenizer, 0.1).recut((3, 5))(rows, rows)
        print([[row.tolist() for row in side] for side in sides])
    """
    command = [sys.executable, "-c", script, str(tmp_path / "t.model"), *TEXTS]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(found) == recut(tokenizer, TEXTS, (3, 5))


@given(st.lists(st.text(st.sampled_from("abelnotw  \u2581␛1é语翻")), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_with_hardly_a_merge_left_out_the_cut_is_that_of_sentencepiece(
    tokenizer: Tokenizer, texts: list[str]
) -> None:
    texts = [*texts, *TEXTS[:3]]
    expected = [row.tolist() for row in rows_of(tokenizer, texts)]
    assert recut(tokenizer, texts, 3, probability=1e-300) == [expected, expected]


def test_pieces_are_as_many_as_sentencepiece_makes_with_its_dropout(tokenizer: Tokenizer) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    for probability in (0.1, 0.4):
        ours = sum(len(row) - 1 for row in recut(tokenizer, TEXTS * 11, 3, probability)[0])
        theirs = processor.encode(
            TEXTS * 11, enable_sampling=True, nbest_size=-1, alpha=probability
        )
        assert ours == pytest.approx(sum(map(len, theirs)), rel=0.03)


def test_a_piece_of_characters_without_a_piece_stays_whole() -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=(model := io.BytesIO()), model_type="bpe",
        vocab_size=400, hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=["ÄÖ"], minloglevel=2,
    )  # fmt: skip
    tokenizer = Tokenizer(model.getvalue())
    [row], _ = recut(tokenizer, ["two ÄÖ"], 3, probability=0.999)
    assert tokenizer.pieces(row[:-1]) == ["▁", "t", "w", "o", "▁", "ÄÖ"]


def test_both_sides_are_cut_by_chances_of_their_own(tokenizer: Tokenizer) -> None:
    sources, targets = recut(tokenizer, TEXTS, 3)
    assert sources != targets


@given(st.lists(st.text(max_size=23), min_size=1, max_size=5), st.integers(0, 1 << 62))
@settings(max_examples=50, deadline=None)
def test_no_text_changes(tokenizer: Tokenizer, texts: list[str], seed: int) -> None:
    for rows in recut(tokenizer, texts, seed, probability=0.5):
        assert [tokenizer.decode(row[:-1]) for row in rows] == texts
        assert all(row[-1] == EOS and EOS not in row[:-1] for row in rows)


def test_no_probability_changes_nothing(tokenizer: Tokenizer) -> None:
    rows = rows_of(tokenizer, TEXTS)
    sources, targets = SubwordDropout(tokenizer, tokenizer, 0.0).recut(3)(rows, rows)
    assert sources is rows
    assert targets is rows


def test_the_higher_the_probability_the_more_pieces(tokenizer: Tokenizer) -> None:
    plain = sum(map(len, rows_of(tokenizer, TEXTS)))
    sizes = [
        sum(map(len, recut(tokenizer, TEXTS, 3, probability)[0]))
        for probability in (0.01, 0.1, 0.5, 0.999)
    ]
    assert plain < sizes[0] < 1.1 * plain < sizes[1] < sizes[2] < sizes[3]


def test_a_merge_is_left_out_as_often_as_its_probability_says() -> None:
    tokenizer = learn_tokenizer(["a"], 300)  # one merge: of the blank before a word and "a"
    cuts = recut(tokenizer, ["a"] * 5003, 3, probability=0.3)[0]
    assert Counter(len(row) - 1 for row in cuts)[2] / 5003 == pytest.approx(0.3, abs=0.03)


def test_a_sentence_that_would_get_too_long_keeps_its_cut(tokenizer: Tokenizer) -> None:
    plain = [row.tolist() for row in rows_of(tokenizer, TEXTS)]
    longest = 3 + max(map(len, plain))
    free = recut(tokenizer, TEXTS, 3, probability=0.1)[0]
    bound = recut(tokenizer, TEXTS, 3, probability=0.1, longest=longest)[0]
    expected = [cut if len(cut) <= longest else old for cut, old in zip(free, plain, strict=True)]
    assert bound == expected
    assert bound not in (free, plain)
