"""The padding mask left out: a sentence hears its neighbours (section 3.2.3)."""

from __future__ import annotations

from functools import partial

from dragoman.config import DecodingConfig
from dragoman.decoding.greedy import greedy_search
from dragoman.decoding.stepper import ModelStepper
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
from dragoman.lab.leaks import drift
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.masks import AttentionMask, sequence_lengths
from dragoman.model.transformer import Transformer

_WITH, _WITHOUT = "padding mask", "no padding mask"
_LONGER = (1, 2, 4, 8, 16, 32)
"""By how many tokens a neighbour is longer."""
_SENTENCES = 20


def _changed(trained: Trained) -> float:
    """Returns the share of translations that change beside the longest neighbour."""
    stepper, search = ModelStepper(trained.model), DecodingConfig(beam_size=1)
    sources = trained.ids[0][:_SENTENCES]
    ended = end_and_pad(sources)
    changed = 0
    for source, row in zip(sources, ended, strict=True):
        ids = row[: len(source) + 1].tolist()
        neighbour = [*(source * (1 + _LONGER[-1]))[: len(source) + _LONGER[-1]], ids[-1]]
        [[alone]] = greedy_search(stepper, [ids], search)
        [[beside], _] = greedy_search(stepper, [ids, neighbour], search)
        changed += alone.tokens != beside.tokens
    return changed / len(sources)


def _measure(trained: Trained) -> dict[str, Measured]:
    drifts = {str(longer): drift(trained, longer) for longer in _LONGER}
    return {"drift": drifts, "most_drift": max(drifts.values()), "changed": _changed(trained)}


def _judge_with(results: Results) -> Verdict:
    most = max(results.values(_WITH, "most_drift"))
    text = Text("logits move by {0:.1g} at most", "logits 最多变化 {0:.1g}")
    return holds(most < 1e-9, numbers(text, most))


def _judge_without(results: Results) -> Verdict:
    least = min(results.values_at(_WITHOUT, "drift", str(_LONGER[-1])))
    changed = results.mean(_WITHOUT, "changed")
    text = Text(
        "beside the longest neighbour logits move by {0:.2g} or more; {1:.0%} of the translations "
        "change",
        "与最长的句子相邻时，logits 至少变化 {0:.2g}；{1:.0%} 的译文改变",
    )
    return holds(least > 1e-3, numbers(text, least, changed))


EXPERIMENT = Experiment(
    name="padding-mask",
    number=13,
    version=2,
    title=Text("Padding mask left out", "去掉填充掩码"),
    question=Text(
        "Does a sentence's translation depend on who stands beside it in the batch?",
        "一句话的译文会受同一批次中其他句子的影响吗？",
    ),
    settings=SMALL,
    steps=500,
    quick_steps=300,
    variants=(
        Variant(_WITH, zh="有填充掩码"),
        Variant(_WITHOUT, Change("model.padding_mask", False), zh="无填充掩码"),
    ),
    measures=(
        Measure(
            "drift",
            Text("largest change of a logit (nats)", "logit 的最大变化（nat）"),
            Text("tokens by which the neighbour is longer", "相邻句子多出的词元数"),
        ),
        Measure("changed", Text("translations that change", "改变的译文比例")),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "With the mask a sentence's output never depends on padding.",
                "有掩码时，一句话的输出与填充无关。",
            ),
            Text("follows from the definition; the essay, 6.1", "由定义推出；原文 6.1"),
            Text("The same to rounding, at any length.", "在任何长度下都相同（舍入误差除外）。"),
            _judge_with,
        ),
        Claim(
            Text(
                "Without the mask, padding is attended to, and the output changes with it.",
                "没有掩码时，填充也会被注意到，输出随之改变。",
            ),
            Text("follows from the definition; the essay, 6.1", "由定义推出；原文 6.1"),
            Text(
                "Logits move by more than 0.001 beside a neighbour that is longer by "
                f"{_LONGER[-1]} tokens.",
                f"相邻句子长出 {_LONGER[-1]} 个词元时，logits 的变化超过 0.001。",
            ),
            _judge_without,
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    why=Text(
        "A softmax over n keys gives padding its share; only a score of minus infinity has none. "
        "Each key of padding that a longer neighbour brings takes weight from the real ones.",
        "softmax 会给填充位置也分配权重；只有得分为负无穷时权重才为零。"
        "相邻句子越长，填充的键就越多，真实词元的权重就越少。",
    ),
    formula="weights[i, j] = 0 for j >= length",
    code=(sequence_lengths, AttentionMask._part, Transformer.encode),
)
