"""Tokens to vectors (section 3.4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.config import PAD, ModelConfig
from dragoman.kernels.dropout import Dropout
from dragoman.model.layout import PADDED, Layout
from dragoman.model.positions import build_positions


class TokenEmbedding(nn.Module):
    """Looks up each token's vector times sqrt(d_model): about variance 1, as initialised."""

    def __init__(self, vocab_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model))
        self.scale = config.d_model**0.5 if config.embedding_scale else 1.0

    def forward(self, ids: Int[Tensor, "*dims"]) -> Float[Tensor, "*dims d_model"]:
        """Maps each id to its vector."""
        return F.embedding(ids, self.weight) * self.scale


class ZeroStartEmbedding(TokenEmbedding):
    """Gives PAD the zero vector: the first input of tensor2tensor's decoder."""

    def forward(self, ids: Int[Tensor, "*dims"]) -> Float[Tensor, "*dims d_model"]:
        return super().forward(ids) * (ids != PAD)[..., None]


class InputEmbedding(nn.Module):
    """dropout(token embedding + position) (sections 3.4, 3.5, 5.4)."""

    def __init__(self, token: TokenEmbedding, config: ModelConfig) -> None:
        super().__init__()
        self.token = token
        self.positions = build_positions(config)
        self.dropout = Dropout(config.embedding_dropout)

    def forward(
        self, ids: Int[Tensor, "batch length"], first: int = 0, layout: Layout = PADDED
    ) -> Float[Tensor, "*tokens d_model"]:
        """Maps ids (batch, length), positions from `first` on, to (batch, length, d_model).

        Another layout puts the same vectors otherwise.
        """
        return self.dropout(layout.pack(self.positions(self.token(ids), first)))
