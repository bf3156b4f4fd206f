from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import EOS, DecodingConfig, InputError
from dragoman.decoding.engine import Hypothesis
from dragoman.decoding.penalties import length_penalty
from dragoman.decoding.stepper import ModelStepper
from dragoman.decoding.torch_engine import TorchEngine, token_batches
from dragoman.model import hooks
from dragoman.model.seq2seq import Cache
from dragoman.model.transformer import Transformer

Toy = Callable[..., Transformer]
LINES = [[5], [4, 9, 16, 7, 8] * 4, [6, 7], [], [10, 11, 12, 13, 14]]
SWITCHES = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]),
        "norm_place": st.sampled_from(["post", "pre"]),
        "norm": st.sampled_from(["layer", "rms"]),
        "feed_forward": st.sampled_from(["relu", "swiglu"]),
        "causal_mask": st.booleans(),
        "decoder_start": st.sampled_from(["bos", "zero"]),
    }
)


def decoding(**fields: Any) -> DecodingConfig:
    return DecodingConfig(**{"max_output_extra": 3, "beam_size": 5, **fields})


def assert_same(first: list[list[Hypothesis]], second: list[list[Hypothesis]]) -> None:
    assert [[each.tokens for each in best] for best in first] == [
        [each.tokens for each in best] for best in second
    ]
    for ours, theirs in zip(first, second, strict=True):
        assert [each.score for each in ours] == pytest.approx(
            [each.score for each in theirs], abs=1e-10
        )


@pytest.mark.parametrize("beam_size", [1, 5])
@settings(deadline=None, max_examples=7)
@given(switches=SWITCHES, order=st.permutations(LINES), budget=st.integers(1, 99))
def test_a_translation_depends_on_no_neighbour_no_order_and_no_batch_size(
    toy: Toy, beam_size: int, switches: dict[str, Any], order: list[list[int]], budget: int
) -> None:
    engine = TorchEngine(toy(**switches))
    config = decoding(beam_size=beam_size, n_best=beam_size)
    together = engine.translate(order, decoding(**{**vars(config), "batch_tokens": budget}))
    assert_same(together, [engine.translate([line], config)[0] for line in order])


@settings(deadline=None, max_examples=3)
@given(order=st.permutations(range(len(LINES))), budget=st.integers(1, 99))
def test_a_sample_depends_on_the_place_of_its_line_and_on_nothing_else_of_the_input(
    toy: Toy, order: list[int], budget: int
) -> None:
    engine = TorchEngine(toy())
    config = decoding(sample=True, n_best=2, seed=5, temperature=2.0)
    lines = [LINES[index] for index in order]
    together = engine.translate(lines, decoding(**{**vars(config), "batch_tokens": budget}))
    for place, line in enumerate(lines):
        assert_same([together[place]], engine.translate([line], config, first=place))


@pytest.mark.parametrize("fields", [{}, {"beam_size": 1}, {"sample": True}])
def test_outputs_begin_with_their_prefixes_which_count_and_are_aligned(
    toy: Toy, fields: dict[str, Any]
) -> None:
    engine, prefixes = TorchEngine(toy()), [[], [7, 7], [8] * 30, [9], [4]]
    config = decoding(alignment=True, no_repeat_ngram=2, **fields)
    found = [best for [best] in engine.translate(LINES, config, prefixes)]
    assert found[3].tokens == []  # an empty line stays empty
    for line, forced, each in zip(LINES, prefixes, found, strict=True):
        if line:
            assert each.tokens[: len(forced)] == forced
            assert each.alignment is not None
            assert each.alignment.shape == (len(each.tokens), len(line) + 1)
    ended = [index for index, each in enumerate(found) if each.tokens[-1:] == [EOS]]
    scores = engine.score(
        [LINES[index] for index in ended], [found[index].tokens[:-1] for index in ended], config
    )
    assert scores == pytest.approx([found[index].log_probability for index in ended], abs=1e-10)


@pytest.mark.parametrize("fields", [{}, {"beam_size": 1}, {"sample": True}])
def test_a_repetition_penalty_is_in_the_score_and_not_in_the_log_probability(
    toy: Toy, fields: dict[str, Any]
) -> None:
    engine = TorchEngine(toy())
    config = decoding(repetition_penalty=3.0, length_penalty=0.0, max_output_extra=30, **fields)
    prefixes = [[5, 5, 6]] * len(LINES)  # whose second 5 isn't penalised
    found = [best for [best] in engine.translate(LINES, config, prefixes)]
    ended = [(line, each) for line, each in zip(LINES, found, strict=True) if EOS in each.tokens]
    assert ended
    for line, each in ended:
        ids = each.tokens[:-1]
        [own] = engine.score([line], [ids], config)
        assert each.log_probability == pytest.approx(own, abs=1e-10)
        penalised = len(set(ids[2:])) < len(ids) - 2 or 5 in ids[2:]
        assert (each.score < each.log_probability - 1e-9) == penalised


def test_the_coverage_penalty_is_that_of_the_alignment(toy: Toy) -> None:
    config = decoding(coverage_penalty=0.7, alignment=True, n_best=5, max_output_extra=11)
    for [best, *rest] in TorchEngine(toy()).translate(LINES, config):
        for each in (best, *rest) if best.tokens else ():
            assert each.alignment is not None
            covered = np.log(each.alignment.sum(axis=0).clip(max=1.0)).sum()
            plain = each.log_probability / length_penalty(len(each.tokens), 0.6)
            assert each.score == pytest.approx(plain + 0.7 * covered, rel=1e-5)


def test_coverage_wants_cross_attention(toy: Toy) -> None:
    engine = TorchEngine(toy(cross_attention=False))
    with pytest.raises(InputError, match="accepted is 0 for a model without cross-attention"):
        engine.translate(LINES, decoding(coverage_penalty=0.2))


def test_translating_again_and_again_keeps_nothing(toy: Toy) -> None:
    engine = TorchEngine(toy())
    config = decoding(alignment=True, coverage_penalty=0.2)

    def count_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(each), Tensor) for each in gc.get_objects())

    engine.translate(LINES, config)
    before = count_tensors()
    for _ in range(2):
        engine.translate(LINES, config)
    assert count_tensors() == before


@pytest.mark.parametrize("beam_size", [1, 5])
def test_in_float32_neighbours_change_scores_by_rounding_alone(toy: Toy, beam_size: int) -> None:
    engine = TorchEngine(toy().float())
    together = engine.translate(LINES, decoding(beam_size=beam_size))
    for line, [best] in zip(LINES, together, strict=True):
        [[alone]] = engine.translate([line], decoding(beam_size=beam_size))
        assert best.tokens == alone.tokens
        assert best.score == pytest.approx(alone.score, abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_forced_decoding_finds_the_log_probabilities_of_the_search(
    toy: Toy, beam_size: int
) -> None:
    engine = TorchEngine(toy())
    # Where no token may come twice, every output ends.
    config = decoding(beam_size=beam_size, n_best=beam_size, max_output_extra=40, no_repeat_ngram=1)
    found = engine.translate(LINES, config)
    pairs = [(line, each) for line, best in zip(LINES, found, strict=True) for each in best]
    assert {each.flags for _, each in pairs} == {()}
    scores = engine.score(
        [line for line, _ in pairs], [each.tokens[:-1] for _, each in pairs], config
    )
    assert scores == pytest.approx([each.log_probability for _, each in pairs], abs=1e-10)


def test_an_empty_source_has_an_empty_translation_and_asks_no_model(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy()
    monkeypatch.setattr(model, "encode", lambda source: pytest.fail("the model was asked"))
    engine = TorchEngine(model)
    assert engine.translate([[], []], decoding()) == [[Hypothesis([])], [Hypothesis([])]]
    assert engine.score([[]], [[]], decoding()) == [0.0]


def test_a_source_that_is_too_long_is_cut_and_flagged_and_its_neighbours_are_not(toy: Toy) -> None:
    engine = TorchEngine(toy())
    config = decoding(max_source_length=6)
    [whole], [cut], [short] = engine.translate([[4] * 5, [4] * 6, [4, 5]], config)
    assert whole.tokens == cut.tokens
    assert cut.score == pytest.approx(whole.score, rel=1e-12)
    assert ["source-cut" in each.flags for each in (whole, cut, short)] == [False, True, False]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_learned_positions_limit_both_sides_with_a_flag(
    toy: Toy, beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy(positions="learned", max_positions=8, tie="none")
    step = ModelStepper.step

    def without_eos(self: ModelStepper, cache: Cache, tokens: Tensor) -> Tensor:
        return step(self, cache, tokens).index_fill(2, torch.tensor([EOS]), -torch.inf)

    monkeypatch.setattr(ModelStepper, "step", without_eos)
    [[found]] = TorchEngine(model).translate([[5] * 9], decoding(beam_size=beam_size))
    assert (len(found.tokens), found.flags) == (8, ("cut", "source-cut"))
    assert TorchEngine(model).score([[5]], [[4] * 8], decoding()) == [-np.inf]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_alignment_spreads_each_token_over_its_own_source(toy: Toy, beam_size: int) -> None:
    engine = TorchEngine(toy())
    config = decoding(beam_size=beam_size, n_best=beam_size, alignment=True)
    for line, best in zip(LINES, engine.translate(LINES, config), strict=True):
        for each in best if line else []:
            assert each.alignment is not None
            assert each.alignment.shape == (len(each.tokens), len(line) + 1)
            np.testing.assert_allclose(each.alignment.sum(axis=1), 1, rtol=1e-6)


def test_the_alignment_is_the_last_layer_s_mean_over_heads(toy: Toy) -> None:
    model = toy(num_decoder_layers=3)
    [[found]] = TorchEngine(model).translate([[5, 6]], decoding(alignment=True))
    twin, name = model.readable(), "decoder.layers.2.cross_attention.weights"
    with hooks.record(twin, [name]) as seen:
        twin(torch.tensor([[5, 6, EOS]]), twin.decoder_input(torch.tensor([found.tokens])))
    assert found.alignment is not None
    np.testing.assert_allclose(found.alignment, seen[name][0].mean(dim=0), rtol=1e-6)


def test_a_model_without_cross_attention_has_no_alignment(toy: Toy) -> None:
    engine = TorchEngine(toy(cross_attention=False))
    [[found]] = engine.translate([[5]], decoding(alignment=True))
    assert found.alignment is None


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_during_decoding_and_the_mode_stays(toy: Toy, training: bool) -> None:
    model = toy(dropout=0.5).train(training)
    engine = TorchEngine(model)
    assert_same(engine.translate(LINES, decoding()), engine.translate(LINES, decoding()))
    assert model.training == training


def test_bfloat16_translates_and_leaves_the_parameters_as_they_are(toy: Toy) -> None:
    model = toy().float()
    found = TorchEngine(model, "bfloat16").translate(LINES, decoding())
    assert [bool(best[0].tokens) for best in found] == [bool(line) for line in LINES]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 19), max_size=23), st.integers(1, 60))
def test_batches_hold_every_sentence_once_and_keep_to_the_budget(
    lengths: list[int], budget: int
) -> None:
    batches = list(token_batches(dict(enumerate(lengths)), budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
