"""The small model that experiments change. It learns a toy task in a minute on one core."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "model": {
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
    },
    "data": {"vocab_size": 300, "drop_identical": False},
    "training": {
        "batch_tokens": 512,
        "schedule": "inverse-square-root",
        "peak_learning_rate": 3e-3,
        "warmup_steps": 100,
        "label_smoothing": 0.0,
        "clip_norm": 1.0,
        "precision": "float32",
        "validation_lines": 20,
        "best_by": "loss",
    },
}
