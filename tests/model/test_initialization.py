from __future__ import annotations

import pytest
import torch
from torch import nn

from dragoman.model.transformer import Transformer

from .toys import toy_config

torch.manual_seed(5)
MODEL = Transformer(
    toy_config(
        source_vocab_size=1009,
        target_vocab_size=1009,
        d_model=128,
        d_ff=509,
        d_k=37,
        d_v=41,
        attention_bias=True,
        positions="learned",
        max_positions=1009,
    )
)
LINEAR = [(name, each) for name, each in MODEL.named_modules() if isinstance(each, nn.Linear)]


def test_embeddings_are_normal_with_variance_1_over_d_model() -> None:
    weight = MODEL.output_weight
    assert weight.std().item() == pytest.approx(128**-0.5, rel=0.01)
    assert weight.abs().max().item() > 3.5 * 128**-0.5  # no uniform numbers
    assert MODEL.target_embedding.positions.weight.std().item() == pytest.approx(
        128**-0.5, rel=0.01
    )


def test_a_scaled_embedding_has_variance_1() -> None:
    embedded = MODEL.source_embedding.token(torch.arange(1009))
    assert embedded.var().item() == pytest.approx(1.0, rel=0.02)


def test_every_projection_is_xavier_uniform_by_its_own_sizes() -> None:
    assert len(LINEAR) == 2 * (4 + 2) + 3 * (4 + 4 + 2)
    for name, linear in LINEAR:
        bound = (6 / sum(linear.weight.shape)) ** 0.5
        assert linear.weight.abs().max().item() <= bound, name
        assert linear.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.03), name


def test_biases_are_zero_and_norms_are_the_identity() -> None:
    assert not any(linear.bias.any() for _, linear in LINEAR)
    norms = [each for each in MODEL.modules() if isinstance(each, nn.LayerNorm)]
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms)


def test_the_seed_decides_the_parameters() -> None:
    def parameters(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(Transformer(toy_config()).parameters())

    assert torch.equal(parameters(3), parameters(3))
    assert not torch.equal(parameters(3), parameters(5))
