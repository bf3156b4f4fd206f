"""The Transformer of *Attention Is All You Need* as a tool: train, translate, take apart.

The names below are the public face. Each is imported at its first use, so that `import dragoman`
costs milliseconds and loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.config import Config, InputError, ModelConfig, RunError
    from dragoman.decoding.loader import load
    from dragoman.decoding.translator import Translation, Translator
    from dragoman.model.attention import scaled_dot_product_attention
    from dragoman.model.transformer import Transformer
    from dragoman.training.loop import train

__all__ = [
    "Config",
    "InputError",
    "ModelConfig",
    "RunError",
    "Transformer",
    "Translation",
    "Translator",
    "load",
    "scaled_dot_product_attention",
    "train",
]

_HOMES = {
    "Config": "dragoman.config",
    "InputError": "dragoman.config",
    "ModelConfig": "dragoman.config",
    "RunError": "dragoman.config",
    "Transformer": "dragoman.model.transformer",
    "Translation": "dragoman.decoding.translator",
    "Translator": "dragoman.decoding.translator",
    "load": "dragoman.decoding.loader",
    "scaled_dot_product_attention": "dragoman.model.attention",
    "train": "dragoman.training.loop",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("dragoman")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
