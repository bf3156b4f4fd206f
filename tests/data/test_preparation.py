from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import EOS, DataConfig, InputError
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.preparation import Preparation, prepare

CLEAN = [(f"a {n} {m}", f"{m} {n} b") for n in range(31) for m in range(7)]


def prepare_pairs(
    folder: Path, pairs: list[tuple[str, str]] = CLEAN, **settings: Any
) -> Preparation:
    """Prepares pairs in a folder, which it makes."""
    folder.mkdir()
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    config = DataConfig(pairs=(str(folder / "pairs.tsv"),), vocab_size=300, **settings)
    return prepare(config, folder)


def read_back(folder: Path, name: str, prepared: Preparation) -> list[tuple[str, str]]:
    corpus = EncodedCorpus.open(folder / name)
    assert all(side[-1] == EOS for pair in corpus for side in pair)
    return [
        (prepared.source_tokenizer.decode(source), prepared.target_tokenizer.decode(target))
        for source, target in (corpus[index] for index in range(len(corpus)))
    ]


def read_validation_text(folder: Path) -> list[tuple[str, str]]:
    rows = map(json.loads, (folder / "validation.jsonl").read_text("utf-8").splitlines())
    return [(row["source"], row["target"]) for row in rows]


def test_every_pair_left_out_is_counted_by_its_reason(tmp_path: Path) -> None:
    spoilt = [
        *CLEAN,
        ("", "b"),
        (" ", "b"),
        ("same", "same"),
        CLEAN[0],
        ("a " * 50, "b " * 50),
        ("a", "b " * 19),
    ]
    (tmp_path / "v.tsv").write_text("a\tb\n", "utf-8")
    settings = {"max_length": 47, "max_length_ratio": 5, "valid_pairs": (str(tmp_path / "v.tsv"),)}
    prepared = prepare_pairs(tmp_path / "d", spoilt, **settings)
    left_out = {"empty": 2, "identical": 1, "duplicate": 1, "too long": 1, "length ratio": 1}
    assert prepared.counts == {"read": len(spoilt), "kept": len(CLEAN), **left_out}
    assert prepared.report == (
        f"read {len(spoilt)} pairs, kept {len(CLEAN)}: "
        "empty 2, identical 1, duplicate 1, too long 1, length ratio 1"
    )


def test_what_is_encoded_is_the_text_and_nothing_is_lost(tmp_path: Path) -> None:
    prepared = prepare_pairs(tmp_path / "d", held_out_share=0.1)
    training = read_back(tmp_path / "d", "training", prepared)
    validation = read_back(tmp_path / "d", "validation", prepared)
    assert sorted(training + validation) == sorted(CLEAN)
    assert validation == read_validation_text(tmp_path / "d")
    assert [pair for pair in CLEAN if pair in training] == training


def test_the_same_pairs_are_held_out_in_any_order_and_beside_any_others(tmp_path: Path) -> None:
    def held_out(name: str, pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
        prepare_pairs(tmp_path / name, pairs, held_out_share=0.2)
        return set(read_validation_text(tmp_path / name))

    whole = held_out("whole", CLEAN)
    assert 20 < len(whole) < 70
    assert held_out("reversed", CLEAN[::-1]) == whole
    assert held_out("half", CLEAN[:100]) == whole & set(CLEAN[:100])


@pytest.mark.parametrize("drop_duplicates", [True, False])
def test_at_most_so_many_are_held_out_and_none_of_them_is_trained_on(
    tmp_path: Path, drop_duplicates: bool
) -> None:
    prepared = prepare_pairs(
        tmp_path / "d",
        CLEAN * 2,
        drop_duplicates=drop_duplicates,
        held_out_share=0.5,
        held_out_most=7,
    )
    validation = read_validation_text(tmp_path / "d")
    assert prepared.num_validation == len(validation) == len(set(validation)) == 7
    assert prepared.held_out
    assert not set(validation) & set(read_back(tmp_path / "d", "training", prepared))


def test_validation_files_are_taken_whole_and_nothing_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "valid.tsv").write_text("a\tb\na\tb\n\t\n", "utf-8")
    prepared = prepare_pairs(tmp_path / "d", valid_pairs=(str(tmp_path / "valid.tsv"),))
    assert not prepared.held_out
    assert read_validation_text(tmp_path / "d") == [("a", "b"), ("a", "b"), ("", "")]
    assert prepared.counts["kept"] == len(CLEAN)


def test_the_tokenizer_never_sees_what_is_held_out(tmp_path: Path) -> None:
    prepare_pairs(tmp_path / "whole", held_out_share=0.2)
    kept = [pair for pair in CLEAN if pair not in read_validation_text(tmp_path / "whole")]
    (tmp_path / "v.tsv").write_text("a\tb\n", "utf-8")
    without = prepare_pairs(tmp_path / "kept", kept, valid_pairs=(str(tmp_path / "v.tsv"),))
    again = prepare_pairs(tmp_path / "again", held_out_share=0.2)
    assert again.source_tokenizer.fingerprint == without.source_tokenizer.fingerprint


def test_a_vocabulary_is_joint_unless_each_side_is_to_have_its_own(tmp_path: Path) -> None:
    joint = prepare_pairs(tmp_path / "joint", held_out_share=0.1)
    assert joint.source_tokenizer is joint.target_tokenizer
    apart = prepare_pairs(tmp_path / "apart", held_out_share=0.1, joint_vocabulary=False)
    assert apart.source_tokenizer.fingerprint != apart.target_tokenizer.fingerprint


def test_a_given_tokenizer_is_used_as_it_is(tmp_path: Path) -> None:
    learnt = prepare_pairs(tmp_path / "first", held_out_share=0.1).source_tokenizer
    (tmp_path / "t.model").write_bytes(learnt.model)
    other = [(f"{a} x", b) for a, b in CLEAN]
    given = prepare_pairs(
        tmp_path / "d", other, held_out_share=0.1, tokenizer=str(tmp_path / "t.model")
    )
    assert given.target_tokenizer.fingerprint == learnt.fingerprint


@pytest.mark.parametrize(
    ("pairs", "settings", "message"),
    [
        ([("a", "a"), ("", "b")], {}, "no pair is left of the 2 read: empty 1, identical 1"),
        (CLEAN, {"max_length": 2}, "no pair is left of the 217 read: too long 2"),
        (CLEAN, {"held_out_share": 0.0}, "no pair of 217 is left for validation"),
        (CLEAN, {"held_out_most": 0}, "no pair of 217 is left for validation"),
    ],
)
def test_text_that_leaves_nothing_is_refused_with_its_counts(
    tmp_path: Path, pairs: list[tuple[str, str]], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        prepare_pairs(tmp_path / "d", pairs, **settings)
    assert caught.value.hint is not None


def test_no_files_are_refused_with_how_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training text is given") as caught:
        prepare(DataConfig(), tmp_path)
    assert caught.value.hint == "use --source F --target F, or --pairs F.tsv"
