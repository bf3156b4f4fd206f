"""From a configuration to the model that it names."""

from __future__ import annotations

from dragoman.config import ModelConfig
from dragoman.model.recurrent import Recurrent
from dragoman.model.seq2seq import Seq2Seq
from dragoman.model.transformer import Transformer


def build_model(config: ModelConfig, *, gradient_checkpointing: bool = False) -> Seq2Seq:
    """Makes the model of a configuration, with fresh parameters.

    Args:
        config: the architecture.
        gradient_checkpointing: as in `Transformer` and `Recurrent`.
    """
    kind = {"transformer": Transformer, "recurrent": Recurrent}[config.architecture]
    return kind(config, gradient_checkpointing=gradient_checkpointing)
