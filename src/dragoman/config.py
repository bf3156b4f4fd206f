"""Every setting of Dragoman, as frozen dataclasses that check themselves.

The dataclasses are the options: the command line, a TOML file and Python fill the same fields
(`settings.py` does it).
A setting is written `section.field`, such as `model.d_model`, in files, flags and messages alike.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""The special ids of every vocabulary."""
_MOST_TOKENS = 10**12
"""Of a batch; more would be a slip of the pen."""


class InputError(ValueError):
    """A user's mistake. The message is one line: the place, the value, what is accepted."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class RunError(RuntimeError):
    """A run that can't go on, through no fault in its input. The message is one line."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def nearest_hint(word: str, accepted: Iterable[str]) -> str | None:
    """Returns 'did you mean X?' for the accepted word nearest to a misspelt one, if any is near."""
    near = difflib.get_close_matches(word, list(accepted), n=1)
    return f"did you mean {near[0]}?" if near else None


def _require(condition: bool, name: str, value: object, accepted: str) -> None:
    if not condition:
        raise InputError(f"{name} is {value}, accepted is {accepted}")


def _require_positive(section: str, config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value > 0, f"{section}.{name}", value, "a number above 0")


def _require_not_negative(section: str, config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value >= 0, f"{section}.{name}", value, "0 or more")


def _require_at_most(section: str, config: object, most: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value <= most, f"{section}.{name}", value, f"at most {most:,}")


def _require_probability(section: str, config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(0.0 <= value < 1.0, f"{section}.{name}", value, "0 or more and below 1")


def _require_choices(section: str, config: Any) -> None:
    for name, hint in typing.get_type_hints(type(config)).items():
        if typing.get_origin(hint) is Literal and (value := getattr(config, name)) not in (
            choices := typing.get_args(hint)
        ):
            raise InputError(
                f"{section}.{name} is {value!r}, accepted is one of {', '.join(choices)}",
                nearest_hint(str(value), choices),
            )


@dataclass(frozen=True)
class ModelConfig:
    """The architecture. The defaults are the paper's base model (sections 3 and 5.4).

    A recurrent model takes the vocabularies, the numbers of layers, `d_model`, `dropout`,
    `embedding_dropout`, `embedding_scale`, `decoder_start`, `projection_gain`, `embedding_gain`,
    `cross_attention`, `padding_mask` and `tie`; the other fields say nothing about it.
    """

    architecture: Literal["transformer", "recurrent"] = "transformer"
    """The paper's, or the LSTMs that it replaced (`dragoman.model.recurrent`)."""
    source_vocab_size: int = 37000
    target_vocab_size: int = 37000
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_k: int = 0
    """Width of a head's queries and keys; 0 takes d_model / num_heads."""
    d_v: int = 0
    """Width of a head's values; 0 takes d_model / num_heads."""

    dropout: float = 0.1
    """On the output of each sub-layer, before it is added (section 5.4)."""
    embedding_dropout: float = 0.1
    """On the sum of embedding and position (section 5.4)."""
    attention_dropout: float = 0.0
    """On the attention weights: tensor2tensor, not the paper's text."""
    feed_forward_dropout: float = 0.0
    """Inside the feed-forward network: tensor2tensor, not the paper's text."""

    norm_place: Literal["post", "pre", "none"] = "post"
    norm: Literal["layer", "rms", "batch", "none"] = "layer"
    norm_epsilon: float = 1e-5
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "sinusoidal"
    sinusoid_layout: Literal["interleaved", "halves"] = "interleaved"
    sinusoid_denominator: Literal["d", "d/2-1"] = "d"
    first_position: int = 0
    max_positions: int = 1024
    """How many positions a model with learned positions has; no other kind has a limit."""
    decoder_start: Literal["bos", "eos", "pad", "zero"] = "bos"
    scale_scores: bool = True
    head_transpose: Literal["both", "merge", "none"] = "both"
    """Where heads and positions change places: on the way in and out, or, by mistake, not so."""
    embedding_scale: bool = True
    residual: bool = True
    feed_forward: Literal["relu", "gelu", "swiglu", "none"] = "relu"
    attention_bias: bool = False
    projection_gain: float = 1.0
    """Factor on the Xavier bound of the projections' first weights.

    Below 1 a deep or narrow post-norm model keeps its positions apart at the start; torch's own
    `nn.Linear` has 0.58 for a square matrix.
    """
    embedding_gain: float = 1.0
    """Factor on the embeddings' first deviation, d_model^-0.5; sqrt(d_model) makes it 1."""
    cross_attention: bool = True
    causal_mask: bool = True
    padding_mask: bool = True
    tie: Literal["source-target-output", "target-output", "none"] = "source-target-output"

    def __post_init__(self) -> None:
        _require_choices("model", self)
        _require_positive("model", self, "d_model", "d_ff", "num_heads", "max_positions")
        _require_positive("model", self, "num_encoder_layers", "num_decoder_layers")
        _require_positive("model", self, "norm_epsilon", "projection_gain", "embedding_gain")
        _require_not_negative("model", self, "d_k", "d_v", "first_position")
        _require_probability("model", self, "dropout", "embedding_dropout")
        _require_probability("model", self, "attention_dropout", "feed_forward_dropout")
        for name in ("source_vocab_size", "target_vocab_size"):
            _require(getattr(self, name) > EOS, f"model.{name}", getattr(self, name), "4 or more")
        if self.architecture == "recurrent":
            self._check_recurrent()
        else:
            self._check_heads()
        if self.tie == "source-target-output" and self.source_vocab_size != self.target_vocab_size:
            raise InputError(
                f"model.tie is {self.tie}, but the source vocabulary has {self.source_vocab_size} "
                f"entries and the target vocabulary {self.target_vocab_size}",
                "with separate tokenizers use model.tie target-output or none",
            )

    def _check_heads(self) -> None:
        for name in ("d_k", "d_v"):
            if getattr(self, name) == 0:
                if self.d_model % self.num_heads:
                    raise InputError(
                        f"model.d_model is {self.d_model}, accepted is a multiple of "
                        f"model.num_heads ({self.num_heads})",
                        f"or set model.{name} yourself",
                    )
                object.__setattr__(self, name, self.d_model // self.num_heads)
        if self.positions == "rotary":
            _require(
                self.d_k % 2 == 0, "model.d_k", self.d_k, "an even number for rotary positions"
            )

    def _check_recurrent(self) -> None:
        _require(
            self.d_model % 2 == 0,
            "model.d_model",
            self.d_model,
            "an even number where model.architecture is recurrent: half of it for each direction",
        )
        _require(
            self.causal_mask,
            "model.causal_mask",
            self.causal_mask,
            "true where model.architecture is recurrent: its decoder can't look ahead",
        )

    @property
    def position_limit(self) -> int | None:
        """How many tokens a side may have; None where nothing sets a limit."""
        learned = self.architecture == "transformer" and self.positions == "learned"
        return self.max_positions if learned else None


def _require_both(section: str, config: object, *names: str) -> None:
    given = [name for name in names if getattr(config, name)]
    for missing in set(names) - set(given) if given else ():
        raise InputError(f"{section}.{given[0]} is given without {section}.{missing}")


def _require_files(section: str, config: object, prefix: str = "") -> None:
    """Checks that parallel files go together and stand beside no files of pairs."""
    source, target, pairs = (prefix + side for side in ("source", "target", "pairs"))
    _require_both(section, config, source, target)
    if getattr(config, source) and getattr(config, pairs):
        raise InputError(
            f"{section}.{pairs} and {section}.{source} are both given, accepted is one"
        )
    n_source, n_target = len(getattr(config, source)), len(getattr(config, target))
    if n_source != n_target:
        raise InputError(
            f"{section}.{source} has {n_source} files and {section}.{target} {n_target}, "
            f"accepted is as many of each"
        )


@dataclass(frozen=True)
class CorpusConfig:
    """Training text among other training text."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    """TSV or JSONL files that hold both sides, instead of source and target."""
    weight: float = 1.0
    """How many times an epoch reads each pair; 0.25 reads a quarter of the pairs."""

    def __post_init__(self) -> None:
        _require_files("data.corpora", self)
        _require_positive("data.corpora", self, "weight")
        if not (self.source or self.pairs):
            raise InputError("data.corpora has no files, accepted is source and target, or pairs")


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from and how it is cleaned and cut into pieces."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    """TSV or JSONL files that hold both sides, instead of source and target."""
    corpora: tuple[CorpusConfig, ...] = ()
    """Further training text with weights of its own; the files above have weight 1."""
    valid_source: tuple[str, ...] = ()
    valid_target: tuple[str, ...] = ()
    valid_pairs: tuple[str, ...] = ()
    source_language: str = ""
    target_language: str = ""

    tokenizer: str = ""
    """A SentencePiece model for both sides, to use instead of learning one."""
    source_tokenizer: str = ""
    target_tokenizer: str = ""
    """SentencePiece models, one for each side, to use instead of learning them."""
    vocab_size: int = 8000
    joint_vocabulary: bool = True
    """One tokenizer for both sides; false learns one for each."""
    bpe_dropout: float = 0.0
    """Chance that a merge is left out when a training sentence is cut, anew each time it is read.

    Provilkov et al. 2020, who take 0.1; sentences get longer by it.
    """

    max_length: int = 256
    """Longest side of a training pair in tokens, EOS included; 0 takes every length."""
    max_length_ratio: float = 9.0
    """Longest over shortest side in tokens, EOS included; 0 takes every ratio."""
    drop_empty: bool = True
    drop_duplicates: bool = True
    drop_identical: bool = True
    """Whether pairs go whose two sides are the same text: mostly untranslated lines."""

    held_out_share: float = 0.01
    """Share of the pairs kept for validation, by hash, where no validation files are given."""
    held_out_most: int = 1000

    def __post_init__(self) -> None:
        _require_not_negative("data", self, "max_length", "max_length_ratio", "held_out_most")
        _require_probability("data", self, "held_out_share")
        _require(self.vocab_size >= 300, "data.vocab_size", self.vocab_size, "300 or more")
        _require(self.max_length != 1, "data.max_length", self.max_length, "0, or 2 or more")
        _require_probability("data", self, "bpe_dropout")
        _require_files("data", self)
        _require_files("data", self, "valid_")
        _require_both("data", self, "source_tokenizer", "target_tokenizer")
        if self.tokenizer and self.source_tokenizer:
            raise InputError(
                "data.tokenizer and data.source_tokenizer are both given, accepted is one"
            )

    @property
    def all_corpora(self) -> tuple[CorpusConfig, ...]:
        """Every training text in the order in which it is read."""
        if not (self.source or self.pairs):
            return self.corpora
        return (CorpusConfig(self.source, self.target, self.pairs), *self.corpora)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the training texts, in their order."""
        return tuple(corpus.weight for corpus in self.all_corpora)


@dataclass(frozen=True)
class TrainingConfig:
    """How a model learns. The defaults are the paper's (section 5)."""

    batch_tokens: int = 25000
    """Tokens of a whole step: sentences x longest side, EOS included, all micro-batches."""
    accumulation: int = 1
    """Micro-batches that a step is cut into."""
    max_steps: int = 100_000
    max_hours: float = 0.0
    """Stops after so many hours of training; 0 sets no limit."""
    seed: int = 1

    schedule: Literal["noam", "inverse-square-root", "constant"] = "noam"
    warmup_steps: int = 4000
    noam_factor: float = 1.0
    """Multiplies the Noam schedule; 1 in the paper."""
    peak_learning_rate: float = 5e-4
    """The highest rate of the schedules other than Noam."""
    adam_beta1: float = 0.9
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    label_smoothing: float = 0.1
    """Probability spread evenly over the whole vocabulary, the right token included."""
    clip_norm: float = 0.0
    """Longest gradient (2-norm over all parameters); 0 never clips, as the paper."""
    precision: Literal["auto", "float64", "float32", "bfloat16"] = "auto"
    """Of the products; float64 is for the parameters too, to compare runs to the last digit."""
    gradient_checkpointing: bool = False

    log_every: int = 50
    validate_every: int = 1000
    """Steps between two validations; each one also saves a checkpoint."""
    validation_lines: int = 500
    """How many validation lines are decoded freely; the loss is taken over all of them."""
    best_by: Literal["bleu", "chrf", "loss"] = "bleu"
    """The validation score that names the best checkpoint and decides on early stopping."""
    patience: int = 0
    """Validations without a better score after which training stops; 0 never does."""
    keep_checkpoints: int = 5
    average_last: int = 5
    """Checkpoints averaged at the end (section 6.1); at most keep_checkpoints."""

    def __post_init__(self) -> None:
        _require_choices("training", self)
        _require_positive("training", self, "batch_tokens", "accumulation", "max_steps")
        _require_positive("training", self, "noam_factor", "peak_learning_rate", "adam_epsilon")
        _require_positive("training", self, "log_every", "validate_every", "keep_checkpoints")
        _require_positive("training", self, "average_last", "validation_lines")
        _require_at_most("training", self, _MOST_TOKENS, "batch_tokens")
        _require_not_negative("training", self, "max_hours", "seed", "clip_norm", "patience")
        _require_not_negative("training", self, "warmup_steps")
        _require_probability("training", self, "adam_beta1", "adam_beta2", "label_smoothing")
        _require(
            self.average_last <= self.keep_checkpoints,
            "training.average_last",
            self.average_last,
            f"at most training.keep_checkpoints ({self.keep_checkpoints})",
        )
        if self.schedule == "noam":
            _require_positive("training", self, "warmup_steps")


@dataclass(frozen=True)
class DecodingConfig:
    """How a translation is searched for. The defaults are the paper's (section 6.1)."""

    beam_size: int = 4
    """Hypotheses followed at once; 1 is greedy search."""
    length_penalty: float = 0.6
    length_penalty_form: Literal["gnmt", "power"] = "gnmt"
    """score = log_probability / ((5 + L) / 6)^penalty (gnmt) or / L^penalty (power).

    L counts the generated tokens, EOS among them.
    """
    n_best: int = 1
    max_output_extra: int = 50
    max_output_factor: float = 1.0
    """An output has at most factor x source tokens + extra tokens, EOS included on both sides."""
    max_source_length: int = 1024
    """A source of more tokens, EOS included, is cut to these and flagged."""
    no_repeat_ngram: int = 0
    """No output holds the same n tokens twice; 0 allows it."""
    repetition_penalty: float = 1.0
    """Factor on the log-probability of a token that the output holds already; above 1 discourages.

    The tokens of a forced prefix count as held, but aren't penalised themselves.
    """
    coverage_penalty: float = 0.0
    """Beta of Wu et al. 2016, equation 14: what leaving parts of the source unattended costs.

    beta x the sum over the source tokens of log(min(attention it got, 1)) is added to the score.
    """
    sample: bool = False
    """Whether tokens are drawn by their probability; then there is no beam, and n_best draws."""
    temperature: float = 1.0
    """Log-probabilities are divided by it before a draw; below 1 favours the likely."""
    top_k: int = 0
    """Draws are among so many most probable tokens; 0 takes all."""
    top_p: float = 1.0
    """Draws are among the fewest most probable of those tokens that reach this probability."""
    seed: int = 1
    """Of the draws. Each line has a stream of its own, from the seed and its place in the input."""
    batch_tokens: int = 4096
    """Sentences x longest source of a batch, EOS included."""
    alignment: bool = False
    """Whether each output token's cross-attention over the source is returned."""

    def __post_init__(self) -> None:
        _require_choices("decoding", self)
        _require_positive("decoding", self, "beam_size", "n_best", "batch_tokens")
        _require_not_negative("decoding", self, "max_output_extra", "max_output_factor")
        _require_not_negative("decoding", self, "no_repeat_ngram", "coverage_penalty")
        _require_positive("decoding", self, "repetition_penalty")
        _require_at_most("decoding", self, 10_000, "beam_size", "max_output_factor")
        _require_at_most(
            "decoding", self, 1_000_000, "n_best", "max_output_extra", "max_source_length"
        )
        _require_at_most("decoding", self, _MOST_TOKENS, "batch_tokens")
        _require(
            abs(self.length_penalty) <= 10,
            "decoding.length_penalty",
            self.length_penalty,
            "from -10 to 10",
        )
        _require(
            self.max_source_length >= 2,
            "decoding.max_source_length",
            self.max_source_length,
            "2 or more",
        )
        _require(
            self.max_output_extra + self.max_output_factor > 0,
            "decoding.max_output_extra",
            self.max_output_extra,
            "above 0 where max_output_factor is 0",
        )
        _require(
            self.sample or self.n_best <= self.beam_size,
            "decoding.n_best",
            self.n_best,
            f"at most decoding.beam_size ({self.beam_size})",
        )
        self._check_sampling()

    def _check_sampling(self) -> None:
        _require_positive("decoding", self, "temperature")
        _require(
            self.temperature >= 1e-6, "decoding.temperature", self.temperature, "1e-06 or more"
        )
        _require_not_negative("decoding", self, "top_k")
        _require(0 <= self.seed < 2**64, "decoding.seed", self.seed, "from 0 to 2^64 - 1")
        _require(0 < self.top_p <= 1, "decoding.top_p", self.top_p, "above 0 and at most 1")
        for name in () if self.sample else ("temperature", "top_k", "top_p"):
            value, neutral = getattr(self, name), getattr(DecodingConfig, name)
            _require(
                value == neutral, f"decoding.{name}", value, f"{neutral} without decoding.sample"
            )
        _require(
            not self.coverage_penalty or (self.beam_size > 1 and not self.sample),
            "decoding.coverage_penalty",
            self.coverage_penalty,
            "0 without a beam: it chooses among hypotheses (decoding.beam_size 2 or more, no "
            "decoding.sample)",
        )

    def max_output_length(self, source_length: int) -> int:
        """Returns how many tokens, EOS included, the output of so long a source may have."""
        return max(1, int(self.max_output_factor * source_length) + self.max_output_extra)


@dataclass(frozen=True)
class Config:
    """What a model folder keeps: the architecture, the data and the training."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def longest_sentence(self) -> int:
        """Most tokens of a sentence that is trained on, EOS included; 0 where there is no limit."""
        limits = self.data.max_length, self.model.position_limit
        return min((limit for limit in limits if limit), default=0)
