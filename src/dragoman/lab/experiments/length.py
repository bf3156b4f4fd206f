"""What a long sentence takes: memory, time, and steps between its ends (section 4, table 1)."""

from __future__ import annotations

import math
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dragoman.config import EOS, UNK, ModelConfig, RunError
from dragoman.kernels import resources
from dragoman.kernels.blockwise import blockwise_attention
from dragoman.kernels.process import tune_process
from dragoman.kernels.timing import seconds, take_turns
from dragoman.lab.experiment import (
    Chart,
    Claim,
    Experiment,
    Measured,
    Results,
    Text,
    Verdict,
    holds,
    numbers,
)
from dragoman.model.attention import (
    FusedMultiHeadAttention,
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from dragoman.model.layers import EncoderLayer, Stack
from dragoman.model.masks import AttentionMask
from dragoman.model.recurrent import build_lstm, run_lstm
from dragoman.model.transformer import Transformer
from dragoman.training.step import TrainingLoss

_LENGTHS = (128, 256, 512, 1024, 2048, 4096)
_ROUNDS = 3
"""Of all but the longest sentence, which takes as long as all the others together."""
_NEAR = 0.9
"""From this share of a limit on, up to its inverse, a measurement says nothing about the limit."""
_PATH_LENGTHS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Way:
    """How attention is computed, and whether activations are made again."""

    attention: type[MultiHeadAttention]
    checkpointing: bool


_WAYS = {
    "reference": Way(MultiHeadAttention, False),
    "reference_again": Way(MultiHeadAttention, True),
    "blockwise": Way(FusedMultiHeadAttention, False),
    "blockwise_again": Way(FusedMultiHeadAttention, True),
}
_LABELS = {
    "reference": Text("reference", "参考实现"),
    "reference_again": Text("reference, checkpointing", "参考实现 + 检查点"),
    "blockwise": Text("blockwise", "分块"),
    "blockwise_again": Text("blockwise, checkpointing", "分块 + 检查点"),
}


def _config() -> ModelConfig:
    return ModelConfig(
        source_vocab_size=300,
        target_vocab_size=300,
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=64,
        d_ff=128,
        num_heads=2,
        dropout=0.0,
        embedding_dropout=0.0,
    )


def _sentence(length: int) -> Tensor:
    ids = torch.full((1, length), UNK)
    ids[0, -1] = EOS
    return ids


def cost(way: Way, length: int, threads: int) -> tuple[int | None, float]:
    """Measures loss and gradient of one pair of sentences; sets what a process has for all.

    Returns:
        The peak of memory in bytes, above what the process had before, None where the system
        doesn't tell it; and seconds.
    """
    torch.set_num_threads(threads)
    tune_process(frugal=True)  # what is freed must not count
    torch.manual_seed(1)
    model = Transformer(
        _config(), gradient_checkpointing=way.checkpointing, attention=way.attention
    )
    loss = TrainingLoss(model.train(), 0.0)

    def work(ids: Tensor) -> None:
        loss(ids, ids).loss.backward()

    work(_sentence(_LENGTHS[0]))  # gradients, and what happens once
    ids, taken = _sentence(length), list[float]()
    peak = resources.peak_above(lambda: taken.append(seconds(partial(work, ids))))
    return peak, taken[0]


def _costs() -> dict[str, Measured]:
    """Measures each way at each length, in a process of its own each time."""
    found: dict[str, dict[str, float]] = {
        f"{what}_{name}": {} for what in ("peak", "seconds") for name in _WAYS
    }
    for length in _LENGTHS:
        measures = {name: partial(_cost_apart, name, length) for name in _WAYS}
        rounds = 1 if length == _LENGTHS[-1] else _ROUNDS
        for name, answers in take_turns(measures, rounds).items():
            peaks = [peak for peak, _ in answers if peak is not None]
            if peaks:
                found[f"peak_{name}"][str(length)] = statistics.median(peaks) / 1e6
            times = [taken for _, taken in answers]
            found[f"seconds_{name}"][str(length)] = statistics.median(times)
    return dict(found)


def _cost_apart(name: str, length: int) -> tuple[int | None, float]:
    """Returns the `cost` of a way as a new process finds it, which has nothing of this one.

    Raises:
        RunError: if the process was ended from outside, for want of memory most likely.
    """
    # It comes from a server that has imported all that it needs, once, and has done no work.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    try:
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(cost, _WAYS[name], length, torch.get_num_threads()).result()
    except BrokenProcessPool:
        raise RunError(
            f"attention over {length} tokens ({name}): the process that measured it was ended",
            "it takes about 2 GB",
        ) from None


def attention_reach(x: Tensor, cut: int) -> Tensor:
    """Reads x, (1, length, d_model), with one encoder layer; token `cut` passes nothing back.

    Returns:
        The last token's output, (1, d_model).
    """
    torch.manual_seed(1)
    layer = EncoderLayer(_config(), MultiHeadAttention).to(x.dtype)
    parts = x[:, :cut], x[:, cut : cut + 1].detach(), x[:, cut + 1 :]
    last: Tensor = layer(torch.cat(parts, dim=1), AttentionMask())[:, -1]
    return last


def recurrent_reach(x: Tensor, cut: int) -> Tensor:
    """As `attention_reach` with one layer of an LSTM, whose state at `cut` passes nothing back."""
    torch.manual_seed(1)
    lstm = build_lstm(_config(), x.shape[2], 1, False).to(x.dtype)
    _, state = run_lstm(lstm, x[:, : cut + 1])
    outputs, _ = run_lstm(lstm, x[:, cut + 1 :], tuple(part.detach() for part in state))
    last: Tensor = outputs[:, -1]
    return last


_READERS = {"attention": attention_reach, "recurrence": recurrent_reach}


def path_length(reader: str, length: int) -> int:
    """Returns how many steps apart the ends of a sentence are, within one layer.

    That is one more than there are tokens between them which every way passes: cut one of these,
    and no gradient comes back from the last token to the first.
    """
    passed = 0
    for cut in range(1, length - 1):
        x = torch.randn(1, length, _config().d_model, dtype=torch.float64, requires_grad=True)
        _READERS[reader](x, cut)[0, 0].backward()  # their sum, normalised, is always 0
        assert x.grad is not None
        passed += not x.grad[:, 0].any()
    return 1 + passed


def _observe() -> dict[str, Measured]:
    paths: dict[str, Measured] = {
        f"path_{name}": {str(n): float(path_length(name, n)) for n in _PATH_LENGTHS}
        for name in _READERS
    }
    return {**paths, **_costs()}


def _values(results: Results, name: str) -> list[float]:
    found = results.observed[name]
    assert isinstance(found, dict)
    return [found[n] for n in sorted(found, key=int)]


def growth(results: Results, way: str) -> float:
    """Returns the exponent of memory's growth from the third longest length to the longest."""
    *_, lower, _, upper = _values(results, f"peak_{way}")
    return math.log2(upper / lower) / 2


def _unmeasured() -> Verdict:
    text = Text("this system doesn't tell a process's memory", "该系统不提供进程的内存用量")
    return Verdict("no result", text)


_GROWTH = Text(
    "from 1,024 to 4,096 tokens memory grows as n^{0:.2f}, to {1:,.0f} MB",
    "从 1024 到 4096 个词元，内存按 n^{0:.2f} 增长，达到 {1:,.0f} MB",
)


def _judge_quadratic(results: Results) -> Verdict:
    if not results.observed["peak_reference"]:
        return _unmeasured()
    exponent, peak = growth(results, "reference"), _values(results, "peak_reference")[-1]
    return holds(exponent >= 1.8, numbers(_GROWTH, exponent, peak))


def _judge_linear(results: Results) -> Verdict:
    if not results.observed["peak_blockwise"]:
        return _unmeasured()
    exponent, peak = growth(results, "blockwise"), _values(results, "peak_blockwise")[-1]
    return holds(exponent <= 1.2, numbers(_GROWTH, exponent, peak))


def _judge_sixty_four(results: Results) -> Verdict:
    if not results.observed["peak_reference"]:
        return _unmeasured()
    *_, lower, _, _, upper = _values(results, "peak_reference")
    seen = numbers(Text("{0:.1f} times", "{0:.1f} 倍"), upper / lower)
    return holds(48 <= upper / lower < 64, seen)


def _judge_checkpointing(results: Results) -> Verdict:
    if not results.observed["peak_reference"]:
        return _unmeasured()
    memory, time = (
        _values(results, f"{what}_reference_again")[-1] / _values(results, f"{what}_reference")[-1]
        for what in ("peak", "seconds")
    )
    text = Text(
        "4,096 tokens, reference: {0:.2f} of the memory, {1:.2f} times the time; memory still "
        "grows as n^{2:.2f}",
        "参考实现，4096 个词元：内存为 {0:.2f} 倍，时间为 {1:.2f} 倍；内存仍按 n^{2:.2f} 增长",
    )
    seen = numbers(text, memory, time, growth(results, "reference_again"))
    return _judge_limits(seen, memory / 0.75, time / 1.5)


def _judge_limits(seen: Text, *shares: float) -> Verdict:
    """Returns the verdict on the claim that no measurement is above its limit.

    The longest sentence is measured once: near a limit, chance decides.

    Args:
        seen: the numbers.
        shares: each measurement as a share of its limit.
    """
    most = max(shares)
    if _NEAR < most < 1 / _NEAR:
        return Verdict("within noise", seen)
    return holds(most < 1, seen)


def _judge_time(results: Results) -> Verdict:
    ours, theirs = (_values(results, f"seconds_{way}") for way in ("blockwise", "reference"))
    ratio, shortest = ours[-1] / theirs[-1], ours[0] / theirs[0]
    text = Text(
        "blockwise takes {0:.2f} times the reference's time at 4,096 tokens, {1:.2f} at 128",
        "分块计算的时间是参考实现的 {0:.2f} 倍（4096 个词元）、{1:.2f} 倍（128 个词元）",
    )
    return _judge_limits(numbers(text, ratio, shortest), ratio)


def _judge_paths(results: Results) -> Verdict:
    attention, recurrence = (_values(results, f"path_{name}") for name in _READERS)
    text = Text(
        "attention: {0:.0f} step at every length; recurrence: {1:.0f} steps for {2} tokens",
        "注意力：任何长度都是 {0:.0f} 步；循环：{2} 个词元需要 {1:.0f} 步",
    )
    expected = [n - 1.0 for n in _PATH_LENGTHS]
    right = attention == [1.0] * len(attention) and recurrence == expected
    return holds(right, numbers(text, max(attention), recurrence[-1], _PATH_LENGTHS[-1]))


_TOKENS = Text("tokens of each side", "每侧的词元数")

EXPERIMENT = Experiment(
    name="length",
    number=17,
    version=1,
    title=Text("Long sentences: path, memory, time", "长句：路径、内存、时间"),
    question=Text(
        "What does a sentence of n tokens take, and how far apart are its ends?",
        "长度为 n 的句子需要多少内存和时间？首尾相距多远？",
    ),
    settings={},
    charts=(
        Chart(
            Text("peak memory of a training step (MB)", "一步训练的内存峰值（MB）"),
            _TOKENS,
            {f"peak_{name}": label for name, label in _LABELS.items()},
        ),
        Chart(
            Text("time of a training step (s)", "一步训练的时间（秒）"),
            _TOKENS,
            {f"seconds_{name}": label for name, label in _LABELS.items()},
        ),
        Chart(
            Text("steps between the ends of a sentence", "句子首尾之间的步数"),
            Text("tokens", "词元数"),
            {
                "path_attention": Text("attention", "注意力"),
                "path_recurrence": Text("recurrence", "循环"),
            },
        ),
    ),
    claims=(
        Claim(
            Text(
                "The longest path between two tokens is 1 for attention and grows with n for "
                "recurrence.",
                "任意两个词元之间的最长路径，注意力为 1，循环网络随 n 增长。",
            ),
            Text(
                "Vaswani et al. 2017, table 1; the essay, 1.3",
                "Vaswani et al. 2017，表 1；原文 1.3",
            ),
            Text("1 and n - 1, exactly.", "恰好是 1 和 n - 1。"),
            _judge_paths,
        ),
        Claim(
            Text(
                "By its definition attention takes memory that is quadratic in the length.",
                "按定义计算，注意力的内存与长度的平方成正比。",
            ),
            Text("follows from the definition; the essay, 6.2", "由定义推出；原文 6.2"),
            Text("An exponent of at least 1.8.", "指数至少为 1.8。"),
            _judge_quadratic,
        ),
        Claim(
            Text("512 to 4096 tokens is 64 times the memory.", "从 512 到 4096，内存是 64 倍。"),
            Text("the essay, 6.2", "原文 6.2"),
            Text(
                "At least 48 times, and below 64, for not all of it is matrices of scores.",
                "至少 48 倍，但不到 64 倍，因为内存并不都是得分矩阵。",
            ),
            _judge_sixty_four,
        ),
        Claim(
            Text(
                "Computed in blocks, the same attention takes memory that is linear.",
                "分块计算时，同样的注意力只需线性的内存。",
            ),
            Text("Dao et al. 2022; the essay, 6.2", "Dao et al. 2022；原文 6.2"),
            Text("An exponent of at most 1.2.", "指数至多为 1.2。"),
            _judge_linear,
        ),
        Claim(
            Text("It is faster, too.", "它也更快。"),
            Text("Dao et al. 2022, for GPUs", "Dao et al. 2022（针对 GPU）"),
            Text(
                "At most 0.9 of the reference's time at 4,096 tokens: on a CPU, too, large "
                "matrices wait for memory.",
                "4096 个词元时，至多为参考实现时间的 0.9 倍：在 CPU 上，大矩阵同样受限于内存带宽。",
            ),
            _judge_time,
        ),
        Claim(
            Text(
                "Gradient checkpointing buys memory with time.",
                "梯度检查点以时间换内存。",
            ),
            Text("Chen et al. 2016; the essay, 6.2", "Chen et al. 2016；原文 6.2"),
            Text(
                "With the reference at 4,096 tokens at most 0.75 of the memory, for at most 1.5 "
                "times the time: one more forward pass is a third.",
                "参考实现、4096 个词元时，内存至多 0.75 倍，时间至多 1.5 倍："
                "多一次前向计算约为三分之一。",
            ),
            _judge_checkpointing,
        ),
    ),
    observe=_observe,
    why=Text(
        "Each head has a matrix of n x n scores, and training keeps its weights for the backward "
        "pass. In blocks only some rows and columns of it exist at a time; a running maximum and "
        "sum correct what was gathered, and the backward pass makes the blocks again. "
        "Checkpointing keeps one layer's matrices at a time instead of all: fewer, but still "
        "n x n.",
        "每个头都有 n×n 的得分矩阵，训练要把权重留给反向传播。"
        "分块计算时，任何时刻只存在其中的若干行列；用滚动的最大值和总和修正已累积的结果，"
        "反向传播时再把各块重新算一遍。检查点只是每次保留一层的矩阵，而不是所有层："
        "变少了，但仍是 n×n。",
    ),
    formula="n x n scores a head: 4096^2 / 512^2 = 64;  blockwise: context and one number a row",
    code=(scaled_dot_product_attention, blockwise_attention, Stack.run, path_length),
)
