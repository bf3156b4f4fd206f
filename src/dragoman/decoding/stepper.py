"""What a search needs, and a trained model that gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.config import PAD
from dragoman.model import hooks
from dragoman.model.fast_decoder import FastDecoder
from dragoman.model.seq2seq import Cache, Seq2Seq
from dragoman.model.transformer import Transformer

State = TypeVar("State")


@runtime_checkable
class Stepper(Protocol[State]):
    """Gives the probabilities of next tokens. A search knows nothing else of a model.

    A state belongs to a batch of sentences with `beam` hypotheses each (1 at the start); `step`
    and `select` change it in place. Every vocabulary has the special ids of `dragoman.config`.
    """

    @property
    def start_token(self) -> int:
        """The first decoder input."""
        ...

    @property
    def max_length(self) -> int | None:
        """How many tokens the model can generate, EOS included; None for any number."""
        ...

    @property
    def device(self) -> torch.device:
        """Where tokens are expected and log-probabilities come."""
        ...

    def start(self, sources: Sequence[Sequence[int]]) -> State:
        """Reads the sources (ids with EOS) and returns the state before the first token."""
        ...

    def step(
        self, state: State, tokens: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam vocab"]:
        """Appends a token to each hypothesis and returns the log-probabilities of the next."""
        ...

    def select(self, state: State, rows: Int[Tensor, "kept_batch kept_beam"]) -> None:
        """Keeps the hypotheses of these rows of (batch x beam), each line from one sentence."""
        ...


@runtime_checkable
class AttentiveStepper(Stepper[State], Protocol[State]):
    """A stepper that shows what its hypotheses look at."""

    @property
    def attention(self) -> Float[Tensor, "batch beam source"]:
        """How the latest step spread each hypothesis' attention over the source; rows sum to 1."""
        ...


def pad_ids(sequences: Sequence[Sequence[int]], device: torch.device) -> Int[Tensor, "batch width"]:
    """Returns the sequences as one tensor, filled up with PAD on the right."""
    rows = [torch.tensor(sequence, dtype=torch.int64) for sequence in sequences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)


def log_softmax(logits: Float[Tensor, "*dims vocab"]) -> Float[Tensor, "*dims vocab"]:
    """Returns log-probabilities in float32, or in float64 where the logits are."""
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return logits.log_softmax(dim=-1, dtype=dtype)


class ModelStepper:
    """A Transformer or a recurrent model, one position at a time, with a cache of what it has seen.

    It takes the weights as they are when it is made.
    """

    def __init__(self, model: Seq2Seq, precision: str = "float32") -> None:
        """Prepares a model.

        Args:
            model: in evaluation mode.
            precision: `bfloat16` for products in it, all else for the type of the parameters.
        """
        self.model = model
        self.start_token: int = model.start_token
        self.max_length: int | None = model.max_length
        self.device = model.output_weight.device
        dtype = torch.bfloat16 if precision == "bfloat16" else model.output_weight.dtype
        self._decoder: Any = model  # it takes the caches that it has made itself
        if isinstance(model, Transformer) and FastDecoder.supports(model):
            self._decoder = FastDecoder(model, dtype)

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> Cache:
        """Encodes the sources, once."""
        cache: Cache = self._decoder.start(pad_ids(sources, self.device))
        return cache

    @torch.inference_mode()
    def step(
        self, state: Cache, tokens: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam vocab"]:
        """Runs the decoder for one position."""
        return log_softmax(self._decoder.step(tokens, state))

    @torch.inference_mode()
    def select(self, state: Cache, rows: Int[Tensor, "kept_batch kept_beam"]) -> None:
        """Reorders what the hypotheses have cached."""
        state.select(rows)


class ReadableStepper(ModelStepper):
    """The same through the readable modules, which show their attention."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__(model.readable())
        self._weights = model.alignment_name

    @torch.inference_mode()
    def step(
        self, state: Cache, tokens: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam vocab"]:
        """Runs the decoder for one position and keeps its cross-attention."""
        with hooks.record(self.model, [self._weights]) as seen:
            log_probs = super().step(state, tokens)
        self.attention = seen[self._weights].mean(dim=1)
        return log_probs
