"""What a model looks at, token by token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import EOS, InputError
from dragoman.decoding.translator import Translator
from dragoman.model import hooks
from dragoman.view.reading import label_pieces, model_of, read

TEXT, TARGET = "the cat saw 你", "die katze sah 你🙂"
LONG = " ".join(["the cat sat"] * 40)


@pytest.mark.parametrize("text", [TEXT, LONG])
def test_rows_sum_to_one_over_the_source_and_have_every_layer_and_head(
    translator: Translator, text: str
) -> None:
    reading = read(translator, text, TARGET)
    source, target = len(reading.source.ids), len(reading.target.ids)
    assert reading.encoder is not None
    assert reading.decoder is not None
    assert reading.cross is not None
    assert reading.encoder.shape == (2, 5, source, source)
    assert reading.decoder.shape == (3, 5, target, target)
    assert reading.cross.shape == (3, 5, target, source)
    for weights in (reading.encoder, reading.decoder, reading.cross):
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert not np.triu(reading.decoder, 1).any()


def test_weights_are_those_of_the_readable_model(translator: Translator) -> None:
    reading, twin = read(translator, TEXT, TARGET), model_of(translator).readable()
    source, target = (torch.tensor([side.ids]) for side in (reading.source, reading.target))
    for kind, stack, attention in (
        ("encoder", "encoder", "self_attention"),
        ("decoder", "decoder", "self_attention"),
        ("cross", "decoder", "cross_attention"),
    ):
        for layer, weights in enumerate(getattr(reading, kind)):
            name = f"{stack}.layers.{layer}.{attention}.weights"
            with torch.inference_mode(), hooks.record(twin, [name]) as seen:
                twin(source, twin.decoder_input(target))
            np.testing.assert_array_equal(weights, seen[name][0].numpy())


def test_weights_are_had_by_the_name_of_an_attention_or_of_a_head(translator: Translator) -> None:
    reading = read(translator, TEXT, TARGET)
    assert reading.cross is not None
    one = reading.weights("decoder.layers.1.cross_attention.head.3")
    np.testing.assert_array_equal(one.values, reading.cross[1, 3])
    assert (one.queries, one.keys) == (reading.target, reading.source)
    last = reading.weights(f"decoder.layers.{len(reading.cross) - 1}.cross_attention")
    np.testing.assert_array_equal(last.values, reading.alignment())
    assert reading.weights("decoder.layers.0.self_attention").queries == reading.target_input
    for name in ("", "decoder.layers.3.cross_attention", "encoder.layers.0.cross_attention"):
        with pytest.raises(InputError, match="is not an attention of this model"):
            reading.weights(name)


def test_ids_decode_to_the_texts_with_a_tokenizer_for_each_side(translator: Translator) -> None:
    reading = read(translator, TEXT, TARGET)
    assert translator.source_tokenizer.decode(reading.source.ids) == TEXT == reading.text
    assert translator.target_tokenizer.decode(reading.target.ids) == TARGET == reading.translation
    assert reading.source.pieces == translator.source_tokenizer.pieces(reading.source.ids)
    assert reading.target.pieces == translator.target_tokenizer.pieces(reading.target.ids)


def test_alignment_and_probability_are_those_that_the_translator_gives(
    translator: Translator,
) -> None:
    reading, [found] = read(translator, TEXT), translator.translate([TEXT], alignment=True)
    assert found.alignment is not None
    np.testing.assert_allclose(reading.alignment(), found.alignment, atol=1e-6)
    forced, [score] = read(translator, TEXT, TARGET), translator.score([TEXT], [TARGET])
    assert forced.log_probability == pytest.approx(score, abs=1e-3)


def test_without_a_target_it_is_the_translation_that_is_looked_at(translator: Translator) -> None:
    reading, [found] = read(translator, TEXT), translator.translate([TEXT])
    assert reading.translation == found.text
    assert reading.target_input.ids[1:] == reading.target.ids[:-1]


def test_a_source_is_cut_where_translate_cuts_it(
    make_translator: Callable[..., Translator],
) -> None:
    reading = read(make_translator(positions="learned", max_positions=7), LONG, "die")
    assert len(reading.source.ids) == 7
    assert reading.source.ids[-1] == EOS


def test_a_recurrent_model_shows_what_it_attends_to(
    make_translator: Callable[..., Translator],
) -> None:
    reading = read(make_translator(architecture="recurrent", d_model=10), TEXT, TARGET)
    assert reading.encoder is reading.decoder is None
    assert reading.cross is not None
    assert reading.cross.shape == (1, 1, len(reading.target.ids), len(reading.source.ids))
    np.testing.assert_allclose(reading.cross.sum(-1), 1.0, atol=1e-5)


def test_a_model_that_never_looks_at_the_source_has_no_alignment(
    make_translator: Callable[..., Translator],
) -> None:
    reading = read(make_translator(cross_attention=False), TEXT, TARGET)
    assert reading.cross is None
    with pytest.raises(InputError, match="accepted is a model with cross-attention"):
        reading.alignment()
    plain = make_translator(architecture="recurrent", d_model=10, cross_attention=False)
    with pytest.raises(InputError) as refused:
        read(plain, TEXT, TARGET).weights("decoder.layers.0.cross_attention")
    assert refused.value.hint == "it has none"


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="␛\u2581\u2585␣")))
@settings(max_examples=50, deadline=None)
def test_labels_are_as_many_as_pieces_and_hold_every_character(
    tokenizers: tuple, text: str
) -> None:
    pieces = tokenizers[0].pieces(tokenizers[0].encode(text))
    labels = label_pieces(pieces)
    assert len(labels) == len(pieces)
    shown = "".join(labels)
    for character in text:
        assert {" ": "␣"}.get(character, character) in shown or f"U+{ord(character):04X}" in shown


def test_the_bytes_of_a_character_are_shown_as_the_character() -> None:
    pieces = ["▁a", "<0xE4>", "<0xBD>", "<0xA0>", "<0x62>", "<0xFF>", "<0xE4>", "</s>"]
    labels = ["␣a", "你 1/3", "你 2/3", "你 3/3", "b", "<0xFF>", "<0xE4>", "</s>"]
    assert label_pieces(pieces) == labels
