"""The embedding's scale, first weights of variance 1, and untied matrices (section 3.4)."""

from __future__ import annotations

import math
from functools import partial

import torch

from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.early_steps import first_steps
from dragoman.lab.experiment import (
    WITHIN_NOISE,
    Change,
    Claim,
    Experiment,
    Measure,
    Measured,
    Results,
    Text,
    Variant,
    Verdict,
    holds,
    numbers,
)
from dragoman.lab.judging import judge_gain
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.embedding import TokenEmbedding
from dragoman.model.initialization import initialize
from dragoman.model.seq2seq import Seq2Seq

_D_MODEL = 64
_PAPER, _UNSCALED, _UNTIED = "as the paper", "no scale", "untied"
_UNIT, _UNIT_UNSCALED = "embeddings N(0, 1)", "embeddings N(0, 1), no scale"
_PROJECTIONS = "projections of variance 1"
_STARTS = 16
"""Fresh models that are averaged over."""


@torch.no_grad()
def input_sizes(model: Seq2Seq, source: torch.Tensor) -> tuple[float, float]:
    """Returns root mean squares of what embedding gives a source's tokens and of the positions."""
    embedding = model.source_embedding
    tokens = embedding.token(source)
    positions = embedding.positions(torch.zeros_like(tokens), 0)
    return tokens.square().mean().sqrt().item(), positions.square().mean().sqrt().item()


def _measure(trained: Trained) -> dict[str, Measured]:
    source = end_and_pad(trained.ids[0])
    sizes = [input_sizes(model, source) for model in trained.starts(_STARTS)]
    tokens, positions = (sum(each) / len(sizes) for each in zip(*sizes, strict=True))
    return {
        "token_size": tokens,
        "position_size": positions,
        "first_loss": next(first_steps(trained)).nll,
        "uniform_loss": math.log(trained.config.model.target_vocab_size),
    }


def _judge_sizes(results: Results) -> Verdict:
    found = [results.mean(name, "token_size") for name in (_PAPER, _UNSCALED, _UNIT)]
    position = results.mean(_PAPER, "position_size")
    text = Text(
        "root mean square at the input: positions {3:.3f}; tokens {0:.3f} as the paper, {1:.3f} "
        "without the scale, {2:.2f} where the embeddings are N(0, 1)",
        "输入的均方根：位置 {3:.3f}；词元按论文 {0:.3f}，不乘系数 {1:.3f}，"
        "嵌入为 N(0, 1) 时 {2:.2f}",
    )
    root = math.sqrt(_D_MODEL)
    expected = (1.0, 1 / root, root)
    fits = all(abs(a / b - 1) <= 0.1 for a, b in zip(found, expected, strict=True))
    fits = fits and abs(position / math.sqrt(0.5) - 1) <= 0.01
    return holds(fits, numbers(text, *found, position))


def _judge_first_loss(results: Results) -> Verdict:
    paper, unit = (results.mean(name, "first_loss") for name in (_PAPER, _UNIT))
    uniform = results.mean(_PAPER, "uniform_loss")
    text = Text(
        "loss of step 1: {0:.2f} as the paper, {1:.2f} with N(0, 1); who knows nothing has {2:.2f}",
        "第 1 步的损失：按论文 {0:.2f}，N(0, 1) 时 {1:.2f}；一无所知为 {2:.2f}",
    )
    fits = abs(paper - uniform) <= 1.0 and unit >= 2 * uniform
    return holds(fits, numbers(text, paper, unit, uniform))


_BETTER = Text("More exact translations after as many steps.", "同样的步数后，完全正确的译文更多。")

EXPERIMENT = Experiment(
    name="initialisation",
    number=15,
    version=3,
    title=Text("Embedding scale, first weights, tied matrices", "嵌入缩放、初始权重与共享矩阵"),
    question=Text(
        "How large must the first weights be, and why are embeddings multiplied by sqrt(d_model)?",
        "初始权重应该多大？为什么嵌入要乘 sqrt(d_model)？",
    ),
    settings={**SMALL, "model": {**SMALL["model"], "d_model": _D_MODEL}},
    steps=500,
    quick_steps=300,
    variants=(
        Variant(_PAPER, zh="与论文相同"),
        Variant(_UNSCALED, Change("model.embedding_scale", False), zh="不缩放"),
        Variant(_UNIT, Change("model.embedding_gain", math.sqrt(_D_MODEL)), zh="嵌入 N(0, 1)"),
        Variant(
            _UNIT_UNSCALED,
            Change("model.embedding_scale", False),
            _UNIT,
            zh="嵌入 N(0, 1)，不缩放",
        ),
        Variant(
            _PROJECTIONS,
            Change("model.projection_gain", math.sqrt(_D_MODEL)),
            zh="方差为 1 的投影",
        ),
        Variant(_UNTIED, Change("model.tie", "none"), zh="不共享权重"),
    ),
    measures=(
        Measure("token_size", Text("tokens at the input (rms)", "输入处词元（均方根）")),
        Measure(
            "position_size",
            Text("positions at the input (rms)", "输入处位置（均方根）"),
        ),
        Measure("first_loss", Text("loss of step 1 (nats)", "第 1 步的损失（nat）")),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "The scale makes tokens as large as positions; without it they are sqrt(d_model) "
                "times smaller.",
                "乘以该系数使词元与位置大小相当；不乘则小 sqrt(d_model) 倍。",
            ),
            Text(
                "follows from the first weights, N(0, 1 / d_model); Vaswani et al. 2017, "
                "section 3.4",
                "由初始权重 N(0, 1 / d_model) 推出；Vaswani et al. 2017，3.4 节",
            ),
            Text(
                "Tokens 1, without it 1/8, with N(0, 1) 8, within 10 %; positions sqrt(1/2), "
                "within 1 %.",
                "词元为 1，不乘为 1/8，N(0, 1) 时为 8，误差 10% 以内；"
                "位置为 sqrt(1/2)，误差 1% 以内。",
            ),
            _judge_sizes,
        ),
        Claim(
            Text(
                "A sound start knows nothing and says so; embeddings N(0, 1) start sure and wrong.",
                "好的初始状态一无所知且不武断；N(0, 1) 的嵌入一开始就自信而错误。",
            ),
            Text(
                "follows from the size of the logits where the output shares the matrix",
                "由输出层共享矩阵时 logits 的大小推出",
            ),
            Text(
                "Step 1: within 1 nat of log(vocabulary), and with N(0, 1) at least twice that.",
                "第 1 步：与 log(词表大小) 相差不到 1 nat；N(0, 1) 时至少是它的两倍。",
            ),
            _judge_first_loss,
        ),
        Claim(
            Text(
                "With the scale a model learns better.",
                "乘以 sqrt(d_model) 的模型学得更好。",
            ),
            Text(
                "Vaswani et al. 2017, section 3.4, without a reason",
                "Vaswani et al. 2017，3.4 节，未说明理由",
            ),
            Text(
                "More exact translations after as many steps: positions drown the tokens without "
                "it.",
                "同样的步数后完全正确的译文更多：不乘时词元被位置淹没。",
            ),
            partial(judge_gain, _PAPER, _UNSCALED),
        ),
        Claim(
            Text(
                "A model learns better with embeddings N(0, 1 / d_model) than N(0, 1).",
                "嵌入取 N(0, 1/d_model) 比取 N(0, 1) 学得更好。",
            ),
            Text(
                "tensor2tensor's first weights, beside torch's nn.Embedding",
                "tensor2tensor 的初始权重，对照 torch 的 nn.Embedding",
            ),
            _BETTER,
            partial(judge_gain, _PAPER, _UNIT),
        ),
        Claim(
            Text(
                "N(0, 1) does harm without the scale, too, where the output shares the matrix.",
                "输出共享该矩阵时，即使不乘系数，N(0, 1) 也有害。",
            ),
            Text(
                "follows from the size of the logits; many codes leave N(0, 1) unscaled",
                "由 logits 的大小推出；许多代码用 N(0, 1) 而不缩放",
            ),
            Text(
                "Fewer exact translations than as the paper has it.",
                "完全正确的译文比按论文的少。",
            ),
            partial(judge_gain, _PAPER, _UNIT_UNSCALED),
        ),
        Claim(
            Text(
                "A model learns better with Xavier's projections than with a variance of 1.",
                "投影用 Xavier 初始化，比方差为 1 学得更好。",
            ),
            Text(
                "Glorot and Bengio 2010; tensor2tensor's first weights",
                "Glorot and Bengio 2010；tensor2tensor 的初始权重",
            ),
            _BETTER,
            partial(judge_gain, _PAPER, _PROJECTIONS),
        ),
        Claim(
            Text(
                "A model learns better with one matrix for both embeddings and the output.",
                "两个嵌入与输出共用一个矩阵的模型学得更好。",
            ),
            Text(
                "Press and Wolf 2017; Vaswani et al. 2017, section 3.4, doesn't say so",
                "Press and Wolf 2017；Vaswani et al. 2017，3.4 节未这样说",
            ),
            Text(
                "Within noise: a few symbols have all the examples that they need.",
                "在噪声范围内：符号很少，每个都有足够的样本。",
            ),
            partial(judge_gain, _PAPER, _UNTIED),
            expected=WITHIN_NOISE,
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    why=Text(
        "One matrix has two uses. As the output it must be small, for a logit is the sum of "
        "d_model products with a normalised vector; as the input it must be as large as the "
        "positions beside it. Small first weights and the factor sqrt(d_model) at the input serve "
        "both.",
        "一个矩阵有两种用途。用于输出时必须小，因为 logit 是与归一化向量的 d_model 个乘积之和；"
        "用于输入时要与位置大小相当。小的初始权重加上输入处的系数 sqrt(d_model)，两者兼顾。",
    ),
    formula="x = sqrt(d_model) E[token] + PE, logits = E h, E ~ N(0, 1 / d_model)",
    code=(initialize, TokenEmbedding),
)
