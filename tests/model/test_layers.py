from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman.model.layers import BatchNorm
from dragoman.model.loss import training_loss
from dragoman.model.transformer import Transformer

from .toys import toy_config, toy_ids, toy_model


def executed(model: Transformer) -> list[str]:
    """Returns the names of the norms and sub-layers of a forward pass as they finish."""
    order: list[str] = []
    last = ("self_attention", "cross_attention", "feed_forward", "norm", "final_norm")
    for name, module in model.named_modules():
        if name.split(".")[-1] in last and not isinstance(module, nn.Identity):
            module.register_forward_hook(lambda *_, name=name: order.append(name))
    model(toy_ids(5), toy_ids(7))
    return [name for name in order if not name.endswith("connection")]


@pytest.mark.parametrize(("norm_place", "count"), [("post", 30), ("pre", 32), ("none", 0)])
def test_six_and_six_layers_have_as_many_layer_norms_as_the_text_says(
    norm_place: str, count: int
) -> None:
    model = toy_model(norm_place=norm_place, num_encoder_layers=6, num_decoder_layers=6)
    assert sum(isinstance(module, nn.LayerNorm) for module in model.modules()) == count


def test_post_norm_normalises_behind_each_sublayer_and_nowhere_else() -> None:
    order = executed(toy_model(num_encoder_layers=1, num_decoder_layers=1))
    assert [name.replace("layers.0.", "") for name in order] == [
        "encoder.self_attention",
        "encoder.self_attention_connection.norm",
        "encoder.feed_forward",
        "encoder.feed_forward_connection.norm",
        "decoder.self_attention",
        "decoder.self_attention_connection.norm",
        "decoder.cross_attention",
        "decoder.cross_attention_connection.norm",
        "decoder.feed_forward",
        "decoder.feed_forward_connection.norm",
    ]


def test_pre_norm_normalises_before_each_sublayer_and_behind_each_stack() -> None:
    order = executed(toy_model(norm_place="pre", num_encoder_layers=1, num_decoder_layers=1))
    assert [name.replace("layers.0.", "") for name in order] == [
        "encoder.self_attention_connection.norm",
        "encoder.self_attention",
        "encoder.feed_forward_connection.norm",
        "encoder.feed_forward",
        "encoder.final_norm",
        "decoder.self_attention_connection.norm",
        "decoder.self_attention",
        "decoder.cross_attention_connection.norm",
        "decoder.cross_attention",
        "decoder.feed_forward_connection.norm",
        "decoder.feed_forward",
        "decoder.final_norm",
    ]


def test_post_norm_leaves_every_position_with_mean_0_and_variance_1() -> None:
    torch.manual_seed(3)
    memory, _ = Transformer(toy_config()).double().encode(toy_ids(7))
    torch.testing.assert_close(memory.mean(-1), torch.zeros(1, 7).double())
    torch.testing.assert_close(
        memory.var(-1, correction=0), torch.ones(1, 7).double(), rtol=1e-3, atol=0
    )


@pytest.mark.parametrize("absent", ["dropout", "embedding_dropout"])
def test_each_dropout_of_the_paper_acts_while_training_only(absent: str) -> None:
    settings: dict[str, Any] = {"dropout": 0.3, "embedding_dropout": 0.3, absent: 0.0}
    model, source, target = toy_model(**settings), toy_ids(5), toy_ids(7)
    assert not torch.equal(model(source, target), model(source, target))
    model.eval()
    assert torch.equal(model(source, target), model(source, target))
    assert torch.equal(model(source, target), toy_model()(source, target))


def test_gradient_checkpointing_changes_no_gradient_even_with_dropout() -> None:
    config = toy_config(dropout=0.3, attention_dropout=0.2, feed_forward_dropout=0.1)

    def gradients(gradient_checkpointing: bool) -> Tensor:
        torch.manual_seed(5)
        model = Transformer(config, gradient_checkpointing=gradient_checkpointing)
        training_loss(model, toy_ids(5, 3), toy_ids(7, 2), 0.1).loss.backward()
        return torch.cat([each.grad.flatten() for each in model.parameters()])  # type: ignore[union-attr]

    plain, recomputed = gradients(False), gradients(True)
    assert plain.any()
    assert torch.equal(plain, recomputed)


def test_gradient_checkpointing_runs_every_layer_twice() -> None:
    model, calls = Transformer(toy_config(), gradient_checkpointing=True), []
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            layer.self_attention.register_forward_hook(lambda *_: calls.append(1))
    training_loss(model, toy_ids(5), toy_ids(7), 0.0).loss.backward()
    assert len(calls) == 2 * (2 + 3)


def test_batch_norm_normalises_each_dimension_over_all_positions() -> None:
    norm = BatchNorm(toy_config())
    x = norm(3 + 5 * torch.randn(7, 13, 11))
    torch.testing.assert_close(x.mean((0, 1)), torch.zeros(11), rtol=0, atol=1e-5)
    torch.testing.assert_close(x.var((0, 1), correction=0), torch.ones(11), rtol=1e-3, atol=0)


def test_a_switch_that_is_off_leaves_its_part_out() -> None:
    model = toy_model(feed_forward="none", cross_attention=False, norm="none")
    names = [name for name, _ in model.named_parameters() if "layers" in name]
    assert {name.split(".")[-2] for name in names} == {"q_proj", "k_proj", "v_proj", "out_proj"}
    assert not any("cross_attention" in name for name in names)
