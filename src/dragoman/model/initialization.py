"""The parameters before the first step."""

from __future__ import annotations

from torch import nn

from dragoman.model.embedding import TokenEmbedding
from dragoman.model.positions import LearnedPositions


def initialize(module: nn.Module, gain: float = 1.0) -> None:
    """Initialises the parameters that a module itself holds; for `nn.Module.apply`.

    Embeddings are N(0, 1/d_model), so that times sqrt(d_model) they have variance 1; projections
    are Xavier uniform times `gain`, each matrix by itself; biases are 0.
    """
    if isinstance(module, TokenEmbedding | LearnedPositions):
        nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight, gain)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
