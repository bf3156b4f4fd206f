"""Cross-attention taken away: a decoder that knows nothing of the source (section 3.2.3)."""

from __future__ import annotations

from functools import partial

import torch

from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.experiment import (
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
from dragoman.lab.judging import CHANCE, judge_nothing
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.layers import DecoderLayer

_WITH, _WITHOUT = "cross-attention", "no cross-attention"
_SOURCES = 20
"""Sources that are compared."""


@torch.no_grad()
def source_effect(trained: Trained) -> float:
    """Returns how much, at most, logits differ between sources; 0 only if no bit does."""
    sources, targets = trained.ids
    target_input = trained.model.decoder_input(end_and_pad(targets[:1]))
    logits = [trained.model(end_and_pad([source]), target_input) for source in sources[:_SOURCES]]
    most: float = torch.stack([(each - logits[0]).abs().max() for each in logits]).max().item()
    return most


def _measure(trained: Trained) -> dict[str, Measured]:
    return {"source_effect": source_effect(trained), "forced": trained.forced_accuracy()}


def _judge_deaf(results: Results) -> Verdict:
    most = max(results.values(_WITHOUT, "source_effect"))
    text = Text("logits differ by {0:g} between sources", "不同源句之间 logits 相差 {0:g}")
    return holds(most == 0.0, numbers(text, most))


EXPERIMENT = Experiment(
    name="cross-attention",
    number=14,
    version=2,
    title=Text("Cross-attention taken away", "去掉交叉注意力"),
    question=Text(
        "What is left of a translator whose decoder can't look at the source?",
        "如果解码器看不到源句，翻译模型还剩下什么？",
    ),
    settings=SMALL,
    steps=500,
    quick_steps=400,
    variants=(
        Variant(_WITH, zh="有交叉注意力"),
        Variant(_WITHOUT, Change("model.cross_attention", False), zh="无交叉注意力"),
    ),
    measures=(
        Measure("source_effect", Text("largest difference of a logit", "logit 的最大差异")),
        Measure("forced", Text("tokens right under teacher forcing", "教师强制下的词元正确率")),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Without it the logits are the same for every source, bit for bit.",
                "没有它，任何源句的 logits 都逐位相同。",
            ),
            Text("follows from the definition; the essay, 4.2", "由定义推出；原文 4.2"),
            Text("A difference of exactly 0.", "差异恰好为 0。"),
            _judge_deaf,
        ),
        Claim(
            Text(
                "A language model is left, which reverses strings no better than by chance.",
                "剩下的只是一个语言模型，反转字符串的正确率与瞎猜无异。",
            ),
            Text("follows from the definition; the essay, 4.2", "由定义推出；原文 4.2"),
            Text(
                f"At most {100 * CHANCE:g} % exactly right, and clearly fewer than with it.",
                f"完全正确的不超过 {100 * CHANCE:g}%，且明显少于有交叉注意力时。",
            ),
            partial(judge_nothing, _WITHOUT, _WITH),
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    why=Text(
        "The only way from the encoder to the logits goes through the keys and values of "
        "cross-attention. Without it the decoder models p(target) instead of p(target | source).",
        "从编码器到 logits 的唯一通路是交叉注意力的键和值。"
        "去掉它，解码器建模的就是 p(目标)，而不是 p(目标 | 源)。",
    ),
    formula="Attention(Q_decoder, K_encoder, V_encoder)",
    code=(DecoderLayer,),
)
