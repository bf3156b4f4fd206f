"""MarianMTModel of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.bench.ours import cut, seeded_model
from dragoman.bench.plain import PlainTraining, fastest
from dragoman.bench.sentences import Ids, Workload
from dragoman.bench.setting import BEAM_SIZE, OUTPUT_LENGTH, Run, Setting, config_of_size
from dragoman.config import BOS, EOS, PAD, Config, ModelConfig
from dragoman.decoding.stepper import pad_ids
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.positions import sinusoidal_positions
from dragoman.model.transformer import Transformer

_ATTENTION = ("eager", "sdpa")
_POSITIONS = 1024


def build_marian(config: ModelConfig) -> Any:
    """Makes a model of the same sizes, dropout and special ids."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=config.target_vocab_size,
            d_model=config.d_model,
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.feed_forward_dropout,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=_POSITIONS,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=BOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


class _Logits(nn.Module):
    """The model as `PlainTraining` calls it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.marian = build_marian(config.model)

    def forward(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Returns logits, (batch, target, vocab)."""
        logits: Tensor = self.marian(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            decoder_input_ids=target_input,
            use_cache=False,
        ).logits
        return logits


class Training(PlainTraining):
    """A plain loop around it, with the faster of its two kinds of attention."""

    def __init__(self, setting: Setting, precision: str = "float32") -> None:
        super().__init__(setting, _Logits, precision)
        marian: Any = self.model.get_submodule("marian")
        self.facts["attention"] = fastest(_ATTENTION, marian.set_attn_implementation, self)


class Decoding:
    """Its `generate`: outputs of `OUTPUT_LENGTH` tokens, with our model's weights."""

    def __init__(
        self, setting: Setting, batch: int, sentences: int, precision: str = "float32"
    ) -> None:
        ours = seeded_model(config_of_size(setting.size).model)
        self._marian = build_marian(ours.config).eval()
        copy_weights(ours, self._marian)
        self._marian.to(setting.device, getattr(torch, precision))
        self._batches = cut(Workload.load(setting.sentences).sources(sentences), batch)
        self.facts: dict[str, Any] = {"precision": precision}
        self.facts["attention"] = fastest(_ATTENTION, self._marian.set_attn_implementation, self)

    def warm_up(self) -> None:
        """Translates one batch."""
        self._translate(self._batches[0])

    def run(self) -> Run:
        """Translates all batches."""
        outputs = [tokens for batch in self._batches for tokens in self._translate(batch)]
        return Run(len(outputs), {"outputs": outputs})

    @torch.inference_mode()
    def _translate(self, sources: list[Ids]) -> list[Ids]:
        source = pad_ids([[*ids, EOS] for ids in sources], self._marian.device)
        found = self._marian.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=BEAM_SIZE,
            min_new_tokens=OUTPUT_LENGTH,
            max_new_tokens=OUTPUT_LENGTH,
            bad_words_ids=[[PAD], [BOS]],
        )
        outputs: list[Ids] = found[:, 1:].tolist()
        return outputs


@torch.no_grad()
def copy_weights(ours: Transformer, marian: Any) -> None:
    """Gives the other model our weights; what only it has, biases of attention, becomes zero."""
    config = ours.config
    positions = sinusoidal_positions(torch.arange(_POSITIONS), config.d_model).float()
    marian.model.shared.weight.copy_(ours.output_weight)
    for theirs, our_layers in (
        (marian.model.encoder, ours.encoder.layers),
        (marian.model.decoder, ours.decoder.layers),
    ):
        theirs.embed_positions.weight.copy_(positions)
        for layer, our_layer in zip(theirs.layers, cast("list[Any]", our_layers), strict=True):
            _copy_attention(our_layer.self_attention, layer.self_attn)
            _copy(our_layer.self_attention_connection.norm, layer.self_attn_layer_norm)
            if theirs is marian.model.decoder:
                _copy_attention(our_layer.cross_attention, layer.encoder_attn)
                _copy(our_layer.cross_attention_connection.norm, layer.encoder_attn_layer_norm)
            _copy(our_layer.feed_forward.in_proj, layer.fc1)
            _copy(our_layer.feed_forward.out_proj, layer.fc2)
            _copy(our_layer.feed_forward_connection.norm, layer.final_layer_norm)


def _copy_attention(ours: MultiHeadAttention, theirs: Any) -> None:
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        _copy(getattr(ours, name), getattr(theirs, name))


def _copy(ours: Any, theirs: Any) -> None:
    theirs.weight.copy_(ours.weight)
    if ours.bias is None:
        theirs.bias.zero_()
    else:
        theirs.bias.copy_(ours.bias)
