"""What the paper replaced: LSTMs, and attention as it was first, a way out of their bottleneck.

The encoder is a bidirectional LSTM (Hochreiter and Schmidhuber 1997; Schuster and Paliwal 1997),
the decoder an LSTM that begins in the encoder's last state (Sutskever et al. 2014). So far a
sentence of any length is one vector; with `cross_attention` the decoder also looks at every
source token, by additive attention (Bahdanau et al. 2015). As in Luong et al. 2015 it looks with
its newest state, after the recurrence, not before it: what it finds goes into the prediction but
not into the next state, so that all positions of a known target look at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from dragoman.config import ModelConfig
from dragoman.kernels.dropout import Dropout
from dragoman.model.initialization import initialize
from dragoman.model.masks import AttentionMask, sequence_lengths
from dragoman.model.seq2seq import Seq2Seq

State = tuple[Float[Tensor, "_layers _rows _d"], Float[Tensor, "_layers _rows _d"]]
"""The outputs and the cells of an LSTM's layers, each (layers, rows, d)."""

QUERIES_AT_ONCE = 8
"""So many at a time are compared with all keys where nothing of it is kept."""


def build_lstm(config: ModelConfig, width: int, num_layers: int, bidirectional: bool) -> nn.LSTM:
    """Makes an LSTM over (batch, length, d_model) with dropout between its layers alone.

    Never from one token to the next, which would wear the memory off (Zaremba et al. 2014).
    """
    return nn.LSTM(
        config.d_model,
        width,
        num_layers,
        batch_first=True,
        dropout=config.dropout if num_layers > 1 else 0.0,
        bidirectional=bidirectional,
    )


def run_lstm(lstm: nn.LSTM, *inputs: Any) -> Any:
    """Calls an LSTM; on a CPU in the type of its parameters, whatever the other products are in.

    oneDNN has no LSTM in bfloat16 where the CPU has no products in it.
    """
    with torch.autocast("cpu", enabled=False):
        return lstm(*inputs)


class RecurrentEncoder(nn.Module):
    """Reads a sentence forwards and backwards, half of d_model each; stops where it ends."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.lstm = build_lstm(config, config.d_model // 2, config.num_encoder_layers, True)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch source d_model"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch source d_model"], State]:
        """Returns memory, (batch, source, d_model), and the last states, (layers, batch, d_model).

        Args:
            x: embedded sources, (batch, source, d_model).
            lengths: (batch,), how many positions are real.
        """
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, state = run_lstm(self.lstm, packed)
        memory, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        return self.dropout(memory), self.join(state)

    def join(self, state: State) -> State:
        """Puts a layer's two directions, (2 layers, batch, d_model / 2), one behind the other."""
        outputs, cells = (each.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2) for each in state)
        return outputs, cells


class PaddedEncoder(RecurrentEncoder):
    """Reads padding as if it were words: what leaving the padding mask out means here."""

    def forward(
        self, x: Float[Tensor, "batch source d_model"], lengths: Int[Tensor, " batch"] | None
    ) -> tuple[Float[Tensor, "batch source d_model"], State]:
        memory, state = run_lstm(self.lstm, x)
        return self.dropout(memory), self.join(state)


@dataclass
class Memory:
    """What a decoder sees of its sources."""

    values: Float[Tensor, "batch source d_model"]
    keys: Float[Tensor, "batch source d_model"]
    """The values projected for the scores, once a sentence."""
    lengths: Int[Tensor, " batch"] | None
    """(batch,): how many source positions are real; None where padding isn't masked."""
    mask: AttentionMask = field(init=False)

    def __post_init__(self) -> None:
        self.mask = AttentionMask(self.lengths)

    def select(self, sentences: Int[Tensor, " kept_batch"]) -> Memory:
        """Returns what is seen of these sentences."""
        lengths = None if self.lengths is None else self.lengths[sentences]
        return Memory(self.values[sentences], self.keys[sentences], lengths)


class AdditiveAttention(nn.Module):
    """tanh(W_o [context; s]), context = sum_j a_j h_j, a = softmax_j(v^T tanh(W s + U h_j)).

    The scores are those of Bahdanau et al. 2015 (appendix A.1.2), the output is that of Luong et
    al. 2015 (equation 5). `scores`, `weights` and `context` are named places for hooks.
    """

    def __init__(self, config: ModelConfig, recompute: bool) -> None:
        super().__init__()
        d_model = config.d_model
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.score_proj = nn.Linear(d_model, 1, bias=False)
        self.out_proj = nn.Linear(2 * d_model, d_model, bias=False)
        self.recompute = recompute
        self.scores = nn.Identity()
        self.weights = nn.Identity()
        self.context = nn.Identity()

    def forward(
        self, states: Float[Tensor, "batch query d_model"], memory: Memory
    ) -> Float[Tensor, "batch query d_model"]:
        """Lets each state, (batch, query, d_model), look at the memory of its sentence.

        Scores and weights are (batch, 1, query, source), as of one head.
        """
        queries = self.q_proj(states)
        scores = self.scores(self._score(queries, memory.keys)[:, None])
        mask = memory.mask.realise(queries[:, None], memory.keys[:, None])
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))  # no sentence is empty
        weights = self.weights(scores.softmax(-1))
        context = self.context(weights[:, 0].to(memory.values.dtype) @ memory.values)
        return torch.tanh(self.out_proj(torch.cat([context, states], dim=-1)))

    def _score(
        self,
        queries: Float[Tensor, "batch query d_model"],
        keys: Float[Tensor, "batch source d_model"],
    ) -> Float[Tensor, "batch query source"]:
        """Compares each query with each key; with `recompute` a few queries at a time.

        The tanh is of batch x query x source x d_model numbers: the most of what training keeps,
        and why the paper's authors take dot products (section 3.2.1).
        """
        if not (self.recompute and torch.is_grad_enabled()):
            return self._compare(queries, keys)
        parts = queries.split(QUERIES_AT_ONCE, dim=1)
        scores = [checkpoint(self._compare, part, keys, use_reentrant=False) for part in parts]
        return torch.cat(scores, dim=1)

    def _compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.score_proj(torch.tanh(queries[:, :, None] + keys[:, None])).squeeze(-1)


class NoAttention(nn.Module):
    """Predicts from the state alone: all that is known of the source is where it began."""

    def __init__(self) -> None:
        super().__init__()
        self.k_proj = nn.Identity()

    def forward(
        self, states: Float[Tensor, "batch query d_model"], memory: Memory
    ) -> Float[Tensor, "batch query d_model"]:
        return states


class RecurrentDecoder(nn.Module):
    """Reads the target so far, and looks at the source before it predicts."""

    def __init__(self, config: ModelConfig, recompute: bool) -> None:
        super().__init__()
        self.lstm = build_lstm(config, config.d_model, config.num_decoder_layers, False)
        self.dropout = Dropout(config.dropout)
        self.attention = (
            AdditiveAttention(config, recompute) if config.cross_attention else NoAttention()
        )
        # Counted from the top: the last layer begins in the encoder's last, and so on; where the
        # encoder has fewer layers, those below all begin in its first.
        difference = config.num_encoder_layers - config.num_decoder_layers
        self.begins_in = [max(0, n + difference) for n in range(config.num_decoder_layers)]

    def first_state(self, state: State) -> State:
        """Returns the state before the first token from the encoder's last states."""
        outputs, cells = (each[self.begins_in] for each in state)
        return outputs, cells

    def forward(
        self, x: Float[Tensor, "rows target d_model"], state: State, memory: Memory
    ) -> tuple[Float[Tensor, "rows target d_model"], State]:
        """Maps embedded target tokens to what the next ones are predicted from.

        Args:
            x: (batch * width, target, d_model); the `width` hypotheses of a sentence share its row
                of the memory.
            state: before the first of them, (layers, batch * width, d_model).
            memory: of `batch` sentences.

        Returns:
            As x, and the state behind the last of them.
        """
        states, state = run_lstm(self.lstm, x, state)
        batch = memory.values.shape[0]
        queries = self.dropout(states).reshape(batch, -1, states.shape[2])
        return self.attention(queries, memory).view_as(states), state


@dataclass
class RecurrentCache:
    """The state of the sentences' hypotheses, `width` each."""

    memory: Memory
    state: State
    """(layers, batch * width, d_model) each."""
    width: int = 1

    def select(self, rows: Int[Tensor, "kept_batch kept_width"]) -> None:
        """Keeps and reorders hypotheses, as `dragoman.model.seq2seq.Cache` has it."""
        sentences = rows[:, 0] // self.width
        batch = self.memory.values.shape[0]
        if not torch.equal(sentences, torch.arange(batch, device=rows.device)):
            self.memory = self.memory.select(sentences)
        outputs, cells = self.state
        self.state = outputs[:, rows.flatten()], cells[:, rows.flatten()]
        self.width = rows.shape[1]


class Recurrent(Seq2Seq):
    """A bidirectional LSTM encoder and an LSTM decoder, with or without attention."""

    encoder: RecurrentEncoder
    decoder: RecurrentDecoder

    def __init__(self, config: ModelConfig, *, gradient_checkpointing: bool = False) -> None:
        """Makes a model with fresh parameters, as `dragoman.model.initialization` describes them.

        Args:
            config: the architecture; which fields count, `ModelConfig` says.
            gradient_checkpointing: whether attention's scores are made again for the backward
                pass; the LSTMs keep what they have.
        """
        encoder = RecurrentEncoder if config.padding_mask else PaddedEncoder
        decoder = RecurrentDecoder(config, gradient_checkpointing)
        super().__init__(config, encoder(config), decoder)
        self.apply(
            partial(initialize, gain=config.projection_gain, embedding_gain=config.embedding_gain)
        )

    @property
    def alignment_name(self) -> str:
        """Of the one attention there is."""
        return "decoder.attention.weights"

    def hidden(
        self, source: Int[Tensor, "batch source"], target_input: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """Returns the decoder's output before the projection; arguments as in `forward`."""
        memory, state = self.encode(source)
        hidden, _ = self.decoder(self.target_embedding(target_input), state, memory)
        return hidden

    def encode(self, source: Int[Tensor, "batch source"]) -> tuple[Memory, State]:
        """Returns what the decoder sees of the sources, and the state that it begins in."""
        lengths = sequence_lengths(source).clamp(min=1) if self.config.padding_mask else None
        values, state = self.encoder(self.source_embedding(source), lengths)
        keys = self.decoder.attention.k_proj(values)
        return Memory(values, keys, lengths), self.decoder.first_state(state)

    def start(self, source: Int[Tensor, "batch source"]) -> RecurrentCache:
        """Encodes sources, (batch, source), and makes the cache from which `step` decodes."""
        return RecurrentCache(*self.encode(source))

    def step(
        self, tokens: Int[Tensor, "batch width"], cache: RecurrentCache
    ) -> Float[Tensor, "batch width vocab"]:
        """Reads one more token of each hypothesis, (batch, width); returns the next one's logits.

        What it costs doesn't grow with what was read before: the state is all there is of it.
        """
        x = self.target_embedding(tokens.reshape(-1, 1))
        hidden, cache.state = self.decoder(x, cache.state, cache.memory)
        return F.linear(hidden, self.output_weight).view(*tokens.shape, -1)

    def readable(self) -> Recurrent:
        """Returns this model, which has but one way to compute, and hooks see it."""
        return self
