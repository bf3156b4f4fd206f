"""Several corpora with weights, as settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import CorpusConfig, DataConfig, InputError
from dragoman.settings import build_config, read_settings, write_config

TABLES = """\
[data]
pairs = "plain.tsv"

[[data.corpora]]
source = ["a.en", "b.en"]
target = ["a.de", "b.de"]
weight = 2

[[data.corpora]]
pairs = "c.tsv"
weight = 0.25
"""


def test_corpora_come_back_from_toml_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TABLES, "utf-8")
    config = build_config(read_settings(path))
    assert config.data.weights == (1.0, 2.0, 0.25)
    assert config.data.all_corpora[0] == CorpusConfig(pairs=("plain.tsv",))
    path.write_text(write_config(config), "utf-8")
    assert build_config(read_settings(path)) == config
    assert build_config(dataclasses.asdict(config)) == config


def test_without_plain_files_there_are_the_corpora_alone() -> None:
    corpus = CorpusConfig(pairs=("a.tsv",), weight=3)
    assert DataConfig(corpora=(corpus,)).all_corpora == (corpus,)
    assert DataConfig().weights == ()


@pytest.mark.parametrize(
    ("corpora", "message"),
    [
        ("a.tsv", "data.corpora is 'a.tsv', accepted is [[data.corpora]] tables in a file"),
        (["a.tsv"], "accepted is [[data.corpora]] tables in a file"),
        ([{}], "[[data.corpora]] 1: data.corpora has no files"),
        ([{"pairs": "a.tsv", "weight": 0}], "1: data.corpora.weight is 0.0, accepted is a number"),
        ([{"pairs": "a.tsv", "weight": "x"}], "data.corpora.weight is 'x', accepted is a number"),
        ([{"pairs": "a.tsv"}, {"source": "a"}], "2: data.corpora.source is given without data.c"),
        ([{"pairs": 7}], "1: data.corpora.pairs is 7, accepted is a file name or a list of them"),
        ([{"source": "a", "target": ["b", "c"]}], "source has 1 files and data.corpora.target 2"),
        ([{"source": "a", "target": "b", "pairs": "c"}], "both given, accepted is one"),
    ],
)
def test_a_table_that_is_no_corpus_is_refused_by_its_number(corpora: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        build_config({"data": {"corpora": corpora}})
    assert message in str(caught.value)


def test_a_misspelt_key_of_a_table_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(InputError, match=r"1: data\.corpora\.weigh is not a setting") as caught:
        build_config({"data": {"corpora": [{"pairs": "a.tsv", "weigh": 2}]}})
    assert caught.value.hint == "did you mean data.corpora.weight?"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_tokenizer": "a"}, "source_tokenizer is given without data.target_tokenizer"),
        ({"target_tokenizer": "a"}, "target_tokenizer is given without data.source_tokenizer"),
        (
            {"tokenizer": "a", "source_tokenizer": "b", "target_tokenizer": "c"},
            "data.tokenizer and data.source_tokenizer are both given, accepted is one",
        ),
        ({"bpe_dropout": 1}, "data.bpe_dropout is 1.0, accepted is 0 or more and below 1"),
    ],
)
def test_settings_of_the_pieces_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        build_config({"data": settings})
    assert message in str(caught.value)
