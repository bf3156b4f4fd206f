from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import BOS, EOS, PAD, DecodingConfig
from dragoman.decoding.beam import beam_search
from dragoman.decoding.ensemble import EnsembleStepper, average_probabilities
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.model.transformer import Transformer

A, B = 4, 5
SOURCE = [A, EOS]
LINES = [[5], [4, 9, 16, 7, 8], [], [10, 11]]
Toy = Callable[..., Transformer]


def test_an_ensemble_of_two_is_their_plain_average(scripted: SimpleNamespace) -> None:
    tables = [{(): {A: 0.5, B: 0.25, EOS: 0.25}}, {(): {A: 0.125, EOS: 0.875}}]
    members = [scripted.Stepper(scripted.table(table)) for table in tables]
    stepper = EnsembleStepper(members)
    found = stepper.step(stepper.start([SOURCE]), torch.tensor([[BOS]]))[0, 0].exp()
    expected = {A: 0.3125, B: 0.125, EOS: 0.5625}
    assert found.tolist() == pytest.approx([expected.get(token, 0.0) for token in range(7)])


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3))
def test_beam_search_with_an_ensemble_finds_what_exhaustive_search_finds(
    scripted: SimpleNamespace, seed: int, count: int
) -> None:
    scripts = [scripted.random(seed + member) for member in range(count)]

    def averaged(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        rows = np.exp([script(source, prefix) for script in scripts])
        log_probs: list[float] = np.log(rows.mean(axis=0)).tolist()
        return log_probs

    wide = DecodingConfig(beam_size=27, n_best=27, max_output_extra=2)
    stepper = EnsembleStepper([scripted.Stepper(script) for script in scripts])
    [found] = beam_search(stepper, [SOURCE], wide)
    expected = scripted.exhaustive(averaged, tuple(SOURCE), wide)[:27]
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected])


def test_members_may_start_from_tokens_and_run_to_lengths_of_their_own(
    scripted: SimpleNamespace,
) -> None:
    seen: list[int] = []
    members = [scripted.Stepper(scripted.random(1), length) for length in (None, 7, 5)]
    members[1].start_token = PAD
    members[1].step = lambda state, tokens: (
        seen.extend(tokens.flatten().tolist()) or torch.zeros(*tokens.shape, 6)
    )
    stepper = EnsembleStepper(members)
    state = stepper.start([SOURCE])
    for token in (BOS, A, B):
        stepper.step(state, torch.tensor([[token]]))
    assert (seen, stepper.max_length) == ([PAD, A, B], 5)


def test_what_no_member_finds_possible_stays_impossible() -> None:
    never = torch.tensor([-math.inf, -1.0])
    assert average_probabilities([never, never]).tolist() == pytest.approx([-math.inf, -1.0])


@pytest.mark.parametrize(
    "fields",
    [{}, {"beam_size": 1}, {"alignment": True}, {"coverage_penalty": 0.2}, {"sample": True}],
)
def test_a_model_with_itself_is_the_model(toy: Toy, fields: dict[str, object]) -> None:
    model = toy()
    config = DecodingConfig(max_output_extra=3, **fields)  # type: ignore[arg-type]
    alone = TorchEngine(model).translate(LINES, config)
    twice = TorchEngine(model, ensemble=[model]).translate(LINES, config)
    for [one], [two] in zip(alone, twice, strict=True):
        assert one.tokens == two.tokens
        assert two.score == pytest.approx(one.score, abs=1e-10)
        assert (one.alignment is None) == (two.alignment is None)
        if one.alignment is not None and two.alignment is not None:
            np.testing.assert_allclose(one.alignment, two.alignment, rtol=1e-6)


def test_forced_decoding_of_an_ensemble_finds_the_log_probabilities_of_its_search(toy: Toy) -> None:
    engine = TorchEngine(toy(), ensemble=[toy(d_model=18), toy(positions="rotary")])
    config = DecodingConfig(beam_size=3, n_best=3, no_repeat_ngram=1)
    found = engine.translate(LINES, config)
    pairs = [(line, each) for line, best in zip(LINES, found, strict=True) for each in best if line]
    scores = engine.score(
        [line for line, _ in pairs], [each.tokens[:-1] for _, each in pairs], config
    )
    assert scores == pytest.approx([each.log_probability for _, each in pairs], abs=1e-10)


def test_an_ensemble_is_limited_by_its_shortest_positions(toy: Toy) -> None:
    short = toy(positions="learned", max_positions=8, tie="none")
    [[found]] = TorchEngine(toy(), ensemble=[short]).translate([[5] * 11], DecodingConfig())
    assert "source-cut" in found.flags
    assert len(found.tokens) <= 8
