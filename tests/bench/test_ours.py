"""This tool and torch.nn.Transformer at work."""

from __future__ import annotations

import pytest
import torch

from dragoman.bench import ours, peer_torch
from dragoman.bench.machine import useful_operations
from dragoman.bench.sentences import Workload
from dragoman.bench.setting import OUTPUT_LENGTH, Setting, config_of_size
from dragoman.bench.step_times import POSITIONS, StepTimes
from dragoman.config import EOS, ModelConfig
from dragoman.training.budget import operations_of_pair

TINY = ModelConfig(
    source_vocab_size=11,
    target_vocab_size=11,
    num_encoder_layers=2,
    num_decoder_layers=1,
    d_model=6,
    d_ff=7,
    num_heads=2,
)


@pytest.mark.parametrize("shuffled", [False, True])
def test_all_count_the_same_tokens(setting: Setting, workload: Workload, shuffled: bool) -> None:
    runs = [kind(setting, shuffled=shuffled).run() for kind in (ours.Training, peer_torch.Training)]
    expected = workload.describe()["target_tokens"]
    assert [run.count for run in runs] == [expected, expected]
    for run in runs:
        assert 0 < run.notes["loss"] < 11  # log(8000) is 9


@pytest.mark.parametrize("batch", [1, 3])
def test_outputs_have_exactly_the_forced_length(setting: Setting, batch: int) -> None:
    run = ours.Decoding(setting, batch=batch, sentences=5, precision="float32").run()
    assert run.count == 5
    for tokens in run.notes["outputs"]:
        assert len(tokens) == OUTPUT_LENGTH
        assert EOS not in tokens


def test_the_lean_one_drops_only_where_the_paper_does() -> None:
    model = peer_torch.TorchTransformer(config_of_size("S"), lean=True)
    layers = model.transformer.encoder.layers
    assert [layer.self_attn.dropout for layer in layers] == [0.0, 0.0]
    assert [layer.dropout.p for layer in layers] == [0.0, 0.0]
    assert [layer.dropout1.p for layer in layers] == [0.1, 0.1]


def test_useful_operations_are_those_of_each_pair_counted_alone() -> None:
    lengths = [(7, 5), (3, 11), (7, 5)]
    alone = sum(operations_of_pair(TINY, *each) for each in lengths)
    pairs = [([5] * source, [5] * target) for source, target in lengths]
    assert useful_operations(TINY, pairs) == alone


def test_step_times_have_every_position(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.bench.step_times.POSITIONS", (5, 7))
    monkeypatch.setattr("dragoman.bench.step_times._AROUND", 2)
    for cached in (True, False):
        seconds = StepTimes(setting, cached).run().notes["seconds"]
        assert list(seconds) == [5, 7]
        assert min(seconds.values()) > 0
    assert POSITIONS[0] == 20
    assert POSITIONS[-1] == 200


def test_every_contestant_in_decoding_would_have_the_same_weights() -> None:
    one, other = ours.seeded_model(TINY), ours.seeded_model(TINY)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
