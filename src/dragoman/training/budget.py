"""What training will take, before it begins: parameters, memory, tokens, operations."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

from dragoman.config import UNK, Config, ModelConfig
from dragoman.kernels.attention import is_long, longest_with_weights
from dragoman.kernels.device import compute_in, resolve_precision
from dragoman.model.architecture import build_model
from dragoman.model.attention import FusedMultiHeadAttention
from dragoman.model.masks import AttentionMask
from dragoman.model.recurrent import QUERIES_AT_ONCE
from dragoman.model.transformer import Transformer

_FEED_FORWARD_MATRICES = {"relu": 2, "gelu": 2, "swiglu": 3, "none": 0}
_LOGITS = 3 << 21
"""Most numbers of the size of logits that the loss holds: see `dragoman.kernels.cross_entropy`."""
_PROCESS_BYTES = 97 << 20
"""What a process holds after the first step of a toy, above a bare `import torch`."""
_UNUSED, _UNUSED_CHECKPOINTING = 0.5, 0.2
"""Of the tensors' bytes, what the allocator holds besides: blocks that were freed and fit nothing.
Measured with glibc that gives no large block back, 4,096 tokens a batch: 0.44 with paper-base, 0.45
to 0.52 with small, 0.51 to 0.70 with tiny; and where it gives large blocks back, as with gradient
checkpointing it must, 0.17 with small."""
_KEPT_BY_LSTM, _KEPT_BY_ATTENTION = 24, 8
"""Numbers that a layer keeps for each token and dimension on a CPU: four gates and two states, some
more than once. Additive attention keeps one for each pair of tokens besides."""
_PROBE_SIZES = {"cpu": 1024, "cuda": 8192}
_PROBE_SECONDS = 0.5


@dataclass(frozen=True)
class BatchShape:
    """Sentence pairs, and the tokens that each side of them has, EOS and padding included."""

    pairs: int
    length: int

    @property
    def tokens(self) -> int:
        """Of both sides together."""
        return 2 * self.pairs * self.length


def step_shape(config: Config, length: int) -> BatchShape:
    """Returns the batch of a whole step whose sentences have so many tokens."""
    return BatchShape(max(1, config.training.batch_tokens // length), length)


def largest_micro_batches(config: Config, precision: str, device: str) -> list[BatchShape]:
    """Returns micro-batches one of which takes the most memory.

    They have the longest sentences that may come, and on a CPU the longest that keep weights.
    """
    training = config.training
    longest = min(training.batch_tokens, config.longest_sentence or training.batch_tokens)
    lengths = {longest}
    if device == "cpu":
        lengths.add(min(longest, longest_with_weights(precision)))
    steps = (step_shape(config, length) for length in sorted(lengths))
    return [BatchShape(-(-each.pairs // training.accumulation), each.length) for each in steps]


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Counts the parameters of embeddings, encoder and decoder, a tied matrix once."""
    with torch.device("meta"):  # shapes without storage
        model = build_model(config)
    counts = {"embeddings": 0, "encoder": 0, "decoder": 0}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        counts[part if part in counts else "embeddings"] += parameter.numel()
    return counts


def count_operations(config: ModelConfig, shape: BatchShape) -> int:
    """Counts the operations of a batch in training, as `operations_of_pair` does of a pair."""
    return shape.pairs * operations_of_pair(config, shape.length, shape.length)


def operations_of_pair(config: ModelConfig, source: int, target: int) -> int:
    """Counts the floating-point operations of the matrix products that train on one pair.

    A multiplication and an addition are two operations. Where the forward pass makes one product
    the backward pass makes two, for both factors. Everything that isn't a matrix product is left
    out; so is what `gradient_checkpointing` repeats.

    Args:
        config: the model.
        source: tokens of the source, EOS included.
        target: tokens of the target, likewise.
    """
    if config.architecture == "recurrent":
        return _operations_of_recurrent(config, source, target)

    def attention(queries: int, keys: int) -> int:
        # Q K^T and weights x V, each query with each key; and the four projections around them.
        heads = config.num_heads * (config.d_k + config.d_v)
        return heads * (queries * keys + (queries + keys) * config.d_model)

    matrices = _FEED_FORWARD_MATRICES[config.feed_forward]
    feed_forward = matrices * config.d_model * config.d_ff
    crossing = attention(target, source) if config.cross_attention else 0
    encoder_layer = attention(source, source) + source * feed_forward
    decoder_layer = attention(target, target) + crossing + target * feed_forward
    encoder = config.num_encoder_layers * encoder_layer
    decoder = config.num_decoder_layers * decoder_layer
    output = target * config.d_model * config.target_vocab_size
    encoder_passes = 3 if config.cross_attention else 1  # what nobody reads has no gradient
    return 2 * (encoder_passes * encoder + 3 * (decoder + output))


def _operations_of_recurrent(config: ModelConfig, source: int, target: int) -> int:
    """Counts the same of LSTMs, with four gates that see the token and the state before it."""
    d_model, half = config.d_model, config.d_model // 2
    encoder = config.num_encoder_layers * 2 * 4 * source * half * (d_model + half)
    decoder = config.num_decoder_layers * 4 * target * d_model * 2 * d_model
    # Projections of queries, keys and, from twice the width, the output; scores; weights x values.
    projections = (target + source + 2 * target) * d_model * d_model
    attention = projections + 2 * target * source * d_model if config.cross_attention else 0
    output = target * d_model * config.target_vocab_size
    return 3 * 2 * (encoder + decoder + attention + output)


class _WeightlessAttention(FusedMultiHeadAttention):
    """Keeps what a fused function keeps for its backward pass: no attention weights."""

    def attend(
        self,
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: AttentionMask,
    ) -> Float[Tensor, "batch heads query d_v"]:
        # what the heads have found is copied once more when it is joined and packed
        return F.scaled_dot_product_attention(queries, keys, values).contiguous()


class _CpuAttention(_WeightlessAttention):
    """Keeps what a CPU keeps: attention weights of short sentences only."""

    def attend(
        self,
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: AttentionMask,
    ) -> Float[Tensor, "batch heads query d_v"]:
        if is_long(queries, keys):  # no other kernel keeps anything else
            return super().attend(queries, keys, values, mask)
        return FusedMultiHeadAttention.attend(self, queries, keys, values, mask)


def estimate_memory(
    config: Config, parameters: int, shape: BatchShape, precision: str, device: str
) -> dict[str, int]:
    """Estimates the bytes that training takes at its peak, by what they are for.

    These are tensors; what the process holds besides is `estimate_overhead`.

    Args:
        config: the settings.
        parameters: how many the model has.
        shape: of the micro-batch.
        precision: as in `dragoman.training.step.training_step`.
        device: `cpu`, or `cuda`, whose attention keeps no weights; not measured on one.
    """
    width = 8 if precision == "float64" else 4
    remade = 0
    if config.model.architecture == "recurrent":
        kept, remade = _memory_of_lstms(config, shape, width)
    else:
        kept = kept_for_backward(config, shape, precision, device) * width // 4
    if config.training.gradient_checkpointing and config.model.architecture == "transformer":
        kept += _keys_values_of_memory(config.model, shape, 2 if precision == "bfloat16" else width)
        training = dataclasses.replace(config.training, gradient_checkpointing=False)
        plain = dataclasses.replace(config, training=training)
        layers = config.model.num_encoder_layers + config.model.num_decoder_layers
        remade = kept_for_backward(plain, shape, precision, device) * width // 4 // layers
    vocab = config.model.target_vocab_size
    logits = width * min(_LOGITS, 3 * shape.pairs * shape.length * vocab)
    return {
        "weights": width * parameters,
        "gradients": width * parameters,
        "moments": 2 * width * parameters,
        "activations": kept,
        # the loss makes the output matrix's gradient while the activations are still there
        "work space": width * config.model.d_model * vocab + max(logits, remade),
    }


def estimate_overhead(config: Config, tensors: int) -> dict[str, int]:
    """Estimates the bytes that a training process holds on a CPU besides its tensors.

    Args:
        config: the settings.
        tensors: bytes of the tensors, from `estimate_memory`.

    Returns:
        By what they are for; with the tensors the peak, above what a bare `import torch` takes.
    """
    unused = _UNUSED_CHECKPOINTING if config.training.gradient_checkpointing else _UNUSED
    return {"allocator": round(unused * tensors), "program": _PROCESS_BYTES}


def _keys_values_of_memory(config: ModelConfig, shape: BatchShape, width: int) -> int:
    """Returns the bytes of what cross-attention has projected before the layers are called."""
    numbers = config.num_decoder_layers * config.num_heads * (config.d_k + config.d_v)
    return config.cross_attention * numbers * shape.pairs * shape.length * width


def _memory_of_lstms(config: Config, shape: BatchShape, width: int) -> tuple[int, int]:
    """Returns the bytes that LSTMs and additive attention keep, and what the latter adds later.

    Counted by hand, for what a pass keeps without storage isn't what a CPU keeps.
    """
    model, recompute = config.model, config.training.gradient_checkpointing
    of_tokens = shape.pairs * shape.length * model.d_model * width
    kept = _KEPT_BY_LSTM * of_tokens * (model.num_encoder_layers + model.num_decoder_layers)
    if not model.cross_attention:
        return kept, 0
    compared = of_tokens * min(shape.length, QUERIES_AT_ONCE if recompute else shape.length)
    kept += _KEPT_BY_ATTENTION * of_tokens + (0 if recompute else compared)
    return kept, (3 if recompute else 2) * compared


def kept_for_backward(config: Config, shape: BatchShape, precision: str, device: str) -> int:
    """Returns the bytes that a Transformer's forward pass of a batch keeps, without the loss.

    The pass itself is made, on tensors that have shapes and no storage, and what it leaves behind
    is counted. Arguments as in `estimate_memory`; float64 is counted as float32.
    """
    kept: dict[StorageWeakRef, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[StorageWeakRef(storage)] = storage.nbytes()
        return tensor

    # No sentence is shorter than another, and a mask of lengths would have to look at them.
    model_config = dataclasses.replace(config.model, padding_mask=False)
    with FakeTensorMode():
        model = Transformer(
            model_config,
            gradient_checkpointing=config.training.gradient_checkpointing,
            attention=_WeightlessAttention if device == "cuda" else _CpuAttention,
        )
        ids = torch.full((shape.pairs, shape.length), UNK)
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            compute_in(precision, torch.device("cpu")),
        ):
            hidden = model.hidden(ids, model.decoder_input(ids))
        parameters = {StorageWeakRef(each.untyped_storage()) for each in model.parameters()}
        sizes = [size for ref, size in kept.items() if ref not in parameters and not ref.expired()]
        del hidden  # its graph, until here, held what was counted
    return sum(sizes)


def plan_precision(precision: str, device: str) -> str:
    """Returns the precision of a run on a device that need not be here."""
    if device == "cuda" and precision == "auto" and not torch.cuda.is_available():
        return "bfloat16"
    return resolve_precision(precision, torch.device(device))


def measure_rate(device: torch.device, precision: str) -> float:
    """Returns the floating-point operations a second of large matrix products, here and now."""
    dtype = {"bfloat16": torch.bfloat16, "float64": torch.float64}.get(precision, torch.float32)
    size = _PROBE_SIZES[device.type]
    factor = torch.ones(size, size, dtype=dtype, device=device)
    return products_per_second(lambda: factor @ factor, _PROBE_SECONDS) * 2 * size**3


def products_per_second(multiply: Callable[[], Tensor], at_least: float) -> float:
    """Measures how often a matrix product can be made, for so many seconds."""
    multiply()[0, 0].item()  # the first product also loads and starts things
    products, started, seconds = 0, time.perf_counter(), 0.0
    while seconds < at_least:
        multiply()[0, 0].item()  # waits until a GPU has done it
        products += 1
        seconds = time.perf_counter() - started
    return products / seconds
