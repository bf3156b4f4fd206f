from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import (
    Config,
    DataConfig,
    DecodingConfig,
    InputError,
    ModelConfig,
    TrainingConfig,
)
from dragoman.settings import (
    FORMAT_VERSION,
    SECTIONS,
    build_config,
    build_decoding,
    read_recipe,
    read_settings,
    write_config,
)

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
SOUND = {
    "model": st.fixed_dictionaries(
        {},
        optional={
            "d_model": st.sampled_from([8, 24, 512]),
            "d_k": st.integers(0, 97),
            "dropout": st.floats(0, 0.99),
            "norm_epsilon": st.floats(1e-12, 1e-3),
            "positions": st.sampled_from(["learned", "none", "alibi"]),
            "cross_attention": st.booleans(),
        },
    ),
    "data": st.fixed_dictionaries(
        {},
        optional={
            "pairs": st.lists(st.text(TEXT, max_size=7), max_size=3),
            "source_language": st.text(TEXT, max_size=5),
            "max_length_ratio": st.floats(0, 1e6),
            "drop_empty": st.booleans(),
        },
    ),
    "training": st.fixed_dictionaries(
        {},
        optional={
            "seed": st.integers(0, 1 << 60),
            "peak_learning_rate": st.floats(1e-300, 1e300),
            "precision": st.sampled_from(["float32", "bfloat16"]),
        },
    ),
}


def refusal(**values: Any) -> InputError:
    """Returns how settings, named section__field, are refused."""
    layer: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, key = name.split("__")
        layer.setdefault(section, {})[key] = value
    with pytest.raises(InputError) as caught:
        build_config(layer)
    assert "\n" not in str(caught.value)
    return caught.value


@settings(deadline=None, max_examples=50)
@given(st.fixed_dictionaries(SOUND))
def test_a_configuration_comes_back_from_toml(
    tmp_path_factory: pytest.TempPathFactory, layer: dict[str, dict[str, Any]]
) -> None:
    config = build_config(layer)
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(write_config(config), "utf-8")
    assert build_config(read_settings(path)) == config


def test_a_written_configuration_is_complete(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(write_config(Config()), "utf-8")
    found = read_settings(tmp_path / "config.toml")
    assert found.keys() == SECTIONS.keys()
    for section, kind in SECTIONS.items():
        assert found[section].keys() == {field.name for field in dataclasses.fields(kind)}


def test_defaults_are_the_papers_base_model() -> None:
    model, training, decoding = ModelConfig(), TrainingConfig(), DecodingConfig()
    assert (model.num_encoder_layers, model.num_decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.num_heads) == (512, 2048, 8)
    assert (model.d_k, model.d_v) == (64, 64)
    assert (model.norm_place, model.positions, model.feed_forward) == ("post", "sinusoidal", "relu")
    assert (model.dropout, model.embedding_dropout) == (0.1, 0.1)
    assert (model.attention_dropout, model.feed_forward_dropout) == (0.0, 0.0)
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (training.schedule, training.warmup_steps, training.max_steps) == ("noam", 4000, 100_000)
    assert (training.label_smoothing, training.batch_tokens) == (0.1, 25_000)
    assert (decoding.beam_size, decoding.length_penalty) == (4, 0.6)
    assert decoding.max_output_length(7) == 57


def test_a_later_layer_beats_an_earlier_field_by_field() -> None:
    config = build_config(
        {"model": {"d_model": 64, "d_ff": 128}, "training": {"seed": 3}},
        {"model": {"d_ff": 256}},
        {"training": {"seed": "5"}},
    )
    assert (config.model.d_model, config.model.d_ff, config.training.seed) == (64, 256, 5)
    assert config.data == DataConfig()


def test_texts_of_a_command_line_become_the_types_of_the_fields() -> None:
    config = build_config(
        {
            "model": {"d_model": "64", "dropout": "0.3", "causal_mask": "false"},
            "data": {"pairs": "a.tsv", "valid_pairs": ["b.tsv", "c.tsv"]},
        }
    )
    assert (config.model.d_model, config.model.dropout, config.model.causal_mask) == (
        64,
        0.3,
        False,
    )
    assert (config.data.pairs, config.data.valid_pairs) == (("a.tsv",), ("b.tsv", "c.tsv"))


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"model__d_modle": 7}, "model.d_modle is not a setting", "did you mean model.d_model?"),
        ({"training__warmup": 7}, "training.warmup is not a setting", "training.warmup_steps?"),
        ({"trainign__seed": 7}, "trainign is not a section of the settings", "training?"),
        ({"model__positions": "learnd"}, "one of sinusoidal, learned, rotary", "learned?"),
        ({"model__zzz": 7}, "model.zzz is not a setting", None),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_right_one(
    values: dict[str, Any], message: str, hint: str | None
) -> None:
    error = refusal(**values)
    assert message in str(error)
    assert error.hint is None if hint is None else str(error.hint).endswith(hint)


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        ({"model__d_model": 0}, "a number above 0"),
        ({"model__d_model": -512}, "a number above 0"),
        ({"model__d_model": "many"}, "a whole number"),
        ({"model__d_model": 5.5}, "a whole number"),
        ({"model__d_model": True}, "a whole number"),
        ({"model__d_model": 2**63}, "a whole number"),
        ({"model__d_model": "9" * 5000}, "a whole number"),
        ({"model__dropout": 10**400}, "a number"),
        ({"data__source": ["a\0b"]}, "a text in UTF-8"),
        ({"data__tokenizer": "na\udce9"}, "a text in UTF-8"),
        ({"model__num_encoder_layers": 0}, "a number above 0"),
        ({"model__dropout": 1.0}, "0 or more and below 1"),
        ({"model__dropout": "nan"}, "a number"),
        ({"model__dropout": float("inf")}, "a number"),
        ({"model__causal_mask": "yes"}, "true or false"),
        ({"model__causal_mask": 1}, "true or false"),
        ({"model__source_vocab_size": 3}, "4 or more"),
        ({"model__norm_place": 7}, "a text"),
        ({"data__vocab_size": 299}, "300 or more"),
        ({"data__max_length": 1}, "0, or 2 or more"),
        ({"data__source": 7}, "a file name or a list of them"),
        ({"data__held_out_share": 1.5}, "0 or more and below 1"),
        ({"training__batch_tokens": 0}, "a number above 0"),
        ({"training__warmup_steps": 0}, "a number above 0"),
        ({"training__label_smoothing": 1}, "0 or more and below 1"),
        ({"training__average_last": 7}, "at most training.keep_checkpoints (5)"),
        ({"training__patience": -1}, "0 or more"),
    ],
)
def test_an_impossible_value_is_refused_with_place_value_and_what_is_accepted(
    values: dict[str, Any], accepted: str
) -> None:
    [(name, value)] = values.items()
    place, found = str(refusal(**values)).split(" is ", 1)
    assert place == name.replace("__", ".")
    assert found.startswith((repr(value), str(value)))
    assert found.endswith(f", accepted is {accepted}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model__d_model": 13, "model__num_heads": 3},
            "model.d_model is 13, accepted is a multiple of model.num_heads (3)",
        ),
        (
            {"model__positions": "rotary", "model__d_k": 7},
            "model.d_k is 7, accepted is an even number for rotary positions",
        ),
        (
            {"model__source_vocab_size": 7, "model__target_vocab_size": 11},
            "the source vocabulary has 7 entries and the target vocabulary 11",
        ),
        ({"data__source": "a"}, "data.source is given without data.target"),
        ({"data__valid_target": "a"}, "data.valid_target is given without data.valid_source"),
        (
            {"data__source": ["a", "b"], "data__target": "c"},
            "data.source has 2 files and data.target 1, accepted is as many of each",
        ),
        (
            {"data__source": "a", "data__target": "b", "data__pairs": "c"},
            "data.pairs and data.source are both given, accepted is one",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    values: dict[str, Any], message: str
) -> None:
    assert message in str(refusal(**values))


def test_free_widths_need_no_multiple_of_the_heads() -> None:
    config = ModelConfig(d_model=13, num_heads=3, d_k=7, d_v=2)
    assert (config.d_k, config.d_v) == (7, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam_size": 0}, "decoding.beam_size is 0, accepted is a number above 0"),
        ({"n_best": 5}, "decoding.n_best is 5, accepted is at most decoding.beam_size (4)"),
        ({"length_penalty": 11}, "decoding.length_penalty is 11.0, accepted is from -10 to 10"),
        ({"length_penalty_form": "log"}, "accepted is one of gnmt, power"),
        ({"max_source_length": 1}, "decoding.max_source_length is 1, accepted is 2 or more"),
        ({"max_output_extra": 0, "max_output_factor": 0}, "above 0 where max_output_factor is 0"),
    ],
)
def test_an_impossible_search_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build_decoding(values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"[model", "not a TOML file"),
        (b"\xff", "not a TOML file"),
        (b"seed = 3", "seed stands outside of a [section]"),
        (b"format_version = 'x'", "format version x, accepted is at most"),
        (f"format_version = {FORMAT_VERSION + 1}".encode(), "accepted is at most"),
        (b"preset = 3", "preset is 3, accepted is a preset's name"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused_by_its_name(
    tmp_path: Path, document: bytes, message: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(document)
    with pytest.raises(InputError) as caught:
        read_settings(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_is_absent_or_a_folder_is_refused_by_its_name(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            read_settings(path)


def test_a_recipe_names_its_preset(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps({"preset": "tiny", "training": {"seed": 3}}), "utf-8")
    assert read_recipe(path) == ("tiny", {"training": {"seed": 3}})
