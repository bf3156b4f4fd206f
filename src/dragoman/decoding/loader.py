"""From a model's folder to a translator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman.checkpoint import ModelFolder
from dragoman.config import InputError
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translator
from dragoman.kernels.device import resolve_device
from dragoman.model.architecture import build_model
from dragoman.model.seq2seq import Seq2Seq


def load_model(folder: ModelFolder, device: str = "auto") -> Seq2Seq:
    """Reads a model's network, in evaluation mode, onto `auto`, `cpu` or `cuda`."""
    model = build_model(folder.read_config().model)
    model.load_arrays(folder.read_weights())
    return model.to(resolve_device(device)).eval()


def load(
    path: str | Path,
    *,
    device: str = "auto",
    precision: str = "auto",
    ensemble: Sequence[str | Path] = (),
) -> Translator:
    """Opens a model as a translator, or several as one.

    Args:
        path: the model's folder.
        device: `auto`, `cpu` or `cuda`.
        precision: `float32`, `bfloat16`, or `auto`: bfloat16 where that is fast. Its coarser
            rounding may, where two words are almost as likely, depend on the size of a batch.
        ensemble: the folders of further models, whose probabilities are averaged with the first
            one's at every step.

    Raises:
        InputError: if there is no sound model at a path, or tokenizers differ.
    """
    folder = ModelFolder(Path(path))
    tokenizers = folder.read_tokenizers()
    others = [ModelFolder(Path(other)) for other in ensemble]
    for other in others:
        if other.read_tokenizers().fingerprint != tokenizers.fingerprint:
            raise InputError(
                f"{folder.path} and {other.path}: their tokenizers differ, accepted is an "
                f"ensemble of models with the same",
                "train the second with the first one's: --tokenizer or --from",
            )
    engine = TorchEngine(
        load_model(folder, device), precision, [load_model(other, device) for other in others]
    )
    return Translator(engine, tokenizers.source, tokenizers.target)
