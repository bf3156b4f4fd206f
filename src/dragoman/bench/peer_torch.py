"""torch.nn.Transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.bench.plain import PlainTraining
from dragoman.bench.setting import Setting
from dragoman.config import PAD, Config
from dragoman.model.positions import sinusoidal_positions

_POSITIONS = 1024


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between tied embeddings with sinusoids.

    Args:
        config: sizes and dropout.
        lean: whether dropout is only where the paper has it; torch also drops attention weights
            and inside the feed-forward network.
    """

    def __init__(self, config: Config, lean: bool) -> None:
        super().__init__()
        model = config.model
        self.embedding = nn.Embedding(model.target_vocab_size, model.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)
        self.dropout = nn.Dropout(model.embedding_dropout)
        self.transformer = nn.Transformer(
            model.d_model,
            model.num_heads,
            model.num_encoder_layers,
            model.num_decoder_layers,
            model.d_ff,
            dropout=model.dropout,
            batch_first=True,
        )
        if lean:
            for module in self.transformer.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0
                if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    module.dropout.p = 0.0
        table = sinusoidal_positions(torch.arange(_POSITIONS), model.d_model).float()
        self.register_buffer("positions", table)

    def forward(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Returns logits, (batch, target, vocab)."""
        padding = source == PAD
        length = target_input.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=source.device).triu(1)
        hidden = self.transformer(
            self._embed(source),
            self._embed(target_input),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        vectors = self.embedding(ids) * self.embedding.embedding_dim**0.5
        embedded: Tensor = self.dropout(vectors + self.get_buffer("positions")[: ids.shape[1]])
        return embedded


class Training(PlainTraining):
    """A plain loop around it; the reference of all ratios."""

    def __init__(
        self,
        setting: Setting,
        precision: str = "float32",
        shuffled: bool = False,
        lean: bool = False,
    ) -> None:
        super().__init__(
            setting, lambda config: TorchTransformer(config, lean), precision, shuffled
        )
