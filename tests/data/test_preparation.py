from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from dragoman.config import EOS, CorpusConfig, DataConfig, InputError
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.preparation import Preparation, prepare
from dragoman.data.selection import hash_pair
from dragoman.data.tokenizer import Tokenizer, learn_tokenizer

SIDES = ("source_tokenizer", "target_tokenizer")
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
        (prepared.tokenizers.source.decode(source), prepared.tokenizers.target.decode(target))
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
    counts = {"read": len(spoilt), "kept": len(CLEAN), "held out": 0, **left_out}
    assert prepared.counts == counts
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


def test_of_a_small_corpus_one_pair_is_held_out(tmp_path: Path) -> None:
    prepared = prepare_pairs(tmp_path / "d", CLEAN[:2], held_out_share=1e-9)
    assert prepared.held_out
    assert prepared.counts["kept"] == prepared.num_validation == 1


def test_a_held_out_pair_is_left_out_for_its_length_as_any_other(tmp_path: Path) -> None:
    settings = {"held_out_share": 0.3, "max_length": 13}
    long = [(f"{'a ' * 17}{i}", f"b {i}") for i in range(53)]
    prepared = prepare_pairs(tmp_path / "d", CLEAN + long, **settings)
    counts = prepared.counts
    assert not set(read_validation_text(tmp_path / "d")) & set(long)
    assert counts["too long"] == len(long)
    assert counts["held out"] == prepared.num_validation > 13
    assert counts["read"] == len(CLEAN + long) == sum(counts.values()) - counts["read"]


def test_held_out_pairs_that_are_all_too_long_are_no_validation(tmp_path: Path) -> None:
    long = min(((f"a {i}", "b " * 17) for i in range(10_007)), key=lambda pair: hash_pair(*pair))
    with pytest.raises(InputError, match=r"left for validation of the 218 read: too long 1"):
        prepare_pairs(tmp_path / "d", [*CLEAN, long], held_out_share=1e-9, max_length=15)


def test_corpora_are_encoded_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\n", "utf-8")
    (tmp_path / "b.tsv").write_text("e\tf\nc\td\n", "utf-8")
    corpora = tuple(CorpusConfig(pairs=(str(tmp_path / f"{name}.tsv"),)) for name in "ab")
    valid = (str(tmp_path / "a.tsv"),)
    prepared = prepare_pairs(tmp_path / "d", CLEAN, corpora=corpora, valid_pairs=valid)
    assert EncodedCorpus.open(tmp_path / "d" / "training").parts == (len(CLEAN), 2, 1)
    pairs = [*CLEAN, ("a", "b"), ("c", "d"), ("e", "f")]
    assert read_back(tmp_path / "d", "training", prepared) == pairs


@pytest.mark.parametrize("spoilt", ["a 0 0\t0 0 b", "a\t" + "b " * 99])
def test_a_corpus_of_which_nothing_is_left_is_named(tmp_path: Path, spoilt: str) -> None:
    (tmp_path / "spoilt.tsv").write_text(spoilt, "utf-8")
    corpora = (CorpusConfig(pairs=(str(tmp_path / "spoilt.tsv"),)),)
    with pytest.raises(InputError, match=r"no pair is left of .*spoilt\.tsv, among the 218 read"):
        prepare_pairs(tmp_path / "d", CLEAN, corpora=corpora, max_length=53)


def test_a_large_text_is_sampled_evenly_for_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def learn(texts: Iterable[str], vocab_size: int) -> Tokenizer:
        seen.extend(texts)
        return learn_tokenizer(seen, vocab_size)

    monkeypatch.setattr("dragoman.data.preparation.learn_tokenizer", learn)
    monkeypatch.setattr("dragoman.data.preparation._LEARNT_SIZE", 5_000)
    (tmp_path / "v.tsv").write_text("a\tb\n", "utf-8")
    valid = (str(tmp_path / "v.tsv"),)
    first, second = (
        prepare_pairs(tmp_path / name, valid_pairs=valid).tokenizers.source for name in "ab"
    )
    assert first.model == second.model
    sample = list(zip(seen[::2], seen[1::2], strict=True))
    places = [CLEAN.index(pair) for pair in sample[: len(sample) // 2]]
    assert 40 < len(places) < 100
    assert places == sorted(set(places))
    assert 70 < sum(places) / len(places) < 150


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
    assert again.tokenizers.source.fingerprint == without.tokenizers.source.fingerprint


def test_a_vocabulary_is_joint_unless_each_side_is_to_have_its_own(tmp_path: Path) -> None:
    joint = prepare_pairs(tmp_path / "joint", held_out_share=0.1)
    assert joint.tokenizers.source is joint.tokenizers.target
    apart = prepare_pairs(tmp_path / "apart", held_out_share=0.1, joint_vocabulary=False)
    assert apart.tokenizers.source.fingerprint != apart.tokenizers.target.fingerprint


def test_a_given_tokenizer_is_used_as_it_is(tmp_path: Path) -> None:
    learnt = prepare_pairs(tmp_path / "first", held_out_share=0.1).tokenizers.source
    (tmp_path / "t.model").write_bytes(learnt.model)
    other = [(f"{a} x", b) for a, b in CLEAN]
    given = prepare_pairs(
        tmp_path / "d", other, held_out_share=0.1, tokenizer=str(tmp_path / "t.model")
    )
    assert given.tokenizers.target.fingerprint == learnt.fingerprint


def test_each_side_can_be_given_a_tokenizer_of_its_own(tmp_path: Path) -> None:
    files = {}
    for side, letters in (("source", "abc"), ("target", "xyz")):
        files[f"{side}_tokenizer"] = str(tmp_path / f"{side}.model")
        (tmp_path / f"{side}.model").write_bytes(learn_tokenizer([letters], 300).model)
    prepared = prepare_pairs(tmp_path / "d", **files)
    assert prepared.tokenizers.source.model == (tmp_path / "source.model").read_bytes()
    assert prepared.tokenizers.target.model == (tmp_path / "target.model").read_bytes()
    assert EncodedCorpus.open(tmp_path / "d" / "training").parts == (len(CLEAN) - 1,)


@pytest.mark.parametrize("setting", ["tokenizer", "source_tokenizer", "target_tokenizer"])
def test_a_given_tokenizer_that_is_none_is_named_with_its_setting(
    tmp_path: Path, setting: str
) -> None:
    (tmp_path / "sound.model").write_bytes(learn_tokenizer(["abc"], 300).model)
    sides = {} if setting == "tokenizer" else dict.fromkeys(SIDES, str(tmp_path / "sound.model"))
    with pytest.raises(InputError, match=rf"^data\.{setting}: .*absent\.model: No such file"):
        prepare_pairs(tmp_path / "d", **(sides | {setting: str(tmp_path / "absent.model")}))


def test_dropout_of_merges_needs_merges(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(pair) for pair in CLEAN), model_type="unigram",
        model_writer=(model := io.BytesIO()), vocab_size=275, hard_vocab_limit=False,
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, byte_fallback=True, minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
    )  # fmt: skip
    (tmp_path / "unigram.model").write_bytes(model.getvalue())
    given = {"tokenizer": str(tmp_path / "unigram.model")}
    assert prepare_pairs(tmp_path / "plain", **given).counts["kept"]
    with pytest.raises(InputError, match=r"data\.bpe_dropout is 0\.1, .* byte-pair"):
        prepare_pairs(tmp_path / "d", bpe_dropout=0.1, **given)


def test_a_validation_line_beyond_all_bounds_is_left_out_and_counted(tmp_path: Path) -> None:
    valid = [CLEAN[0], ("a " * 5000, "b"), CLEAN[1]]
    lines = "".join(f"{source}\t{target}\n" for source, target in valid)
    (tmp_path / "valid.tsv").write_text(lines, encoding="utf-8")
    given = {"valid_pairs": (str(tmp_path / "valid.tsv"),)}
    prepared = prepare_pairs(tmp_path / "d", max_length=499, **given)
    assert (prepared.num_validation, prepared.num_validation_long) == (2, 1)
    (tmp_path / "valid.tsv").write_text(lines.splitlines()[1] + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="no pair is left for validation"):
        prepare_pairs(tmp_path / "none", max_length=499, **given)


@pytest.mark.parametrize(
    ("pairs", "settings", "message"),
    [
        ([("a", "a"), ("", "b")], {}, "no pair is left of the 2 read: empty 1, identical 1"),
        (CLEAN, {"max_length": 2}, "no pair is left of the 217 read: held out 1, too long 216"),
        (CLEAN[:1], {}, "no pair is left of the 1 read: held out 1"),
        (CLEAN, {"held_out_share": 0.0}, "no validation text is given, data.held_out_share is 0"),
        (CLEAN, {"held_out_most": 0}, "data.held_out_most is 0, accepted is above 0"),
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


def test_a_pipe_is_refused_for_it_can_be_read_but_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pairs.tsv")
    with pytest.raises(InputError, match=r"pairs\.tsv: a pipe, accepted is a file"):
        prepare(DataConfig(pairs=(str(tmp_path / "pairs.tsv"),)), tmp_path)
