"""What training takes, held against training itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dragoman.config import UNK, Config, ModelConfig
from dragoman.kernels import attention, blockwise
from dragoman.model.loss import training_loss
from dragoman.model.transformer import Transformer
from dragoman.presets import preset_settings
from dragoman.settings import build_config
from dragoman.training import budget
from dragoman.training.budget import BatchShape
from dragoman.training.distributed import Ranks
from dragoman.training.optimizer import build_optimizer, reserve_moments
from dragoman.training.step import TrainingLoss, training_step

from ..peak import Peak

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "source_vocab_size": 211,
    "target_vocab_size": 211,
    "num_encoder_layers": 1,
    "num_decoder_layers": 2,
    "d_model": 30,
    "d_ff": 59,
    "num_heads": 5,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "heads of their own width": {"d_k": 7, "d_v": 11},
    "no cross-attention": {"cross_attention": False},
    "gated network": {"feed_forward": "swiglu"},
    "no network": {"feed_forward": "none"},
    "pre-norm, rotary": {"norm_place": "pre", "positions": "rotary"},
    "three matrices": {"tie": "none", "target_vocab_size": 307},
    "dropout everywhere": {"attention_dropout": 0.1, "feed_forward_dropout": 0.1},
}


def configured(model: dict[str, Any], **training: Any) -> Config:
    return build_config({"model": {**SIZES, **model}, "training": training})


def random_batch(config: ModelConfig, shape: BatchShape) -> tuple[torch.Tensor, torch.Tensor]:
    most = min(config.source_vocab_size, config.target_vocab_size)
    source, target = torch.randint(4, most, (2, shape.pairs, shape.length))
    return source, target


def estimate(config: Config, shape: BatchShape) -> dict[str, int]:
    parameters = sum(budget.count_parameters(config.model).values())
    return budget.estimate_memory(config, parameters, shape, "float32", "cpu")


def peak_of_training(config: Config, shape: BatchShape) -> int:
    """Returns the most bytes that a real step holds in tensors, the model's among them."""
    with Peak() as peak:
        model = Transformer(
            config.model, gradient_checkpointing=config.training.gradient_checkpointing
        )
        optimizer = build_optimizer(model, config.training)
        reserve_moments(optimizer)
        loss = TrainingLoss(model, 0.1)
        batches = [random_batch(config.model, shape)] * config.training.accumulation
        training_step(loss, optimizer, batches, config.training, 1e-3, "float32", Ranks(CPU))
    return peak.most


def operations_made(model: Transformer, shape: BatchShape) -> int:
    def in_place(_: Any, left: torch.Size, right: torch.Size, **__: Any) -> int:
        return 2 * left[0] * left[1] * right[1]

    not_counted_by_torch: Any = {torch.ops.aten.addmm_: in_place}
    with FlopCounterMode(display=False, custom_mapping=not_counted_by_torch) as counter:
        training_loss(model, *random_batch(model.config, shape), 0.1).loss.backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_makes_exactly_the_operations_that_are_counted(variant: str) -> None:
    config, shape = configured(VARIANTS[variant]).model, BatchShape(3, 7)
    made = operations_made(Transformer(config), shape)
    assert made == budget.count_operations(config, shape)


@pytest.mark.parametrize(("source", "target"), [(7, 7), (3, 11), (11, 3), (1, 2)])
def test_the_readable_model_makes_as_many_operations_for_any_two_lengths(
    source: int, target: int
) -> None:
    config = configured({}).model
    ids = [torch.full((1, length), UNK) for length in (source, target)]
    with FlopCounterMode(display=False) as counter:
        Transformer(config).readable()(*ids).sum().backward()
    assert counter.get_total_flops() == budget.operations_of_pair(config, source, target)


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({}, {}),
        (VARIANTS["pre-norm, rotary"] | VARIANTS["gated network"], {}),
        (VARIANTS["dropout everywhere"] | VARIANTS["three matrices"], {}),
        ({}, {"accumulation": 2}),
        ({}, {"gradient_checkpointing": True}),
    ],
)
def test_the_estimated_memory_is_what_training_takes(
    model: dict[str, Any], training: dict[str, Any]
) -> None:
    config, shape = configured(model, **training), BatchShape(13, 31)
    taken = peak_of_training(config, shape)
    assert sum(estimate(config, shape).values()) == pytest.approx(taken, rel=0.1)


def test_the_estimated_memory_of_long_sentences_is_what_training_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "_LONG", 0)
    monkeypatch.setattr(blockwise, "_BLOCK_ELEMENTS", 1 << 13)  # small beside what is kept
    config, shape = configured(VARIANTS["dropout everywhere"]), BatchShape(5, 211)
    taken = peak_of_training(config, shape)
    assert sum(estimate(config, shape).values()) == pytest.approx(taken, rel=0.1)


def test_attention_weights_are_kept_of_short_sentences_on_a_cpu_alone() -> None:
    config = configured({"attention_dropout": 0.1})
    kept = {
        (device, n): budget.kept_for_backward(config, BatchShape(1, n), "float32", device)
        for device in ("cpu", "cuda")
        for n in (64, 128, 256, 512)
    }
    assert kept["cpu", 128] > 3 * kept["cpu", 64]
    assert kept["cpu", 512] == pytest.approx(2 * kept["cpu", 256], rel=0.1)
    assert kept["cuda", 128] == pytest.approx(2 * kept["cuda", 64], rel=0.1)


def test_bfloat16_keeps_less_and_float64_takes_twice() -> None:
    config, shape = configured({}), BatchShape(13, 31)
    single, half = (
        budget.kept_for_backward(config, shape, precision, "cpu")
        for precision in ("float32", "bfloat16")
    )
    assert half < single
    double = budget.estimate_memory(config, 7, shape, "float64", "cpu")
    assert double == {
        name: 2 * size
        for name, size in budget.estimate_memory(config, 7, shape, "float32", "cpu").items()
    }


def test_the_largest_micro_batches_hold_the_longest_sentences_of_a_step_in_parts() -> None:
    def largest(device: str = "cpu", **changes: Any) -> list[BatchShape]:
        return budget.largest_micro_batches(build_config(changes), "float32", device)

    training = {"batch_tokens": 1009, "accumulation": 3}
    assert largest(training=training, data={"max_length": 101}) == [BatchShape(3, 101)]
    whole = {"training": training, "data": {"max_length": 0}}
    assert largest(**whole) == [BatchShape(1, 255), BatchShape(1, 1009)]
    assert largest("cuda", **whole) == [BatchShape(1, 1009)]
    learned = {"positions": "learned", "max_positions": 53}
    assert largest(training=training, model=learned) == [BatchShape(7, 53)]


@pytest.mark.parametrize(("preset", "millions"), [("paper-base", 63.0), ("paper-big", 214.2)])
def test_the_papers_models_have_as_many_parameters(preset: str, millions: float) -> None:
    counts = budget.count_parameters(build_config(preset_settings(preset)).model)
    assert round(sum(counts.values()) / 1e6, 1) == millions


def test_the_paper_base_model_takes_1e18_operations() -> None:
    config = build_config(preset_settings("paper-base"))
    step = budget.count_operations(config.model, budget.step_shape(config, 32))
    assert step * config.training.max_steps == pytest.approx(9.5e17, rel=0.01)


def test_auto_precision_on_a_device_that_is_not_here_is_what_is_fast_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert budget.plan_precision("auto", "cuda") == "bfloat16"
    assert budget.plan_precision("float32", "cuda") == "float32"
    assert budget.plan_precision("float64", "cpu") == "float64"


def test_a_rate_is_measured_in_operations_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_PROBE_SIZES", {"cpu": 101})
    times = iter([0.0, 0.25, 0.5])
    monkeypatch.setattr(budget.time, "perf_counter", lambda: next(times))
    assert budget.measure_rate(CPU, "float32") == 2 * 2 * 101**3 / 0.5
