"""The paper's formulas in numpy, float64, one sentence at a time: what the model is compared with.

No torch, no batch and so no padding, no masks but the causal one, heads one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dragoman.config import ModelConfig

Array = npt.NDArray[np.float64]


def softmax(x: Array) -> Array:
    """Of each row."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def encoding(position: int, config: ModelConfig) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same) (section 3.5)."""
    d = config.d_model
    sines = math.ceil(d / 2)
    sin, cos = [], []
    for i in range(sines):
        exponent = 2 * i / d if config.sinusoid_denominator == "d" else i / (d // 2 - 1)
        sin.append(math.sin(position / 10000**exponent))
        cos.append(math.cos(position / 10000**exponent))
    if config.sinusoid_layout == "halves":
        return np.array([*sin, *cos][:d])
    return np.array([wave for pair in zip(sin, cos, strict=True) for wave in pair][:d])


class Reference:
    """A Transformer in evaluation mode, from its configuration and its parameters by name."""

    def __init__(self, config: ModelConfig, parameters: Mapping[str, Array]) -> None:
        self.config = config
        self.parameters = parameters

    def logits(self, source: Sequence[int], target: Sequence[int], start: int) -> Array:
        """Of each next token of a target; source and target end in EOS."""
        memory = self.encode(source)
        hidden = self.decode(memory, [start, *target[:-1]])
        return hidden @ self.parameters["output_embedding.weight"].T

    def loss(self, logits: Array, target: Sequence[int], smoothing: float) -> float:
        """Cross-entropy against (1 - eps) onehot + eps / V, summed over the target."""
        vocab = logits.shape[1]
        wanted = (1 - smoothing) * np.eye(vocab)[list(target)] + smoothing / vocab
        return float(-(wanted * np.log(softmax(logits))).sum())

    def encode(self, source: Sequence[int]) -> Array:
        """(source, d_model): 3.1, encoder."""
        x = self.embed("source_embedding", source)
        for n in range(self.config.num_encoder_layers):
            layer = f"encoder.layers.{n}"
            x = self.self_attention(x, layer, causal=False)
            x = self.feed_forward(x, layer)
        return self.final_norm(x, "encoder")

    def decode(self, memory: Array, target_input: Sequence[int]) -> Array:
        """(target, d_model): 3.1, decoder."""
        x = self.embed("target_embedding", target_input)
        if self.config.decoder_start == "zero":
            x[0] -= self.token_embedding("target_embedding", target_input)[0]
        for n in range(self.config.num_decoder_layers):
            layer = f"decoder.layers.{n}"
            x = self.self_attention(x, layer, causal=self.config.causal_mask)
            if self.config.cross_attention:
                x = self.cross_attention(x, memory, layer)
            x = self.feed_forward(x, layer)
        return self.final_norm(x, "decoder")

    def token_embedding(self, side: str, ids: Sequence[int]) -> Array:
        scale = math.sqrt(self.config.d_model) if self.config.embedding_scale else 1.0
        return self.parameters[f"{side}.token.weight"][list(ids)] * scale

    def embed(self, side: str, ids: Sequence[int]) -> Array:
        x = self.token_embedding(side, ids)
        for row in range(len(ids)):
            position = self.config.first_position + row
            if self.config.positions == "sinusoidal":
                x[row] += encoding(position, self.config)
            elif self.config.positions == "learned":
                x[row] += self.parameters[f"{side}.positions.weight"][position]
        return x

    def connect(self, x: Array, name: str, sublayer: object) -> Array:
        """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x))."""
        assert callable(sublayer)
        pre = self.config.norm_place == "pre"
        y = sublayer(self.norm(x, f"{name}.norm") if pre else x)
        y = x + y if self.config.residual else y
        return y if pre else self.norm(y, f"{name}.norm")

    def norm(self, x: Array, name: str) -> Array:
        if self.config.norm == "none" or self.config.norm_place == "none":
            return x
        weight = self.parameters[f"{name}.weight"]
        if self.config.norm == "rms":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.config.norm_epsilon) * weight
        deviation = np.sqrt(x.var(-1, keepdims=True) + self.config.norm_epsilon)
        return (x - x.mean(-1, keepdims=True)) / deviation * weight + self.parameters[
            f"{name}.bias"
        ]

    def final_norm(self, x: Array, stack: str) -> Array:
        return self.norm(x, f"{stack}.final_norm") if self.config.norm_place == "pre" else x

    def self_attention(self, x: Array, layer: str, causal: bool) -> Array:
        def attend(y: Array) -> Array:
            return self.multi_head(y, y, f"{layer}.self_attention", causal, self.config.positions)

        return self.connect(x, f"{layer}.self_attention_connection", attend)

    def cross_attention(self, x: Array, memory: Array, layer: str) -> Array:
        def attend(y: Array) -> Array:
            return self.multi_head(y, memory, f"{layer}.cross_attention", False, "none")

        return self.connect(x, f"{layer}.cross_attention_connection", attend)

    def multi_head(self, x: Array, memory: Array, name: str, causal: bool, positions: str) -> Array:
        """Concat(head_1, ..., head_h) W^O (section 3.2.2)."""
        q, k, v = (
            np.split(self.linear(y, f"{name}.{part}_proj"), self.config.num_heads, axis=1)
            for part, y in (("q", x), ("k", memory), ("v", memory))
        )
        heads = [
            self.head(q[h], k[h], v[h], causal, positions, h) for h in range(self.config.num_heads)
        ]
        return self.linear(np.concatenate(heads, axis=1), f"{name}.out_proj")

    def head(self, q: Array, k: Array, v: Array, causal: bool, positions: str, h: int) -> Array:
        """softmax(Q K^T / sqrt(d_k)) V (equation 1)."""
        if positions == "rotary":
            q, k = rotate(q), rotate(k)
        scores = q @ k.T / (math.sqrt(self.config.d_k) if self.config.scale_scores else 1.0)
        row, column = np.indices(scores.shape)
        if positions == "alibi":
            scores = scores - 2.0 ** (-8 * (h + 1) / self.config.num_heads) * abs(row - column)
        if causal:
            scores = np.where(column <= row, scores, -np.inf)
        return softmax(scores) @ v

    def feed_forward(self, x: Array, layer: str) -> Array:
        """max(0, x W_1 + b_1) W_2 + b_2 (equation 2), and what came later."""
        kind, name = self.config.feed_forward, f"{layer}.feed_forward"

        def network(y: Array) -> Array:
            inner = self.linear(y, f"{name}.in_proj")
            if kind == "swiglu":
                gate = self.linear(y, f"{name}.gate_proj")
                inner = inner * gate / (1 + np.exp(-gate))
            elif kind == "gelu":
                inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
            else:
                inner = np.maximum(0, inner)
            return self.linear(inner, f"{name}.out_proj")

        if kind == "none":
            return x
        return self.connect(x, f"{layer}.feed_forward_connection", network)

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.parameters[f"{name}.weight"].T + self.parameters.get(f"{name}.bias", 0.0)


def rotate(x: Array) -> Array:
    """Turns each pair of dimensions, as a complex number, by its own angle times the position."""
    d = x.shape[1]
    angles = np.outer(np.arange(len(x)), 10000.0 ** (-np.arange(0, d, 2) / d))
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=2).reshape(x.shape)
