"""Everything a model looks at as it reads a sentence and writes a translation of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dragoman.config import EOS, DecodingConfig, InputError
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translator
from dragoman.model import hooks
from dragoman.model.seq2seq import Seq2Seq
from dragoman.model.transformer import Transformer

_KINDS = {
    "encoder.self_attention": "encoder",
    "decoder.self_attention": "decoder",
    "decoder.cross_attention": "cross",
}
_NAME = re.compile(
    r"(?P<stack>encoder|decoder)\.layers\.(?P<layer>\d+)\.(?P<part>(self|cross)_attention)"
    r"(\.head\.(?P<head>\d+))?"
)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Tokens:
    """A row of tokens, EOS among them."""

    ids: list[int]
    pieces: list[str]
    """As the tokenizer has them: blanks as U+2581, bytes as `<0xE4>`."""
    labels: list[str]
    """As `label_pieces` has them."""

    @classmethod
    def of(cls, ids: Sequence[int], tokenizer: Tokenizer) -> Tokens:
        """Names some ids."""
        pieces = tokenizer.pieces(ids)
        return cls(list(ids), pieces, label_pieces(pieces))


@dataclass(frozen=True)
class Weights:
    """The weights of an attention or of one head, with the tokens on either side."""

    values: npt.NDArray[np.float32]
    """(query, key), rows that sum to 1."""
    queries: Tokens
    keys: Tokens


@dataclass(frozen=True)
class Reading:
    """What a model looks at, under teacher forcing of its own translation or of a given one.

    Each array of weights is of shape (layers, heads, query, key), and its rows sum to 1.
    """

    text: str
    translation: str
    log_probability: float
    """Natural logarithm of the probability of the translation and EOS given the text."""
    source: Tokens
    target: Tokens
    """What is chosen: its place i is the query of row i of `cross`."""
    target_input: Tokens
    """What the decoder reads meanwhile: the start token, then the target but for its last."""
    encoder: npt.NDArray[np.float32] | None
    """(layers, heads, source, source); None without self-attention, as in a recurrent model."""
    decoder: npt.NDArray[np.float32] | None
    """(layers, heads, target, target); nothing behind a token's own place."""
    cross: npt.NDArray[np.float32] | None
    """(layers, heads, target, source); None without cross-attention."""

    def alignment(self) -> npt.NDArray[np.float32]:
        """Returns the last layer's cross-attention, mean over its heads: (target, source).

        Raises:
            InputError: for a model without cross-attention.
        """
        if self.cross is None:
            raise InputError(
                f"the text {self.text[:20]!r} gives no attention to look at, accepted is a model "
                f"with cross-attention"
            )
        mean: npt.NDArray[np.float32] = self.cross[-1].mean(axis=0)
        return mean

    def weights(self, name: str) -> Weights:
        """Returns the weights of an attention, mean over its heads, or of one head.

        Args:
            name: such as `encoder.layers.0.self_attention`, or with `.head.3` behind it.

        Raises:
            InputError: if the model has none of that name.
        """
        sides = {
            "encoder": (self.source, self.source),
            "decoder": (self.target_input, self.target_input),
            "cross": (self.target, self.source),
        }
        match = _NAME.fullmatch(name)
        kind = _KINDS.get(f"{match['stack']}.{match['part']}", "") if match else ""
        layers = getattr(self, kind) if kind else None
        if match is not None and layers is not None and int(match["layer"]) < len(layers):
            heads = layers[int(match["layer"])]
            if match["head"] is None:
                return Weights(heads.mean(axis=0), *sides[kind])
            if int(match["head"]) < len(heads):
                return Weights(heads[int(match["head"])], *sides[kind])
        raise InputError(f"{name!r} is not an attention of this model", self._name_attentions())

    def _name_attentions(self) -> str:
        """Says which names `weights` takes."""
        found = []
        for name, kind in _KINDS.items():
            if (layers := getattr(self, kind)) is not None:
                stack, _, part = name.partition(".")
                found.append(
                    f"{stack}.layers.0-{len(layers) - 1}.{part}.head.0-{len(layers[0]) - 1}"
                )
        return f"it has {', '.join(found)}; without .head, their mean" if found else "it has none"

    def sentence(self) -> dict[str, Any]:
        """Returns what is said of both sides as a whole, for a file."""
        keys = ("text", "translation", "log_probability")
        return {key: getattr(self, key) for key in keys}


def read(
    translator: Translator,
    text: str,
    target: str | None = None,
    config: DecodingConfig = DecodingConfig(),  # noqa: B008 (frozen)
) -> Reading:
    """Looks at a model as it translates a text, or as it is made to say a target.

    Args:
        translator: with an engine that runs in torch; of an ensemble its first model.
        text: the source sentence, cut where `translate` would cut it.
        target: looked at instead of the model's translation.
        config: how to search for the translation.

    Raises:
        InputError: if the text is blank, or the target too long for a model with learned positions.
    """
    if not text.strip():
        raise InputError(
            f"the text {text[:20]!r} gives no attention to look at, accepted is a text that isn't "
            f"blank"
        )
    longest = translator.engine.longest_source(config)
    source = [*translator.source_tokenizer.encode(text)[: longest - 1], EOS]
    if target is None:
        [[best, *_]] = translator.engine.translate([source[:-1]], config)
        chosen = best.tokens
    else:
        chosen = [*translator.target_tokenizer.encode(target), EOS]
    return read_ids(translator, source, chosen)


def read_ids(translator: Translator, source: list[int], target: list[int]) -> Reading:
    """Looks at a model as it reads a source and says a target, both ids as they are."""
    model = model_of(translator)
    twin = model.readable().eval()
    device = model.output_weight.device
    source_ids, target_ids = (torch.tensor([ids], device=device) for ids in (source, target))
    target_input = twin.decoder_input(target_ids)
    names = _weight_names(model)
    all_names = itertools.chain.from_iterable(names.values())
    with torch.inference_mode(), hooks.record(twin, all_names) as seen:
        logits = twin(source_ids, target_input)
        log_probs = logits.double().log_softmax(-1).gather(2, target_ids[..., None])
    weights = {
        kind: torch.cat([seen[name] for name in layers]).float().cpu().numpy() if layers else None
        for kind, layers in names.items()
    }
    return Reading(
        text=translator.source_tokenizer.decode(source),
        translation=translator.target_tokenizer.decode(target),
        log_probability=float(log_probs.sum()),
        source=Tokens.of(source, translator.source_tokenizer),
        target=Tokens.of(target, translator.target_tokenizer),
        target_input=Tokens.of(target_input[0].tolist(), translator.target_tokenizer),
        **weights,
    )


def model_of(translator: Translator) -> Seq2Seq:
    """Returns the network behind a translator; of an ensemble the first."""
    assert isinstance(translator.engine, TorchEngine), "only torch shows what a model looks at"
    return translator.engine.models[0]


def _weight_names(model: Seq2Seq) -> dict[str, list[str]]:
    """Returns the names of the attention weights of each kind, layer by layer."""
    config = model.config
    if not isinstance(model, Transformer):
        cross_names = [model.alignment_name] if config.cross_attention else []
        return {"encoder": [], "decoder": [], "cross": cross_names}
    encoder, decoder = range(config.num_encoder_layers), range(config.num_decoder_layers)
    cross = decoder if config.cross_attention else ()
    return {
        "encoder": [f"encoder.layers.{n}.self_attention.weights" for n in encoder],
        "decoder": [f"decoder.layers.{n}.self_attention.weights" for n in decoder],
        "cross": [f"decoder.layers.{n}.cross_attention.weights" for n in cross],
    }


def label_pieces(pieces: Sequence[str]) -> list[str]:
    """Returns pieces as people read them.

    A blank is shown as U+2423, an open box. The bytes of a character that has no piece of its own
    are shown as that character and the byte's place in it, such as `你 1/3`; bytes that make no
    character stay as they are, such as `<0xE4>`.
    """
    labels: list[str] = []
    while len(labels) < len(pieces):
        run = list(_bytes_from(pieces, len(labels)))
        labels += _label_bytes(run) or [pieces[len(labels)].replace("\u2581", "\u2423")]
    return labels


def _bytes_from(pieces: Sequence[str], first: int) -> Iterator[int]:
    """Yields the bytes of the byte pieces that stand from `first` on, four at most."""
    for piece in pieces[first : first + 4]:  # UTF-8 has no longer character
        if not (match := _BYTE.fullmatch(piece)):
            return
        yield int(match[1], 16)


def _label_bytes(run: list[int]) -> list[str]:
    """Returns the labels of the character that some bytes begin with; empty if with none."""
    for length in range(1, len(run) + 1):
        try:
            character = bytes(run[:length]).decode()
        except UnicodeDecodeError:
            continue
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        if length == 1:
            return [shown]
        return [f"{shown} {place}/{length}" for place in range(1, length + 1)]
    return []
