"""From a model's folder to a translator."""

from __future__ import annotations

from pathlib import Path

from dragoman.checkpoint import ModelFolder
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translator
from dragoman.kernels.device import resolve_device
from dragoman.model.transformer import Transformer


def load_model(folder: ModelFolder, device: str = "auto") -> Transformer:
    """Reads a model's network, in evaluation mode, onto `auto`, `cpu` or `cuda`."""
    model = Transformer(folder.read_config().model)
    model.load_arrays(folder.read_weights())
    return model.to(resolve_device(device)).eval()


def load(path: str | Path, *, device: str = "auto", precision: str = "auto") -> Translator:
    """Opens a model as a translator.

    Args:
        path: the model's folder.
        device: `auto`, `cpu` or `cuda`.
        precision: `float32`, `bfloat16`, or `auto`, which is float32.

    Raises:
        InputError: if there is no sound model at path.
    """
    folder = ModelFolder(Path(path))
    tokenizers = folder.read_tokenizers()
    engine = TorchEngine(load_model(folder, device), precision)
    return Translator(engine, tokenizers.source, tokenizers.target)
