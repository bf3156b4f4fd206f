"""How long a cold process takes to translate one sentence."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dragoman.bench.ours import seeded_model
from dragoman.bench.sentences import Ids
from dragoman.bench.setting import OUTPUT_LENGTH, config_of_size
from dragoman.checkpoint import ModelFolder
from dragoman.config import EOS
from dragoman.data.tokenizer import Tokenizer, Tokenizers

_CTRANSLATE2 = """
import ctranslate2
translator = ctranslate2.Translator({folder!r})
translator.translate_batch([{tokens}], beam_size=4, max_decoding_length={length})
"""
_TRANSFORMERS = """
import torch
from transformers import MarianMTModel
model = MarianMTModel.from_pretrained({folder!r})
model.generate(torch.tensor([{ids}]), num_beams=4, max_new_tokens={length})
"""


@dataclass(frozen=True)
class Command:
    """A process and what it reads."""

    arguments: list[str]
    stdin: bytes = b""

    def run(self) -> float:
        """Returns the seconds from its start to its end.

        Raises:
            subprocess.CalledProcessError: if it fails.
        """
        started = time.perf_counter()
        subprocess.run(self.arguments, input=self.stdin, capture_output=True, check=True)
        return time.perf_counter() - started


def _python(*arguments: str, stdin: bytes = b"") -> Command:
    return Command([sys.executable, *arguments], stdin)


def our_commands(folder: Path, size: str, source: Ids) -> dict[str, Command]:
    """Writes a model and returns what to run; a bare import of torch is what each begins with."""
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    config = config_of_size(size, len(tokenizer))
    model = folder / f"model-{size}"
    model.mkdir()
    ModelFolder.write_description(model, config, Tokenizers(tokenizer, tokenizer))
    ModelFolder(model).write_weights(seeded_model(config.model).to_arrays())
    translate = ["translate", str(model), "--max-output-extra", str(OUTPUT_LENGTH)]
    text = f"{tokenizer.decode(source)}\n".encode()
    return {
        "import torch": _python("-c", "import torch"),
        "dragoman --help": _python("-m", "dragoman", "--help"),
        "dragoman": _python("-m", "dragoman", *translate, "--max-output-factor", "0", stdin=text),
    }


def _ctranslate2_command(folder: Path, size: str, source: Ids) -> Command:
    from dragoman.bench.peer_ctranslate2 import build_spec, piece_names

    config, model = config_of_size(size).model, folder / f"ctranslate2-{size}"
    model.mkdir()
    names = piece_names(config.target_vocab_size)
    build_spec(seeded_model(config), names).save(str(model))
    tokens = [names[id] for id in [*source, EOS]]
    code = _CTRANSLATE2.format(folder=str(model), tokens=tokens, length=OUTPUT_LENGTH)
    return _python("-c", code)


def _transformers_command(folder: Path, size: str, source: Ids) -> Command:
    from transformers.utils import logging

    from dragoman.bench.peer_transformers import build_marian

    logging.disable_progress_bar()
    model = folder / f"transformers-{size}"
    build_marian(config_of_size(size).model).save_pretrained(model)
    code = _TRANSFORMERS.format(folder=str(model), ids=[*source, EOS], length=OUTPUT_LENGTH)
    return _python("-c", code)


PEER_COMMANDS: dict[str, Callable[[Path, str, Ids], Command]] = {
    "transformers": _transformers_command,
    "ctranslate2": _ctranslate2_command,
}
"""Each writes a model and returns what to run; it imports the peer."""
