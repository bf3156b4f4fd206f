from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import EOS, PAD, DecodingConfig
from dragoman.decoding.beam import beam_search
from dragoman.decoding.greedy import greedy_search
from dragoman.decoding.stepper import (
    AttentiveStepper,
    ModelStepper,
    ReadableStepper,
    pad_ids,
)
from dragoman.model.cache import DecoderCache
from dragoman.model.transformer import Transformer

SWITCHES = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]),
        "sinusoid_layout": st.sampled_from(["interleaved", "halves"]),
        "first_position": st.sampled_from([0, 2]),
        "decoder_start": st.sampled_from(["bos", "eos", "pad", "zero"]),
        "norm_place": st.sampled_from(["post", "pre", "none"]),
        "norm": st.sampled_from(["layer", "rms", "batch", "none"]),
        "feed_forward": st.sampled_from(["relu", "gelu", "swiglu", "none"]),
        "tie": st.sampled_from(["source-target-output", "target-output", "none"]),
        "d_k": st.sampled_from([2, 6, 14]),
        "d_v": st.sampled_from([3, 6]),
        "attention_bias": st.booleans(),
        "scale_scores": st.booleans(),
        "embedding_scale": st.booleans(),
        "cross_attention": st.booleans(),
    }
)
SOURCES = [[5, 6, 7, 5, 8, 9, EOS], [11, EOS], [13, 4, 13, EOS]]


class ComparingStepper(ModelStepper):
    """Repeats every step without the cache, on whole prefixes, and keeps the largest difference."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.difference = 0.0

    def start(self, sources: Sequence[Sequence[int]]) -> DecoderCache:
        self.sources = pad_ids(sources, self.device)
        self.prefixes = self.sources[:, :0]
        return super().start(sources)

    def step(self, state: DecoderCache, tokens: Tensor) -> Tensor:
        cached = super().step(state, tokens)
        self.prefixes = torch.cat([self.prefixes, tokens.view(-1, 1)], dim=1)
        with torch.no_grad():
            logits = self.model(self.sources, self.prefixes)[:, -1]
        whole = logits.log_softmax(dim=1).view_as(cached)
        relative = (cached - whole).abs() / whole.abs().clamp(min=1)
        self.difference = max(self.difference, relative.max().item())
        return cached

    def select(self, state: DecoderCache, rows: Tensor) -> None:
        self.sources, self.prefixes = self.sources[rows.flatten()], self.prefixes[rows.flatten()]
        super().select(state, rows)


@settings(deadline=None, max_examples=25)
@given(switches=SWITCHES)
def test_cached_steps_are_the_uncached_ones_through_every_reordering_of_the_beam(
    toy: Callable[..., Transformer], switches: dict[str, Any]
) -> None:
    stepper = ComparingStepper(toy(**switches))
    beam_search(stepper, SOURCES, DecodingConfig(beam_size=5, max_output_extra=3))
    assert stepper.difference < 1e-10


def test_cached_steps_in_float32_differ_by_rounding_alone(toy: Callable[..., Transformer]) -> None:
    stepper = ComparingStepper(toy().float())
    beam_search(stepper, SOURCES, DecodingConfig(beam_size=5, max_output_extra=7))
    assert 0 < stepper.difference < 1e-5


@settings(deadline=None, max_examples=10)
@given(switches=SWITCHES)
def test_readable_steps_are_the_fast_ones_and_show_attention_that_sums_to_1(
    toy: Callable[..., Transformer], switches: dict[str, Any]
) -> None:
    model = toy(**{**switches, "cross_attention": True})
    steppers = fast, readable = ModelStepper(model), ReadableStepper(model)
    states = [each.start(SOURCES) for each in steppers]
    for tokens in (torch.full((3, 1), fast.start_token), torch.tensor([[5, 6]] * 3)):
        steps = [each.step(state, tokens) for each, state in zip(steppers, states, strict=True)]
        torch.testing.assert_close(steps[0], steps[1])
        assert isinstance(readable, AttentiveStepper)
        assert readable.attention.shape == (*tokens.shape, max(map(len, SOURCES)))
        torch.testing.assert_close(readable.attention.sum(dim=2), torch.ones(tokens.shape).double())
        assert (readable.attention[1, :, 2:] == 0).all()  # padding
        for each, state in zip(steppers, states, strict=True):
            each.select(state, torch.tensor([[0, 0], [1, 1], [2, 2]]))


@pytest.mark.parametrize("beam_size", [1, 5])
def test_further_padding_changes_nothing(toy: Callable[..., Transformer], beam_size: int) -> None:
    class PaddingStepper(ModelStepper):
        def start(self, sources: Sequence[Sequence[int]]) -> DecoderCache:
            return super().start([[*source, *[PAD] * 50] for source in sources])

    search = greedy_search if beam_size == 1 else beam_search
    config = DecodingConfig(beam_size=beam_size, max_output_extra=0, max_output_factor=2)
    plain = search(ModelStepper(toy()), SOURCES, config)
    padded = search(PaddingStepper(toy()), SOURCES, config)
    for [ours], [theirs] in zip(plain, padded, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.score == pytest.approx(theirs.score, abs=1e-10)


def test_reduced_precision_gives_log_probabilities_in_float32(
    toy: Callable[..., Transformer],
) -> None:
    stepper = ModelStepper(toy().bfloat16())
    state = stepper.start(SOURCES)
    log_probs = stepper.step(state, torch.full((3, 1), PAD))
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(dim=2), torch.ones(3, 1))
