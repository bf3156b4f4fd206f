"""A translator with random weights, and with tokenizers of its own for each side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dragoman.config import ModelConfig
from dragoman.data.tokenizer import Tokenizer, learn_tokenizer
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translator
from dragoman.model.architecture import build_model

SIZES: dict[str, Any] = {
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "d_model": 11,
    "d_ff": 13,
    "num_heads": 5,
    "d_k": 2,
    "d_v": 3,
    "tie": "target-output",
}


@pytest.fixture(scope="session")
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    source = learn_tokenizer(["the cat sat on the mat", "a dog saw the cat"] * 3, 300)
    return source, learn_tokenizer(
        ["die katze saß auf der matte", "ein hund sah die katze"] * 3, 310
    )


@pytest.fixture(scope="session")
def make_translator(tokenizers: tuple[Tokenizer, Tokenizer]) -> Callable[..., Translator]:
    """Returns a maker of translators: make_translator(cross_attention=False)."""

    def make(**settings: Any) -> Translator:
        source, target = tokenizers
        sizes = {"source_vocab_size": len(source), "target_vocab_size": len(target)}
        torch.manual_seed(5)
        model = build_model(ModelConfig(**{**SIZES, **sizes, **settings})).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0.0, 0.4)
        return Translator(TorchEngine(model), source, target)

    return make


@pytest.fixture(scope="session")
def translator(make_translator: Callable[..., Translator]) -> Translator:
    return make_translator()
