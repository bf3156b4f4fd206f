"""Parts taken away from a model, one at a time."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from dragoman.config import InputError
from dragoman.model import hooks
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.surgery import removable_parts, without
from dragoman.model.transformer import Transformer

from .toys import toy_ids, toy_model

SOURCE, TARGET = toy_ids(5, 3), toy_ids(7, 2)
ATTENTIONS = [
    "encoder.layers.1.self_attention",
    "decoder.layers.0.self_attention",
    "decoder.layers.1.cross_attention",
]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_each_head_of_a_layer_is_gone_as_if_its_context_or_its_values_were_zero(
    attention: str,
) -> None:
    model = toy_model()
    before = model(SOURCE, TARGET)
    for head in range(3):
        found = without(model, [f"{attention}.head.{head}"])(SOURCE, TARGET)
        twin, mine = model.readable(), slice(head * 5, head * 5 + 5)
        kept = (torch.arange(3) != head)[:, None, None]
        with hooks.replace(twin, f"{attention}.context", lambda x, kept=kept: x * kept):
            torch.testing.assert_close(found, twin(SOURCE, TARGET))
        zeroed = toy_model()
        with torch.no_grad():
            zeroed.get_submodule(attention).v_proj.weight[mine] = 0.0
        torch.testing.assert_close(found, zeroed(SOURCE, TARGET))
        assert (found - before).abs().max() > 1e-6


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_head_changes_its_own_columns_and_the_model_stays_as_it_was(attention: str) -> None:
    model = toy_model()
    whole = model.to_arrays()
    cut = without(model, [f"{attention}.head.1"]).to_arrays()
    changed = {name for name in whole if not (whole[name] == cut[name]).all()}
    assert changed == {f"{attention}.out_proj.weight"}
    [name] = changed
    assert not cut[name][:, 5:10].any()
    assert (
        cut[name][:, [*range(5), *range(10, 15)]] == whole[name][:, [*range(5), *range(10, 15)]]
    ).all()
    assert all((whole[name] == array).all() for name, array in model.to_arrays().items())


def test_a_head_of_the_decoder_leaves_the_memory_as_it_was() -> None:
    model = toy_model()
    cut = without(model, ["decoder.layers.0.cross_attention.head.2"])
    assert torch.equal(cut.encode(SOURCE)[0], model.encode(SOURCE)[0])


@pytest.mark.parametrize("place", ["post", "pre"])
@pytest.mark.parametrize("layer", ["encoder.layers.0", "decoder.layers.1", "decoder.layers.2"])
def test_a_layer_is_gone_as_if_it_passed_its_input_on(place: str, layer: str) -> None:
    class Pass(nn.Module):
        def forward(self, x: Tensor, *rest: object) -> Tensor:
            return x

    model = toy_model(norm_place=place)
    found = without(model, [layer])(SOURCE, TARGET)
    memory, mask = model.encode(SOURCE)
    stack, _, number = layer.partition(".layers.")
    decoder = model.decoder
    if stack == "encoder":
        model.encoder.layers[int(number)] = Pass()
        memory, mask = model.encode(SOURCE)
    keys_values = decoder.memory_keys_values(memory)
    if stack == "decoder":
        decoder.layers[int(number)] = Pass()
    x = model.target_embedding(TARGET)
    hidden = decoder(x, keys_values, model._target_mask(TARGET), mask)
    torch.testing.assert_close(found, hidden @ model.output_weight.T)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scaling", {"scale_scores": False}),
        ("positions", {"positions": "none"}),
        ("padding-mask", {"padding_mask": False}),
        ("causal-mask", {"causal_mask": False}),
    ],
)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi"])
def test_a_switch_gives_the_model_that_was_built_without(
    name: str, settings: dict, positions: str
) -> None:
    model = toy_model(positions=positions)
    found = without(model, [name])
    built = Transformer(dataclasses.replace(model.config, **settings)).double()
    weights = model.to_arrays()
    built.load_arrays({key: weights[key] for key in built.to_arrays()})
    assert torch.equal(found(SOURCE, TARGET), built(SOURCE, TARGET))
    assert not torch.equal(found(SOURCE, TARGET), model(SOURCE, TARGET))


def test_names_are_those_of_the_whole_model_in_any_order() -> None:
    names = ["decoder.layers.2.self_attention.head.1", "decoder.layers.0", "scaling"]
    model = toy_model()
    one, other = without(model, names), without(model, names[::-1])
    assert torch.equal(one(SOURCE, TARGET), other(SOURCE, TARGET))
    assert not one.get_submodule("decoder.layers.1.self_attention").out_proj.weight[:, 5:10].any()


def test_every_layer_and_switch_that_is_named_can_be_taken_away() -> None:
    model = toy_model()
    parts, before = removable_parts(model), model(SOURCE, TARGET)
    assert len(parts) == 4 + 5 + 3 * (2 + 3 + 3)
    for part in parts[: 4 + 5]:
        assert (without(model, [part])(SOURCE, TARGET) - before).abs().max() > 1e-6


def test_nothing_named_is_the_same_model_and_hooks_attach_to_a_cut_one() -> None:
    model = toy_model()
    assert torch.equal(without(model, [])(SOURCE, TARGET), model(SOURCE, TARGET))
    cut = without(model, ["decoder.layers.0", "positions"])
    torch.testing.assert_close(cut.readable()(SOURCE, TARGET), cut(SOURCE, TARGET))
    heads = [each for each in cut.readable().modules() if isinstance(each, MultiHeadAttention)]
    assert len(heads) == 2 + 2 * 2


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("decoder.layers.1.cross_attention.head.3", "decoder.layers.1.cross_attention.head.2"),
        ("encoder.layer.1", "encoder.layers.1"),
        ("scale", "scaling"),
        ("", "scaling"),
    ],
)
def test_an_unknown_part_is_refused_with_those_near_it(name: str, near: str) -> None:
    with pytest.raises(InputError, match="not a part of this model") as caught:
        without(toy_model(), [name])
    assert caught.value.hint is not None
    assert near in caught.value.hint


def test_a_part_that_a_model_never_had_is_unknown() -> None:
    with pytest.raises(InputError, match="not a part"):
        without(toy_model(positions="none"), ["positions"])


def test_a_stack_keeps_a_layer() -> None:
    with pytest.raises(InputError, match=r"encoder.layers.*, accepted is to leave one"):
        without(toy_model(), ["encoder.layers.0", "encoder.layers.1"])
