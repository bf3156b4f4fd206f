"""The parameters before the first step."""

from __future__ import annotations

from torch import nn

from dragoman.model.embedding import TokenEmbedding
from dragoman.model.positions import LearnedPositions


def initialize(module: nn.Module, gain: float = 1.0, embedding_gain: float = 1.0) -> None:
    """Initialises the parameters that a module itself holds; for `nn.Module.apply`.

    Embeddings are N(0, 1/d_model), so that times sqrt(d_model) they have variance 1, times
    `embedding_gain`; projections are Xavier uniform times `gain`, each matrix by itself; biases are
    0. In an LSTM a matrix is that of a gate, and the forget gates' bias is 1, so that at first they
    keep more than they forget (Jozefowicz et al. 2015).
    """
    if isinstance(module, TokenEmbedding):
        nn.init.normal_(module.weight, std=embedding_gain * module.weight.shape[1] ** -0.5)
    elif isinstance(module, LearnedPositions):
        nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight, gain)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LSTM):
        for name, parameter in module.named_parameters():
            gates = parameter.chunk(4)  # input, forget, cell, output
            if name.startswith("weight"):
                for gate in gates:
                    nn.init.xavier_uniform_(gate, gain)
            else:
                nn.init.zeros_(parameter)
            if name.startswith("bias_ih"):  # torch adds two biases
                nn.init.ones_(gates[1])
