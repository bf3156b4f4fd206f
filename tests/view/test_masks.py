from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from dragoman.decoding.translator import Translator
from dragoman.model import hooks
from dragoman.model.transformer import Transformer
from dragoman.view.masks import draw_masks, read_masks
from dragoman.view.reading import model_of

SOURCE = torch.tensor([[5, 7, 11, 13, 3], [17, 3, 0, 0, 0]])
TARGET = torch.tensor([[5, 7, 3], [17, 3, 0]])


def model_with(make_translator: Callable[..., Translator], **settings: bool) -> Transformer:
    model = model_of(make_translator(**settings))
    assert isinstance(model, Transformer)
    return model


def test_masks_are_where_the_models_weights_are_not_zero(
    make_translator: Callable[..., Translator],
) -> None:
    model = model_with(make_translator)
    encoder, cross, decoder, _ = read_masks(model, SOURCE, TARGET)
    twin = model.readable()
    for mask, name in (
        (encoder, "encoder.layers.0.self_attention.weights"),
        (cross, "decoder.layers.0.cross_attention.weights"),
        (decoder, "decoder.layers.0.self_attention.weights"),
    ):
        with torch.inference_mode(), hooks.record(twin, [name]) as seen:
            twin(SOURCE, twin.decoder_input(TARGET))
        np.testing.assert_array_equal(mask.allowed, (seen[name][:, 0] > 0).numpy())
    assert [mask.shape for mask in (encoder, cross, decoder)] == [
        (2, 1, 1, 5),
        (2, 1, 1, 5),
        (1, 1, 3, 3),
    ]


def test_both_masks_together_hide_what_either_hides(
    make_translator: Callable[..., Translator],
) -> None:
    *_, decoder, both = read_masks(model_with(make_translator), SOURCE, TARGET)
    real = np.array([[True, True, True], [True, True, False]])  # EOS is never read
    np.testing.assert_array_equal(both.allowed, decoder.allowed & real[:, None, :])
    assert both.shape == (2, 1, 3, 3)


def test_a_mask_that_a_model_lacks_hides_nothing(
    make_translator: Callable[..., Translator], tmp_path: Path
) -> None:
    model = model_with(make_translator, padding_mask=False, cross_attention=False)
    masks = read_masks(model, SOURCE, TARGET)
    assert [mask.name.partition(":")[0] for mask in masks][:2] == ["encoder", "decoder"]
    assert masks[0].shape is None
    assert masks[0].allowed.all()
    draw_masks(masks, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
