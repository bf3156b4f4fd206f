"""eole, OpenNMT-py's successor; its models are pre-norm."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.bench.plain import PlainTraining
from dragoman.bench.setting import Setting
from dragoman.config import PAD, Config

_PAD_NAME = "<pad>"


def build_eole(config: Config) -> Any:
    """Makes a model of the same sizes; its one dropout is inside the feed-forward network too."""
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig
    from eole.models.model import EncoderDecoderModel

    model = config.model
    names = {_PAD_NAME if id == PAD else str(id): id for id in range(model.target_vocab_size)}
    vocabularies = {"src": names, "tgt": names, "specials": {"pad_token": _PAD_NAME}}
    architecture = TransformerModelConfig(
        hidden_size=model.d_model,
        word_vec_size=model.d_model,
        layers=model.num_encoder_layers,
        heads=model.num_heads,
        transformer_ff=model.d_ff,
        add_ffnbias=True,
        generator_bias=False,
        share_embeddings=True,
        share_decoder_embeddings=True,
        embeddings={"position_encoding_type": "SinusoidalInterleaved"},
    )
    running = TrainingConfig(
        dropout=[model.dropout],
        attention_dropout=[model.attention_dropout],
        self_attn_backend="pytorch",
    )
    eole = EncoderDecoderModel.build_blocks(architecture, vocabularies, running_config=running)
    eole.build_generator(architecture, running, vocabularies)
    eole.init_weights(running)
    return eole


class _Logits(nn.Module):
    """The model as `PlainTraining` calls it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.eole = build_eole(config)

    def forward(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Returns logits, (batch, target, vocab)."""
        with_last = F.pad(target_input, (0, 1), value=PAD)  # it leaves the last one out
        found = self.eole(source, with_last, (source != PAD).sum(dim=1))
        logits: Tensor = self.eole.generator(found.dec_out)
        return logits


class Training(PlainTraining):
    """A plain loop around it."""

    def __init__(self, setting: Setting, precision: str = "float32") -> None:
        super().__init__(setting, _Logits, precision)
