from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from dragoman.config import BOS, EOS, PAD, InputError, ModelConfig
from dragoman.model.attention import FusedMultiHeadAttention, MultiHeadAttention
from dragoman.model.transformer import Transformer
from dragoman.presets import preset_settings

from .toys import SWITCHES, toy_ids, toy_model


def count_parameters(**settings: Any) -> float:
    """Returns how many millions of parameters the base model has with these changes."""
    with torch.device("meta"):
        model = Transformer(ModelConfig(**settings))
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


def test_base_and_big_have_the_computed_parameters() -> None:
    assert count_parameters() == pytest.approx(63.0, abs=0.1)
    assert count_parameters(**preset_settings("paper-big")["model"]) == pytest.approx(
        214.2, abs=0.1
    )


def test_changes_of_table_3_change_the_parameters_as_its_text_implies() -> None:
    base = count_parameters()
    shallow = count_parameters(num_encoder_layers=5, num_decoder_layers=5)
    assert base - shallow == pytest.approx(7.35, abs=0.005)
    assert count_parameters(d_k=16) - base == pytest.approx(-7.1, abs=0.05)
    assert count_parameters(d_ff=4096) - base == pytest.approx(25.2, abs=0.05)
    for num_heads, d_k in ((1, 512), (4, 128), (16, 32), (32, 16)):
        assert count_parameters(num_heads=num_heads, d_k=d_k, d_v=d_k) == base


def test_the_decoder_reads_the_target_one_to_the_right_and_never_eos() -> None:
    target = torch.tensor([[5, 7, 11, EOS], [13, EOS, PAD, PAD]])
    for start, first in (("bos", BOS), ("eos", EOS), ("pad", PAD), ("zero", PAD)):
        found = toy_model(decoder_start=start).decoder_input(target)
        assert found.tolist() == [[first, 5, 7, 11], [first, 13, PAD, PAD]]


@settings(deadline=None, max_examples=20)
@given(SWITCHES)
def test_the_readable_twin_shares_its_parameters_and_computes_the_same(
    switches: dict[str, Any],
) -> None:
    model = toy_model(spread=0.25, **switches)
    twin = model.readable()
    ours, theirs = (dict(each.named_parameters(remove_duplicate=False)) for each in (model, twin))
    assert ours.keys() == theirs.keys()
    assert all(ours[name] is theirs[name] for name in ours)
    source, target = toy_ids(5, 3), toy_ids(7, 2)
    difference = (model(source, target) - twin(source, target)).abs().max()
    assert difference < 1e-10


def test_only_the_twin_is_made_of_readable_attention() -> None:
    def kinds(model: Transformer) -> set[type]:
        return {type(each) for each in model.modules() if isinstance(each, MultiHeadAttention)}

    assert kinds(toy_model()) == {FusedMultiHeadAttention}
    assert kinds(toy_model().readable()) == {MultiHeadAttention}


def test_the_twin_shares_the_statistics_of_batch_norm_and_the_mode() -> None:
    model = toy_model(norm="batch")
    twin = model.readable()
    twin(toy_ids(5, 3), toy_ids(7, 2))
    assert all(each is twin.get_buffer(name) for name, each in model.named_buffers())
    assert model.eval().readable().training is False
    source, target = toy_ids(5), toy_ids(7)
    torch.testing.assert_close(model(source, target), model.readable()(source, target))


@settings(deadline=None, max_examples=20)
@given(SWITCHES)
def test_arrays_are_float32_hold_ties_once_and_come_back(switches: dict[str, Any]) -> None:
    model, other = (toy_model(spread=spread, **switches).float() for spread in (0.25, 0.1))
    arrays = model.to_arrays()
    assert all(array.dtype == np.float32 for array in arrays.values())
    assert sum(array.size for array in arrays.values()) == sum(
        p.numel() for p in model.parameters()
    )
    other.load_arrays(arrays)
    source, target = toy_ids(5, 3), toy_ids(7, 2)
    assert torch.equal(other(source, target), model(source, target))


def test_arrays_are_a_copy() -> None:
    model = toy_model().float()
    arrays = model.to_arrays()
    kept = arrays["source_embedding.token.weight"].copy()
    torch.nn.init.zeros_(model.output_weight)
    assert np.array_equal(arrays["source_embedding.token.weight"], kept)


def test_a_tie_is_one_storage_after_loading() -> None:
    model = toy_model()
    model.load_arrays(toy_model(spread=0.1).to_arrays())
    addresses = {
        weight.data_ptr()
        for weight in (
            model.source_embedding.token.weight,
            model.target_embedding.token.weight,
            model.output_embedding.weight,
        )
    }
    assert len(addresses) == 1


NAME = "decoder.layers.1.cross_attention.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop(NAME), f"{NAME} is missing"),
        (lambda arrays: arrays.update(odd=np.zeros(3)), "odd has no place in the model"),
        (
            lambda arrays: arrays.update({NAME: np.zeros((6, 13))}),
            rf"{NAME} has the shape \(6, 13\), accepted is \(6, 11\)",
        ),
    ],
)
def test_weights_that_do_not_fit_name_the_parameter_and_change_nothing(
    change: Any, message: str
) -> None:
    model = toy_model()
    before = model.to_arrays()
    arrays = toy_model(spread=0.1).to_arrays()
    change(arrays)
    with pytest.raises(InputError, match=f"the weights don't fit the configuration: {message}"):
        model.load_arrays(arrays)
    assert all(np.array_equal(before[name], each) for name, each in model.to_arrays().items())
