"""Scores against references: sacreBLEU's, the paper's, and those of published small results."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import InputError
from dragoman.evaluation.bleu import METRICS, Score, evaluate, moses_tokenize, split_compounds

ENGLISH = [
    "The well-known interpreter crossed the bridge at dawn.",
    "Nobody at the court could read her letters, so she read them aloud.",
    "Seven ships left the harbour before the wind turned.",
]
OTHER_ENGLISH = [
    "At dawn the famous interpreter crossed the bridge.",
    "No one at court could read her letters, so she read them out to everybody.",
    "Before the wind turned, seven ships left the harbour.",
]
CLOSE = [
    "The well-known interpreter crossed a bridge at dawn.",
    "Nobody at the court could read the letters, so she read them aloud.",
    "Seven ships left the harbour before the storm turned.",
]


def score(metric: str, hypotheses: list[str], *references: list[str], language: str = "") -> Score:
    (result,) = evaluate(hypotheses, list(references), [metric], target_language=language)
    return result


@pytest.mark.parametrize("metric", METRICS)
def test_a_translation_equal_to_its_reference_has_the_best_score(metric: str) -> None:
    best = 0.0 if metric == "ter" else 100.0
    assert score(metric, ENGLISH, ENGLISH).value == pytest.approx(best)


@pytest.mark.parametrize("metric", METRICS)
def test_a_close_translation_is_better_than_a_free_one(metric: str) -> None:
    close, free = (score(metric, lines, ENGLISH).value for lines in (CLOSE, OTHER_ENGLISH))
    assert close < free if metric == "ter" else close > free


@pytest.mark.parametrize("metric", METRICS)
def test_the_order_of_the_references_does_not_matter(metric: str) -> None:
    one = score(metric, CLOSE, ENGLISH, OTHER_ENGLISH)
    assert one == score(metric, CLOSE, OTHER_ENGLISH, ENGLISH)
    assert "nrefs:2" in one.signature


@given(st.permutations(range(3)))
@settings(max_examples=6, deadline=None)
def test_the_order_of_the_lines_does_not_matter(order: list[int]) -> None:
    shuffled = score("bleu", [CLOSE[i] for i in order], [ENGLISH[i] for i in order])
    assert shuffled == score("bleu", CLOSE, ENGLISH)


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh_CN", "zh"),
        ("ZH-Hant", "zh"),
        ("yue", "zh"),
        ("th", "char"),
        ("my_MM", "char"),
        ("de", "13a"),
        ("", "13a"),
    ],
)
def test_the_language_chooses_the_tokeniser_and_the_signature_shows_it(
    language: str, tokenizer: str
) -> None:
    signature = score("bleu", ["我们走吧。"], ["我们走。"], language=language).signature
    assert f"tok:{tokenizer}|" in signature


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_without_a_dictionary_japanese_and_korean_are_scored_by_characters(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert (
        "tok:char|" in score("bleu", ["行きましょう。"], ["行こう。"], language=language).signature
    )


def test_a_chosen_tokeniser_beats_that_of_the_language() -> None:
    (result,) = evaluate(CLOSE, [ENGLISH], ["bleu"], "zh", tokenize="intl")
    assert "tok:intl|" in result.signature


def test_one_wrong_character_is_one_edit_in_chinese() -> None:
    result = score("ter", ["我们明天走吧"], ["我们今天走吧"], language="zh_CN")
    assert result.value == pytest.approx(100 / 6)
    assert "asian:yes" in result.signature


@pytest.mark.parametrize("count", [2, 5])
def test_different_counts_of_lines_are_an_error_that_names_both(count: int) -> None:
    with pytest.raises(InputError, match=f"3 lines and reference 2 has {count}"):
        evaluate(ENGLISH, [ENGLISH, ["A line."] * count])


@pytest.mark.parametrize(("hypotheses", "references"), [([], [[]]), (["A line."], [])])
def test_nothing_to_score_is_an_error(hypotheses: list[str], references: list[list[str]]) -> None:
    with pytest.raises(InputError, match=r"0 .* accepted is 1 or more"):
        evaluate(hypotheses, references)


def test_an_unknown_name_is_an_error_with_the_nearest_right_one() -> None:
    with pytest.raises(InputError, match="metric is 'blue'") as caught:
        evaluate(ENGLISH, [ENGLISH], ["blue"])
    assert caught.value.hint == "did you mean bleu?"
    with pytest.raises(InputError, match="tokenize is '13b'"):
        evaluate(ENGLISH, [ENGLISH], tokenize="13b")


def test_a_tokeniser_whose_dictionary_is_missing_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(InputError, match="ja-mecab, which needs more") as caught:
        evaluate(["行こう。"], [["行こう。"]], ["bleu"], "ja", tokenize="ja-mecab")
    assert caught.value.hint is not None
    assert "sacrebleu[ja]" in caught.value.hint


def test_multi_bleu_takes_the_tokens_as_they_are_and_smooths_nothing() -> None:
    # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples are right; no length penalty
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert score("multi-bleu", ["a b c d e."], ["a b c d e ."]).value == pytest.approx(
        expected * 2.718281828459045 ** (1 - 6 / 5)
    )
    assert score("multi-bleu", ["a b c"], ["a b d"]).value == 0.0


def test_a_compound_is_split_at_its_hyphen_but_a_dash_between_words_is_not() -> None:
    assert split_compounds("E-Mail - nein") == "E ##AT##-##AT## Mail - nein"


def test_a_letter_between_two_hyphens_belongs_to_the_first() -> None:
    assert split_compounds("A-B-Schutz") == "A ##AT##-##AT## B-Schutz"


def test_the_paper_splits_compounds_in_german_only_and_says_so() -> None:
    hypothesis, reference = ["Der Nord-Ost-Wind weht heute sehr kalt ."], ["Der Nord-Süd-Wind weht"]
    german, french = (score("paper", hypothesis, reference, language=x) for x in ("de_AT", "fr"))
    assert german.details["reference_length"] == 7
    assert french.details["reference_length"] == 3
    assert "+compounds" in german.signature
    assert "+compounds" not in french.signature
    assert "tok:moses-fr-" in french.signature


def test_the_paper_keeps_case_and_multi_bleu_lc_does_not() -> None:
    loud = [line.upper() for line in ENGLISH]
    assert score("paper", loud, ENGLISH).value == 0.0
    folded = score("multi-bleu-lc", loud, ENGLISH)
    assert folded.value == pytest.approx(100.0)
    assert "case:lc" in folded.signature


def test_multi_bleu_lc_counts_the_moses_tokens_of_the_reference() -> None:
    lines = ["Er sagt: „Ja, um 9 Uhr!“", "Das ist Peters Hut, z.B. rot & groß."]
    tokens = moses_tokenize(lines, "de", lowercase=True)
    assert tokens[0] == "er sagt : &quot; ja , um 9 uhr ! &quot;"
    result = score("multi-bleu-lc", lines, lines, language="de")
    assert result.details["reference_length"] == sum(len(line.split()) for line in tokens)


def test_importing_the_module_loads_neither_sacrebleu_nor_torch() -> None:
    code = "import dragoman.evaluation.bleu, sys; print({'sacrebleu', 'torch'} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.stdout.strip() == "set()"
