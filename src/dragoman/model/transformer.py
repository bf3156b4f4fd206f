"""The Transformer (section 3): an encoder, a decoder, and what ties them to tokens."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dragoman.config import PAD, ModelConfig
from dragoman.model.attention import FusedMultiHeadAttention, MultiHeadAttention
from dragoman.model.cache import DecoderCache, LayerCache
from dragoman.model.initialization import initialize
from dragoman.model.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from dragoman.model.layout import PADDED, Layout, PackedLayout, supports_packing
from dragoman.model.masks import AttentionMask, sequence_lengths
from dragoman.model.seq2seq import Seq2Seq


class Transformer(Seq2Seq):
    """An encoder-decoder Transformer; with the default configuration the paper's base model."""

    encoder: Encoder
    decoder: Decoder

    def __init__(
        self,
        config: ModelConfig,
        *,
        gradient_checkpointing: bool = False,
        attention: type[MultiHeadAttention] = FusedMultiHeadAttention,
    ) -> None:
        """Makes a model with fresh parameters.

        Args:
            config: the architecture.
            gradient_checkpointing: whether a layer's activations are made again for the backward
                pass instead of being kept.
            attention: the fast class, or the readable one, where hooks attach.
        """
        encoder = [EncoderLayer(config, attention) for _ in range(config.num_encoder_layers)]
        decoder = [DecoderLayer(config, attention) for _ in range(config.num_decoder_layers)]
        super().__init__(
            config,
            Encoder(list(encoder), config, gradient_checkpointing),
            Decoder(list(decoder), config, gradient_checkpointing),
        )
        self.apply(
            partial(initialize, gain=config.projection_gain, embedding_gain=config.embedding_gain)
        )

    @property
    def alignment_name(self) -> str:
        """Of the decoder's last layer."""
        return f"decoder.layers.{self.config.num_decoder_layers - 1}.cross_attention.weights"

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        target_input: Int[Tensor, "batch target"],
        source_layout: Layout = PADDED,
        target_layout: Layout = PADDED,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Returns the decoder's output before the projection.

        Args:
            source: as in `forward`.
            target_input: as in `forward`.
            source_layout: how to hold the source's tokens meanwhile.
            target_layout: how to hold the target's tokens, also in the result.

        Returns:
            (batch, target, d_model), or what `target_layout` makes of it.
        """
        memory, memory_mask = self.encode(source, source_layout)
        keys_values = self.decoder.memory_keys_values(memory, source_layout)
        x = self.target_embedding(target_input, layout=target_layout)
        mask = self._target_mask(target_input)
        return self.decoder(x, keys_values, mask, memory_mask, target_layout)

    def hidden_of_real(
        self,
        source: Int[Tensor, "batch source"],
        target_input: Int[Tensor, "batch target"],
        real: Bool[Tensor, "batch target"],
    ) -> Float[Tensor, "tokens d_model"]:
        """Returns what `hidden` has where `real` is True, without work on padding if it can."""
        if not supports_packing(self.config) or not bool(real.any()):
            return super().hidden_of_real(source, target_input, real)
        return self.hidden(source, target_input, PackedLayout(source != PAD), PackedLayout(real))

    def encode(
        self, source: Int[Tensor, "batch source"], layout: Layout = PADDED
    ) -> tuple[Float[Tensor, "*tokens d_model"], AttentionMask]:
        """Returns memory, (batch, source, d_model) or as `layout` has it, and who may see it."""
        lengths = sequence_lengths(source) if self.config.padding_mask else None
        mask = AttentionMask(lengths)
        x = self.source_embedding(source, layout=layout)
        return self.encoder(x, mask, layout), mask

    def start(self, source: Int[Tensor, "batch source"]) -> DecoderCache:
        """Encodes sources and makes the cache from which `step` decodes.

        Args:
            source: ids (batch, source), as in `forward`.
        """
        memory, mask = self.encode(source)
        keys_values = self.decoder.memory_keys_values(memory)
        return DecoderCache([LayerCache(each) for each in keys_values], mask.key_lengths)

    def step(
        self, tokens: Int[Tensor, "batch width"], cache: DecoderCache
    ) -> Float[Tensor, "batch width vocab"]:
        """Reads one more token of each hypothesis; the cache advances.

        Args:
            tokens: (batch, width), the newest tokens; at first the start token.
            cache: from `start`.

        Returns:
            logits of the next token, (batch, width, vocab).
        """
        x = self.target_embedding(tokens.reshape(-1, 1), cache.length)
        hidden = self.decoder.step(x, cache.layers, cache.memory_mask, cache.length)
        cache.length += 1
        return F.linear(hidden, self.output_weight).view(*tokens.shape, -1)

    def readable(self) -> Transformer:
        """Returns the twin that shows its quantities: reference modules, the same Parameters.

        What trains one trains the other. Hooks (`dragoman.model.hooks`) attach to the twin.
        """
        with torch.device("meta"):
            twin = Transformer(self.config, attention=MultiHeadAttention)
        for name, module in twin.named_modules():
            ours = self.get_submodule(name)
            for key in module._parameters:
                module._parameters[key] = ours._parameters[key]
            for key in module._buffers:
                module._buffers[key] = ours._buffers[key]
        return twin.train(self.training)

    def _target_mask(self, target_input: Tensor) -> AttentionMask:
        # Target padding stands behind every real token, where the causal mask hides it; it needs
        # a mask of its own only where the causal one is taken away.
        if self.config.causal_mask:
            return AttentionMask(causal=True)
        if self.config.padding_mask:
            return AttentionMask(sequence_lengths(target_input).clamp(min=1))
        return AttentionMask()
