"""Named settings, each with its source. A setting that isn't named keeps the paper's default."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.config import InputError, nearest_hint
from dragoman.settings import Settings


@dataclass(frozen=True)
class Preset:
    """Settings with where they come from."""

    source: str
    settings: Settings
    published_operations: float | None = None
    """What its training is said to have cost: time x devices x the rate of one, not counted."""


PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        "sizes, dropout and batch of Transformer-tiny for Multi30k (Wu et al. 2021, Good for "
        "Misconceived Reasons); pre-norm and its rate are ours, see docs/decisions/0004",
        {
            "model": {
                "num_encoder_layers": 4,
                "num_decoder_layers": 4,
                "d_model": 128,
                "d_ff": 256,
                "num_heads": 4,
                "norm_place": "pre",
                "dropout": 0.3,
                "embedding_dropout": 0.3,
            },
            "data": {"vocab_size": 9700},
            "training": {
                "batch_tokens": 4096,
                "schedule": "inverse-square-root",
                "peak_learning_rate": 4e-3,
                "warmup_steps": 1000,
                "max_steps": 8000,
                "clip_norm": 25.0,
                "validate_every": 250,
                "keep_checkpoints": 10,
                "average_last": 10,
            },
        },
    ),
    "small": Preset(
        "a laptop's model: half of the paper's base model in width and in depth; its warm-up, "
        "batches and first weights are for runs of an hour, see docs/decisions/0011 to 0013",
        {
            "model": {
                "num_encoder_layers": 3,
                "num_decoder_layers": 3,
                "d_model": 256,
                "d_ff": 1024,
                "num_heads": 4,
                "projection_gain": 0.58,
            },
            "data": {"vocab_size": 8000},
            "training": {
                "batch_tokens": 1024,
                "warmup_steps": 600,
                "max_steps": 80_000,
                "validate_every": 1000,
            },
        },
    ),
    "paper-base": Preset(
        "Vaswani et al. 2017, Table 3, base",
        {
            "data": {"vocab_size": 37000},
            "training": {"validate_every": 1500, "keep_checkpoints": 5, "average_last": 5},
        },
        published_operations=3.3e18,
    ),
    "paper-big": Preset(
        "Vaswani et al. 2017, Table 3, big (English-German; English-French has dropout 0.1)",
        {
            "model": {
                "d_model": 1024,
                "d_ff": 4096,
                "num_heads": 16,
                "dropout": 0.3,
                "embedding_dropout": 0.3,
            },
            "data": {"vocab_size": 37000},
            "training": {
                "max_steps": 300_000,
                "validate_every": 1500,
                "keep_checkpoints": 20,
                "average_last": 20,
            },
        },
        published_operations=2.3e19,
    ),
    "t2t-base": Preset(
        "tensor2tensor transformer_base v3, the authors' later code",
        {
            "model": {
                "norm_place": "pre",
                "attention_dropout": 0.1,
                "feed_forward_dropout": 0.1,
                "sinusoid_layout": "halves",
                "sinusoid_denominator": "d/2-1",
                "decoder_start": "zero",
            },
            "data": {"vocab_size": 37000},
            "training": {"adam_beta2": 0.997, "warmup_steps": 8000, "noam_factor": 2.0},
        },
    ),
}


def preset_settings(name: str) -> Settings:
    """Returns the settings of a preset.

    Raises:
        InputError: if no preset has that name.
    """
    if name not in PRESETS:
        raise InputError(
            f"preset {name} is unknown, accepted is one of {', '.join(PRESETS)}",
            nearest_hint(name, PRESETS),
        )
    return PRESETS[name].settings
