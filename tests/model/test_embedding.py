from __future__ import annotations

import torch
from torch import nn

from dragoman.config import PAD
from dragoman.model.positions import sinusoidal_positions

from .toys import toy_ids, toy_model


def test_an_embedding_is_its_row_times_the_root_of_d_model_plus_its_position() -> None:
    model, ids = toy_model(), toy_ids(7)
    wanted = 11**0.5 * model.source_embedding.token.weight[ids[0]]
    wanted = wanted + sinusoidal_positions(torch.arange(7), 11)
    torch.testing.assert_close(model.source_embedding(ids)[0], wanted)


def test_without_the_factor_an_embedding_is_its_row() -> None:
    model = toy_model(embedding_scale=False, positions="none")
    assert torch.equal(model.target_embedding(toy_ids(5)), model.output_weight[toy_ids(5)])


def test_logits_are_the_hidden_state_times_the_tied_matrix_without_a_factor() -> None:
    model, source, target = toy_model(), toy_ids(5), toy_ids(7)
    hidden = model.hidden(source, target)
    logits = hidden @ model.source_embedding.token.weight.T
    torch.testing.assert_close(model(source, target), logits)


def test_ties_are_one_parameter() -> None:
    def weights(tie: str) -> list[nn.Parameter]:
        model = toy_model(tie=tie)
        tokens = (model.source_embedding.token, model.target_embedding.token)
        return [*(token.weight for token in tokens), model.output_embedding.weight]

    source, target, output = weights("source-target-output")
    assert source is target is output
    source, target, output = weights("target-output")
    assert source is not target is output
    assert len({id(weight) for weight in weights("none")}) == 3


def test_a_decoder_that_starts_from_zero_reads_the_zero_vector_first() -> None:
    model = toy_model(decoder_start="zero", positions="none")
    target_input = model.decoder_input(toy_ids(5))
    assert target_input[0, 0] == PAD
    embedded = model.target_embedding(target_input)[0]
    assert not embedded[0].any()
    assert embedded[1:].all()
    assert model.source_embedding(torch.tensor([[PAD]])).all()
