"""CTranslate2, which has no training."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.bench.ours import cut, seeded_model
from dragoman.bench.sentences import Ids, Workload
from dragoman.bench.setting import BEAM_SIZE, OUTPUT_LENGTH, Run, Setting, config_of_size
from dragoman.config import BOS, EOS, PAD, UNK
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.positions import sinusoidal_positions
from dragoman.model.transformer import Transformer

_POSITIONS = 1024
_SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}


def _best_instructions() -> str:
    """Returns the widest instruction set; left alone, the library may take a narrower one."""
    capabilities = torch.cpu.get_capabilities()
    return next((name for name in ("avx512_f", "avx2") if capabilities.get(name)), "generic")


class Decoding:
    """Its `translate_batch`: outputs of `OUTPUT_LENGTH` tokens, with our model's weights."""

    def __init__(
        self, setting: Setting, batch: int, sentences: int, precision: str = "float32"
    ) -> None:
        instructions = _best_instructions().removesuffix("_f").upper()
        os.environ.setdefault("CT2_FORCE_CPU_ISA", instructions)
        import ctranslate2  # reads the environment

        ours = seeded_model(config_of_size(setting.size).model)
        names = piece_names(ours.config.target_vocab_size)
        with tempfile.TemporaryDirectory() as folder:
            build_spec(ours, names).save(folder)
            self._translator = ctranslate2.Translator(
                folder,
                device=setting.device,
                compute_type=precision,
                inter_threads=1,
                intra_threads=setting.threads or 0,
            )
        sources = Workload.load(setting.sentences).sources(sentences)
        self._ids = {name: id for id, name in enumerate(names)}
        self._batches = [
            [[names[id] for id in [*ids, EOS]] for ids in part] for part in cut(sources, batch)
        ]
        self.facts: dict[str, Any] = {"precision": precision, "instructions": instructions}

    def warm_up(self) -> None:
        """Translates one batch."""
        self._translate(self._batches[0])

    def run(self) -> Run:
        """Translates all batches."""
        outputs = [tokens for batch in self._batches for tokens in self._translate(batch)]
        return Run(len(outputs), {"outputs": outputs})

    def _translate(self, sources: list[list[str]]) -> list[Ids]:
        found = self._translator.translate_batch(
            sources,
            beam_size=BEAM_SIZE,
            min_decoding_length=OUTPUT_LENGTH,
            max_decoding_length=OUTPUT_LENGTH,
            suppress_sequences=[[_SPECIAL[PAD]], [_SPECIAL[BOS]]],
        )
        return [[self._ids[token] for token in each.hypotheses[0]] for each in found]


def piece_names(size: int) -> list[str]:
    """Returns a name for each id."""
    return [_SPECIAL.get(id, f"piece{id}") for id in range(size)]


def build_spec(model: Transformer, names: list[str]) -> Any:
    """Returns a model of the default architecture as CTranslate2 stores it."""
    from ctranslate2.specs import TransformerSpec

    config = model.config
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers), config.num_heads, pre_norm=False
    )
    positions = sinusoidal_positions(torch.arange(_POSITIONS), config.d_model).float().numpy()
    embedding = _array(model.output_weight)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for side, layers in (
        (spec.encoder, model.encoder.layers),
        (spec.decoder, model.decoder.layers),
    ):
        side.scale_embeddings = True
        side.position_encodings.encodings = positions
        for theirs, ours in zip(side.layer, layers, strict=True):
            _set_layer(theirs, ours, is_decoder=side is spec.decoder)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.decoder_start_token = _SPECIAL[BOS]
    spec.validate()
    return spec


def _set_layer(theirs: Any, ours: Any, is_decoder: bool) -> None:
    attention = ours.self_attention
    fused = [attention.q_proj, attention.k_proj, attention.v_proj]
    _set_linear(theirs.self_attention.linear[0], *fused)
    _set_linear(theirs.self_attention.linear[1], attention.out_proj)
    _set_norm(theirs.self_attention.layer_norm, ours.self_attention_connection.norm)
    if is_decoder:
        _set_cross_attention(theirs.attention, ours.cross_attention)
        _set_norm(theirs.attention.layer_norm, ours.cross_attention_connection.norm)
    _set_linear(theirs.ffn.linear_0, ours.feed_forward.in_proj)
    _set_linear(theirs.ffn.linear_1, ours.feed_forward.out_proj)
    _set_norm(theirs.ffn.layer_norm, ours.feed_forward_connection.norm)


def _set_cross_attention(theirs: Any, ours: MultiHeadAttention) -> None:
    _set_linear(theirs.linear[0], ours.q_proj)
    _set_linear(theirs.linear[1], ours.k_proj, ours.v_proj)
    _set_linear(theirs.linear[2], ours.out_proj)


def _set_linear(theirs: Any, *ours: nn.Linear) -> None:
    """Sets a layer to ours, one above the other where they are several."""
    theirs.weight = np.concatenate([_array(each.weight) for each in ours])
    biases = [each.bias for each in ours if each.bias is not None]
    if biases:
        theirs.bias = np.concatenate([_array(bias) for bias in biases])


def _set_norm(theirs: Any, ours: nn.LayerNorm) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().numpy()
