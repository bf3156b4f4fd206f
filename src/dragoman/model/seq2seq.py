"""What every encoder-decoder has in common, whatever stands between embeddings and logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dragoman.config import BOS, EOS, PAD, InputError, ModelConfig
from dragoman.model.embedding import InputEmbedding, TokenEmbedding, ZeroStartEmbedding

_START_TOKENS = {"bos": BOS, "eos": EOS, "pad": PAD, "zero": PAD}


@runtime_checkable
class Cache(Protocol):
    """What a decoder keeps between two steps, for some sentences with some hypotheses each."""

    def select(self, rows: Int[Tensor, "kept_batch kept_width"]) -> None:
        """Keeps and reorders hypotheses.

        Args:
            rows: (batch', width'), int64, into the batch * width hypotheses so far; those of one
                line belong to one sentence.
        """
        ...


class Seq2Seq(nn.Module, ABC):
    """An encoder and a decoder between the embeddings of tokens and the logits of the next.

    Attributes:
        config: the architecture.
        start_token: what the decoder reads first.
        max_length: how many tokens a side may have; None where there is no limit.
    """

    def __init__(self, config: ModelConfig, encoder: nn.Module, decoder: nn.Module) -> None:
        """Puts embeddings around an encoder and a decoder, tied as the configuration says."""
        super().__init__()
        self.config = config
        self.start_token = _START_TOKENS[config.decoder_start]
        self.max_length = config.position_limit
        target_embedding = ZeroStartEmbedding if config.decoder_start == "zero" else TokenEmbedding
        source_token = TokenEmbedding(config.source_vocab_size, config)
        target_token = target_embedding(config.target_vocab_size, config)
        self.source_embedding = InputEmbedding(source_token, config)
        self.target_embedding = InputEmbedding(target_token, config)
        self.encoder = encoder
        self.decoder = decoder
        self.output_embedding = TokenEmbedding(config.target_vocab_size, config)
        if config.tie != "none":
            self.output_embedding.weight = target_token.weight
        if config.tie == "source-target-output":
            source_token.weight = target_token.weight

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax projection, (vocab, d_model): logits are hidden @ output_weight.T."""
        return self.output_embedding.weight

    @property
    @abstractmethod
    def alignment_name(self) -> str:
        """Under which name hooks see the weights that stand for the attention to the source.

        They are (batch, heads, target, source) and exist where `config.cross_attention` does.
        """

    def forward(
        self, source: Int[Tensor, "batch source"], target_input: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Returns logits, (batch, target, vocab), of each next token under teacher forcing.

        Args:
            source: ids (batch, source), ending in EOS, padded on the right with PAD.
            target_input: ids (batch, target), as `decoder_input` makes them.
        """
        return F.linear(self.hidden(source, target_input), self.output_weight)

    @abstractmethod
    def hidden(
        self, source: Int[Tensor, "batch source"], target_input: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """Returns the decoder's output before the projection; arguments as in `forward`."""

    def hidden_of_real(
        self,
        source: Int[Tensor, "batch source"],
        target_input: Int[Tensor, "batch target"],
        real: Bool[Tensor, "batch target"],
    ) -> Float[Tensor, "tokens d_model"]:
        """Returns what `hidden` has where `real` is True, sentence by sentence.

        Args:
            source: as in `forward`.
            target_input: as in `forward`.
            real: where the target has no padding.
        """
        return self.hidden(source, target_input)[real]

    def decoder_input(self, target: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """Shifts target, (batch, target), one to the right, behind the start token.

        EOS is never read: where a shorter row would show it, there is padding.
        """
        start = target.new_full((target.shape[0], 1), self.start_token)
        shifted = target[:, :-1]
        return torch.cat([start, shifted.masked_fill(shifted == EOS, PAD)], dim=1)

    @abstractmethod
    def start(self, source: Int[Tensor, "batch source"]) -> Cache:
        """Encodes sources and makes the cache from which `step` decodes.

        Args:
            source: ids (batch, source), as in `forward`.
        """

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, "batch width"], cache: Any
    ) -> Float[Tensor, "batch width vocab"]:
        """Reads one more token of each hypothesis; the cache advances.

        Args:
            tokens: (batch, width), the newest tokens; at first the start token.
            cache: from `start`.

        Returns:
            logits of the next token, (batch, width, vocab).
        """

    @abstractmethod
    def readable(self) -> Seq2Seq:
        """Returns the twin that shows its quantities to hooks; it has the same Parameters."""

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns a copy of parameters and buffers by name, tied ones once."""
        return {
            name: tensor.detach().to("cpu", copy=True).numpy()
            for name, tensor in self._named_tensors().items()
        }

    def load_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Takes parameters and buffers by name.

        Raises:
            InputError: if they don't fit the configuration.
        """
        ours = self._named_tensors()
        for name in sorted(ours.keys() ^ arrays.keys()):
            problem = "is missing" if name in ours else "has no place in the model"
            raise InputError(f"the weights don't fit the configuration: {name} {problem}")
        for name, tensor in ours.items():
            if tuple(tensor.shape) != arrays[name].shape:
                raise InputError(
                    f"the weights don't fit the configuration: {name} has the shape "
                    f"{arrays[name].shape}, accepted is {tuple(tensor.shape)}"
                )
        with torch.no_grad():
            for name, tensor in ours.items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))

    def _named_tensors(self) -> dict[str, Tensor]:
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}
