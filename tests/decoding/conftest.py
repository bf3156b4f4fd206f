"""Scripted probabilities in the place of a model, and toy models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from dragoman.config import BOS, EOS, DecodingConfig, ModelConfig
from dragoman.decoding.penalties import length_penalty
from dragoman.model.transformer import Transformer

Tokens = tuple[int, ...]
Script = Callable[[Tokens, Tokens], Sequence[float]]
"""From a source and a prefix to the log-probability of each next token."""
Attention = Callable[[Tokens, Tokens], Sequence[float]]
"""From a source and a prefix to the attention that the next token pays to each source token."""

A, B, C = 4, 5, 6


class ScriptedStepper:
    """A stepper whose probabilities are looked up. Its state: source and prefix of each row."""

    start_token = BOS
    device = torch.device("cpu")

    def __init__(self, script: Script, max_length: int | None = None) -> None:
        self.script = script
        self.max_length = max_length
        self.steps: list[int] = []

    def start(self, sources: Sequence[Sequence[int]]) -> list[tuple[Tokens, Tokens]]:
        return [(tuple(source), ()) for source in sources]

    def step(self, state: list[tuple[Tokens, Tokens]], tokens: Tensor) -> Tensor:
        self.steps.append(tokens.shape[0])
        state[:] = [
            (source, (*prefix, token))
            for (source, prefix), token in zip(state, tokens.flatten().tolist(), strict=True)
        ]
        rows = [self.script(source, prefix[1:]) for source, prefix in state]
        return torch.tensor(rows, dtype=torch.float64).view(*tokens.shape, -1)

    def select(self, state: list[tuple[Tokens, Tokens]], rows: Tensor) -> None:
        state[:] = [state[row] for row in rows.flatten().tolist()]


class AttentiveScriptedStepper(ScriptedStepper):
    """The same with attention that is looked up, too."""

    def __init__(self, script: Script, attend: Attention) -> None:
        super().__init__(script)
        self.attend = attend

    def start(self, sources: Sequence[Sequence[int]]) -> list[tuple[Tokens, Tokens]]:
        self.width = max(map(len, sources))
        return super().start(sources)

    def step(self, state: list[tuple[Tokens, Tokens]], tokens: Tensor) -> Tensor:
        log_probs = super().step(state, tokens)
        self.attention = torch.zeros(len(state), self.width, dtype=torch.float64)
        for row, (source, prefix) in enumerate(state):
            weights = torch.tensor(self.attend(source, prefix[1:]), dtype=torch.float64)
            self.attention[row, : len(source)] = weights
        self.attention = self.attention.view(*tokens.shape, -1)
        return log_probs


def random_attention(seed: int) -> Attention:
    """Returns attention that depends on source and whole prefix and on nothing else."""

    def attend(source: Tokens, prefix: Tokens) -> list[float]:
        generator = np.random.default_rng([seed, len(source), *source, *prefix])
        weights: list[float] = generator.dirichlet([0.3] * len(source)).tolist()
        return weights

    return attend


def random_script(seed: int, vocab: int = 6, spread: float = 2.0) -> Script:
    """Returns probabilities that depend on source and whole prefix and on nothing else."""

    def script(source: Tokens, prefix: Tokens) -> list[float]:
        generator = np.random.default_rng([seed, len(source), *source, *prefix])
        logits = spread * generator.standard_normal(vocab)
        log_probs: list[float] = (logits - np.log(np.exp(logits).sum())).tolist()
        return log_probs

    return script


def table_script(table: Mapping[Tokens, Mapping[int, float]], vocab: int = 7) -> Script:
    """Returns the probabilities of a table from prefix to token; all others are 0."""

    def script(source: Tokens, prefix: Tokens) -> list[float]:
        row = table.get(prefix, {})
        return [float(np.log(row[token])) if token in row else -np.inf for token in range(vocab)]

    return script


def exhaustive_search(
    script: Script,
    source: Tokens,
    config: DecodingConfig,
    forced: Tokens = (),
    attend: Attention | None = None,
) -> list[tuple[float, list[int]]]:
    """Returns score and tokens of every output that ends in time, the best first.

    Outputs begin with `forced`; with `attend` the score has GNMT's coverage penalty.
    """
    limit = max(config.max_output_length(len(source)), len(forced) + 1)
    found: list[tuple[float, list[int]]] = []

    def visit(prefix: Tokens, log_prob: float, attended: npt.NDArray[np.float64]) -> None:
        length = len(prefix) + 1
        log_probs = script(source, prefix)
        if attend is not None:
            attended = attended + np.array(attend(source, prefix))
        if length <= len(forced):
            token = forced[length - 1]
            visit((*prefix, token), log_prob + log_probs[token], attended)
            return
        for token, step in enumerate(log_probs):
            if token == EOS:
                penalty = length_penalty(length, config.length_penalty, config.length_penalty_form)
                coverage = np.log(attended.clip(max=1.0)).sum() if attend else 0.0
                score = (log_prob + step) / penalty + config.coverage_penalty * coverage
                found.append((float(score), [*prefix, EOS]))
            elif token in (1, A, B, C) and length < limit:
                factor = config.repetition_penalty if token in prefix else 1.0
                visit((*prefix, token), log_prob + factor * step, attended)

    visit((), 0.0, np.zeros(len(source)))
    return sorted(found, key=lambda each: -each[0])


def toy_model(**settings: object) -> Transformer:
    """Returns a small fresh model in float64, the same for the same settings."""
    sizes = {"d_model": 12, "d_ff": 13, "num_heads": 2, "num_encoder_layers": 1}
    vocabulary = {"source_vocab_size": 17, "target_vocab_size": 17}
    config = ModelConfig(**{**sizes, "num_decoder_layers": 2, **vocabulary, **settings})  # type: ignore[arg-type]
    torch.manual_seed(7)
    return Transformer(config).double().eval()


@pytest.fixture(scope="session")
def scripted() -> SimpleNamespace:
    return SimpleNamespace(
        Stepper=ScriptedStepper,
        AttentiveStepper=AttentiveScriptedStepper,
        random=random_script,
        attention=random_attention,
        table=table_script,
        exhaustive=exhaustive_search,
    )


@pytest.fixture(scope="session")
def toy() -> Callable[..., Transformer]:
    return toy_model
