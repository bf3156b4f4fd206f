"""card.md: what a model is and how well it does, for whoever gets it."""

from __future__ import annotations

import json
from typing import Any

from dragoman.checkpoint import ModelFolder
from dragoman.config import InputError, ModelConfig
from dragoman.training.metrics import read_metrics

_KEPT = {"report": str, "validation_pairs": int, "held_out": bool}
_NAMES = {"transformer": "Transformer", "recurrent": "recurrent model"}


def read_summary(folder: ModelFolder) -> dict[str, Any]:
    """Reads what the text of a model was.

    Raises:
        InputError: if the file is missing or damaged.
    """
    path = folder.run / "data.json"
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = {key: summary[key] for key in _KEPT}
        if any(type(value) is not _KEPT[key] for key, value in found.items()):
            raise TypeError
        return found
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: damaged") from None


def _layers(model: ModelConfig) -> str:
    layers = f"{model.num_encoder_layers} + {model.num_decoder_layers}, d_model {model.d_model}"
    if model.architecture == "recurrent":
        return f"{layers}, {'additive attention' if model.cross_attention else 'no attention'}"
    return f"{layers}, d_ff {model.d_ff}, {model.num_heads} heads"


def model_card(folder: ModelFolder) -> str:
    """Writes the card of a trained model from what its run kept."""
    config = folder.read_config()
    data = read_summary(folder)
    events = read_metrics(folder.run / "metrics.jsonl")
    start = next(event for event in events if event["event"] == "start")
    end = next(event for event in reversed(events) if event["event"] == "end")
    validations = [event for event in events if event["event"] == "validation"]
    scored = validations[-1]
    if end["weights"].startswith("step"):
        step = int(end["weights"].split(",")[0].removeprefix("step "))
        scored = next(e for e in validations if e["step"] == step and e["weights"] == "latest")
    languages = " to ".join(
        language or "?" for language in (config.data.source_language, config.data.target_language)
    )
    model = config.model
    return "\n".join(
        [
            f"# {folder.path.name.encode(errors='replace').decode()}",
            "",
            f"A {_NAMES[model.architecture]} that translates {languages}, trained with Dragoman.",
            "",
            "| | |",
            "|---|---|",
            f"| Parameters | {start['parameters']:,} |",
            f"| Layers | {_layers(model)} |",
            f"| Vocabulary | {model.source_vocab_size} source, {model.target_vocab_size} target |",
            f"| Training text | {data['report']} |",
            f"| Validation text | {data['validation_pairs']:,} pairs"
            f"{', held out by hash' if data['held_out'] else ''} |",
            f"| Training | {end['step']:,} steps, {end['seconds'] / 60:.0f} minutes, "
            f"{start['precision']}; {end['reason']} |",
            f"| Weights | {end['weights']} |",
            "",
            "Scores on the validation text, greedy search on its first "
            f"{min(config.training.validation_lines, data['validation_pairs'])} lines:",
            "",
            "| score | value | signature |",
            "|---|---|---|",
            f"| BLEU | {scored['bleu']:.2f} | `{scored['signature']}` |",
            f"| chrF | {scored['chrf']:.2f} | |",
            f"| perplexity | {scored['perplexity']:.3f} per piece | all pairs |",
            "",
        ]
    )
