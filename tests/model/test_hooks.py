from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dragoman.config import InputError
from dragoman.model import hooks

from .toys import toy_ids, toy_model

SOURCE, TARGET = toy_ids(5, 3), toy_ids(7, 2)
CROSS = "decoder.layers.2.cross_attention.weights"


def test_every_attention_shows_weights_whose_rows_sum_to_one_under_its_name() -> None:
    names = [f"encoder.layers.{n}.self_attention.weights" for n in range(2)]
    for n in range(3):
        layer = f"decoder.layers.{n}"
        names += [f"{layer}.self_attention.weights", f"{layer}.cross_attention.weights"]
    model = toy_model().readable()
    with hooks.record(model, names) as seen:
        model(SOURCE, TARGET)
    assert list(seen) == names
    for name, weights in seen.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]).double())
        keys = 5 if name.startswith("encoder") or "cross" in name else 7
        assert weights.shape == (2, 3, 5 if name.startswith("encoder") else 7, keys)


def test_recorded_quantities_are_those_of_equation_1() -> None:
    model, name = toy_model().readable(), "encoder.layers.1.self_attention"
    parts = ("queries", "scores", "weights", "context")
    with hooks.record(model, [f"{name}.{part}" for part in parts]) as seen:
        model(SOURCE[:1], TARGET[:1])
    queries, scores, weights, context = (seen[f"{name}.{part}"] for part in parts)
    assert (queries.shape, context.shape) == ((1, 3, 5, 2), (1, 3, 5, 5))
    torch.testing.assert_close(scores.softmax(-1), weights)


def test_weights_never_fall_on_padding() -> None:
    model = toy_model().readable()
    with hooks.record(model, [CROSS]) as seen:
        model(SOURCE, TARGET)
    assert not seen[CROSS][1, :, :, 3:].any()


def test_a_replaced_quantity_changes_the_output_until_the_block_ends() -> None:
    model = toy_model().readable()
    before = model(SOURCE, TARGET)
    with hooks.replace(model, CROSS, torch.zeros_like):
        assert (model(SOURCE, TARGET) - before).abs().max() > 1e-3
    assert torch.equal(model(SOURCE, TARGET), before)


def test_replacing_a_heads_context_by_zeros_is_taking_its_columns_from_the_projection() -> None:
    model, name = toy_model().readable(), "encoder.layers.0.self_attention"

    def without_head_1(context: Tensor) -> Tensor:
        return context * torch.tensor([1.0, 0.0, 1.0])[:, None, None]

    with hooks.replace(model, f"{name}.context", without_head_1):
        replaced = model(SOURCE, TARGET)
    with torch.no_grad():
        model.get_submodule(name).out_proj.weight[:, 5:10] = 0.0
    torch.testing.assert_close(model(SOURCE, TARGET), replaced)


def test_the_fast_model_refuses_hooks_and_says_where_they_go() -> None:
    with pytest.raises(InputError, match=CROSS) as caught, hooks.record(toy_model(), [CROSS]):
        pass
    assert caught.value.hint == "attach hooks to model.readable()"


def test_a_misspelt_quantity_is_refused_with_the_nearest_name() -> None:
    model = toy_model().readable()
    misspelt = CROSS.removesuffix("s")
    with (
        pytest.raises(InputError, match="not a quantity") as caught,
        hooks.record(model, [misspelt]),
    ):
        pass
    assert caught.value.hint == f"did you mean {CROSS}?"
    assert not any(module._forward_hooks for module in model.modules())
