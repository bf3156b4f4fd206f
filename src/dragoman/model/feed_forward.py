"""The position-wise feed-forward network (section 3.3)."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from dragoman.config import ModelConfig
from dragoman.kernels.dropout import Dropout


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2), the same at every position."""

    def __init__(self, config: ModelConfig, activation: nn.Module) -> None:
        super().__init__()
        self.in_proj = nn.Linear(config.d_model, config.d_ff)
        self.activation = activation
        self.dropout = Dropout(config.feed_forward_dropout)
        self.out_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Maps (..., d_model) to the same shape."""
        return self.out_proj(self.dropout(self.activation(self.in_proj(x))))


class GatedFeedForward(nn.Module):
    """SwiGLU(x) = (silu(x W) * x V) W_2 (Shazeer 2020), without biases; three matrices, not two."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.in_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.dropout = Dropout(config.feed_forward_dropout)
        self.out_proj = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Maps (..., d_model) to the same shape."""
        return self.out_proj(self.dropout(F.silu(self.gate_proj(x)) * self.in_proj(x)))


def build_feed_forward(config: ModelConfig) -> nn.Module:
    """Makes the network; for `none` the identity, whose sub-layer a layer leaves out."""
    if config.feed_forward == "none":
        return nn.Identity()
    if config.feed_forward == "swiglu":
        return GatedFeedForward(config)
    return FeedForward(config, nn.ReLU() if config.feed_forward == "relu" else nn.GELU())
