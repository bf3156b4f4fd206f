"""Small random models and batches; prime sizes, so that no two dimensions agree by accident."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import EOS, PAD, ModelConfig
from dragoman.model.transformer import Transformer

SIZES: dict[str, Any] = {
    "source_vocab_size": 19,
    "target_vocab_size": 19,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "d_model": 11,
    "d_ff": 13,
    "num_heads": 3,
    "d_k": 2,
    "d_v": 5,
    "max_positions": 17,
}
SWITCHES = st.fixed_dictionaries(
    {
        "norm_place": st.sampled_from(["post", "pre", "none"]),
        "norm": st.sampled_from(["layer", "rms", "none"]),
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]),
        "sinusoid_layout": st.sampled_from(["interleaved", "halves"]),
        "sinusoid_denominator": st.sampled_from(["d", "d/2-1"]),
        "first_position": st.sampled_from([0, 2]),
        "decoder_start": st.sampled_from(["bos", "eos", "pad", "zero"]),
        "scale_scores": st.booleans(),
        "embedding_scale": st.booleans(),
        "residual": st.booleans(),
        "feed_forward": st.sampled_from(["relu", "gelu", "swiglu", "none"]),
        "attention_bias": st.booleans(),
        "cross_attention": st.booleans(),
        "causal_mask": st.booleans(),
        "tie": st.sampled_from(["source-target-output", "target-output", "none"]),
    }
)
"""Every switch of the architecture but batch normalisation, which mixes sentences by design."""


def toy_config(**settings: Any) -> ModelConfig:
    """Returns the configuration of a toy model without dropout."""
    return ModelConfig(**{**SIZES, "dropout": 0.0, "embedding_dropout": 0.0, **settings})


def toy_model(spread: float = 0.5, **settings: Any) -> Transformer:
    """Returns a model in float64 whose every parameter, biases and norms too, is random."""
    torch.manual_seed(7)
    model = Transformer(toy_config(**settings)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, spread)
    return model


def toy_ids(*lengths: int, seed: int = 3, width: int = 0) -> Tensor:
    """Returns random sentences of these lengths, EOS included, padded to the longest or `width`."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(width, *lengths, 0)), PAD)
    for row, length in enumerate(lengths):
        ids[row, : length - 1] = torch.randint(4, 19, (length - 1,), generator=generator)
        ids[row, length - 1] = EOS
    return ids
