"""The number of heads at equal width, and what each of them does (section 3.2.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations, product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dragoman.config import PAD
from dragoman.lab.base import SMALL
from dragoman.lab.data import cldr_data
from dragoman.lab.experiment import (
    DOUBTED,
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
from dragoman.lab.judging import decide, holds_beside, if_learnt, judge_gain
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model import hooks
from dragoman.model.attention import MultiHeadAttention, scaled_dot_product_attention
from dragoman.model.layout import Layout
from dragoman.model.seq2seq import Seq2Seq

_BASE, _COUNTS = 4, (1, 2, 8, 16)
_EVERY = 50
"""Steps between two looks at the heads."""
_SOON = 100
"""The step by which heads should differ."""
_SENTENCES = 50
"""Test sentences that the distance of heads is averaged over."""
_TOKENS = 8
"""Tokens that a picture shows of each side, at most."""
_SHOWN_HEADS, _SHOWN_STEPS = 2, (0, 50, 200)
_LEAST = 0.1
"""Share of exact translations below which a model has too little to lose."""
_SPARE = 0.1
"""What may be lost without a head that is called spare, as a share of what there is."""


def name_of(count: int) -> str:
    """Returns the name of a variant."""
    return f"{count} head{'s' if count > 1 else ''}"


def attentions(model: Seq2Seq) -> list[str]:
    """Returns the names of a model's attentions, encoder first."""
    modules = model.named_modules()
    return [name for name, module in modules if isinstance(module, MultiHeadAttention)]


def head_distance(weights: Float[Tensor, "heads *rows key"]) -> Float[Tensor, " *rows"]:
    """Returns the mean Jensen-Shannon distance of all pairs of heads, row by row.

    It is the root of the divergence in bits: 0 where all heads look at the same, 1 where no two
    look at a common key.

    Args:
        weights: (heads, ..., key), rows that sum to 1; two heads at least.
    """
    first, second = zip(*combinations(weights.double(), 2), strict=True)
    p, q = torch.stack(first), torch.stack(second)
    divergence = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    distances: Tensor = (divergence / math.log(2)).clamp(0.0, 1.0).sqrt()
    return distances.mean(dim=0)


def _entropy(weights: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(weights).sum(-1)
    return entropy


@torch.no_grad()
def distances(
    model: Seq2Seq, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
) -> dict[str, float]:
    """Returns how far apart the heads of each attention are, averaged over real positions.

    A decoder's first position is left out where it can see itself alone: there no heads differ.

    Args:
        model: with two heads at least.
        source: ids, as `end_and_pad` makes them.
        target: likewise.
    """
    twin = model.readable()
    places = attentions(twin)
    with hooks.record(twin, [f"{place}.weights" for place in places]) as seen:
        twin(source, twin.decoder_input(target))
    found = {}
    for place in places:
        real = _queries(place, source, target)
        if place.startswith("decoder") and place.endswith("self_attention"):
            real = real & (torch.arange(real.shape[1]) > 0)
        apart = head_distance(seen[f"{place}.weights"].transpose(0, 1))
        found[place] = apart[real].mean().item()
    return found


def _queries(place: str, source: Tensor, target: Tensor) -> Bool[Tensor, "batch query"]:
    return (source if place.startswith("encoder") else target) != PAD


@torch.no_grad()
def exact_share(
    model: Seq2Seq, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
) -> float:
    """Returns the share of sentences whose every token is right under teacher forcing.

    Those are the ones that greedy search translates exactly: as long as all before is right, the
    search has read what teacher forcing gives.
    """
    best = model(source, model.decoder_input(target)).argmax(-1)
    right = (best == target) | (target == PAD)
    share: float = right.all(dim=1).double().mean().item()
    return share


@torch.no_grad()
def knock_out(
    model: Seq2Seq, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
) -> tuple[list[list[float]], list[list[float]]]:
    """Returns the share of exact translations that is lost without each head, in two ways.

    What a head has found is replaced by zero, or by its mean over all real positions of these
    sentences: zero also takes away what the head adds whatever it reads.

    Args:
        model: in evaluation mode.
        source: ids, as `end_and_pad` makes them.
        target: likewise.

    Returns:
        Zero ablation, then mean ablation: a row for each of `attentions`, a number for each head.
    """
    twin = model.readable()
    places = attentions(twin)
    whole = exact_share(twin, source, target)
    with hooks.record(twin, [f"{place}.context" for place in places]) as seen:
        twin(source, twin.decoder_input(target))
    lost_zero, lost_mean = list[list[float]](), list[list[float]]()
    for place in places:
        context = seen[f"{place}.context"]
        means = context.transpose(1, 2)[_queries(place, source, target)].mean(dim=0)
        for lost, values in ((lost_zero, torch.zeros_like(means)), (lost_mean, means)):
            row = []
            for head, value in enumerate(values):
                with hooks.replace(twin, f"{place}.context", _put(head, value)):
                    row.append(whole - exact_share(twin, source, target))
            lost.append(row)
    return lost_zero, lost_mean


def _put(head: int, value: Float[Tensor, " d_v"]) -> Callable[[Tensor], Tensor]:
    def put(context: Tensor) -> Tensor:
        changed = context.clone()
        changed[:, head] = value
        return changed

    return put


@torch.no_grad()
def _picture(model: Seq2Seq, trained: Trained, head: int) -> list[list[float]]:
    """Returns a head of the last cross-attention over a test sentence, (target, source)."""
    twin = model.readable()
    fitting = (pair for pair in zip(*trained.ids, strict=True) if max(map(len, pair)) < _TOKENS)
    first = next(fitting, tuple(side[0][: _TOKENS - 1] for side in trained.ids))
    source, target = (end_and_pad([ids]) for ids in first)
    with hooks.record(twin, [twin.alignment_name]) as seen:
        twin(source, twin.decoder_input(target))
    weights = seen[twin.alignment_name][0, head]
    return [[round(cell, 3) for cell in row] for row in weights.tolist()]


def _measure(trained: Trained) -> dict[str, Measured]:
    training, heads = trained.config.training, trained.config.model.num_heads
    source, target = (end_and_pad(side) for side in trained.ids)
    zero, mean = knock_out(trained.model, source, target)
    whole = exact_share(trained.model, source, target)
    losses = [loss for row in zero for loss in row]
    measures: dict[str, Measured] = {
        "lost_zero": zero,
        "lost_mean": mean,
        "spare": sum(loss <= _SPARE * whole for loss in losses) / len(losses),
    }
    stages = {step: trained.at(step) for step in range(_EVERY, training.max_steps + 1, _EVERY)}
    stages[0] = trained.untrained(training.seed)
    for head, step in product(range(min(heads, _SHOWN_HEADS)), _SHOWN_STEPS):
        if step in stages:
            measures[f"head_{head}_at_{step}"] = _picture(stages[step], trained, head)
    for head in range(min(heads, _SHOWN_HEADS)):
        measures[f"head_{head}_at_end"] = _picture(trained.model, trained, head)
    if heads > 1:
        few = source[:_SENTENCES], target[:_SENTENCES]
        by_step = {step: distances(model, *few) for step, model in sorted(stages.items())}
        measures["distance"] = {str(step): _mean(found) for step, found in by_step.items()}
        measures["distance_at_end"] = _mean(distances(trained.model, *few))
    return measures


def _mean(found: dict[str, float]) -> float:
    return sum(found.values()) / len(found)


def _at(results: Results, step: int) -> list[float]:
    """Returns the distance of the base's heads at a step, seed by seed."""
    return results.values_at(name_of(_BASE), "distance", str(step))


def _judge_soon(results: Results) -> Verdict:
    before, soon = _at(results, 0), _at(results, _SOON)
    text = Text(
        "mean distance of two heads: {0:.3f} before the first step, {1:.3f} after {2:.0f}",
        "两个头的平均距离：训练前 {0:.3f}，{2:.0f} 步后 {1:.3f}",
    )
    first, after = (sum(found) / len(found) for found in (before, soon))
    return holds(after - first >= 0.1, numbers(text, first, after, _SOON))


def _judge_strongly(results: Results) -> Verdict:
    found = results.mean(name_of(_BASE), "distance_at_end")
    text = Text("mean distance {0:.3f} at the end", "训练结束时平均距离为 {0:.3f}")
    return holds(found >= 0.5, numbers(text, found))


def _judge_spare(results: Results) -> Verdict:
    found = results.mean(name_of(_BASE), "spare")
    text = Text(
        "{0:.0%} of the heads, each taken alone, cost at most a tenth",
        "单独去掉时，{0:.0%} 的头至多损失十分之一",
    )
    seen = numbers(text, found)
    return holds_beside(results.mean(name_of(_BASE), "exact") >= _LEAST, found > 0.5, seen)


def _judge_ablation(results: Results) -> Verdict:
    zero, mean = (
        [_flat(trial.measures[name]) for trial in results.whole(name_of(_BASE))]
        for name in ("lost_zero", "lost_mean")
    )
    gap = bootstrap_difference(zero, mean)
    text = Text(
        "zero costs {0:.2%} more exact translations than the mean, over all heads "
        "[{1:.2%}, {2:.2%}]",
        "对所有头平均，置零比取均值多损失 {0:.2%} 的完全正确译文 [{1:.2%}, {2:.2%}]",
    )
    seen = numbers(text, gap.mean, gap.low, gap.high)
    return if_learnt(results.mean(name_of(_BASE), "exact") >= _LEAST, decide(gap, seen))


def _flat(grid: Measured) -> list[float]:
    assert isinstance(grid, list)
    return [value for row in grid for value in row]


def _pictures() -> tuple[Measure, ...]:
    source, target = Text("source token", "源词元"), Text("target token", "目标词元")
    steps = [(str(step), f"step {step}", f"第 {step} 步") for step in _SHOWN_STEPS]
    return tuple(
        Measure(
            f"head_{head}_at_{key}",
            Text(
                f"last cross-attention, head {head}, {en}", f"最后一层交叉注意力，头 {head}，{zh}"
            ),
            source,
            target,
        )
        for head in range(_SHOWN_HEADS)
        for key, en, zh in [*steps, ("end", "trained", "训练后")]
    )


def _knocked_out(name: str, en: str, zh: str) -> Measure:
    return Measure(
        name,
        Text(
            f"exact translations lost without a head ({en})",
            f"去掉一个头损失的完全正确译文（{zh}）",
        ),
        Text("head, from 0", "头（从 0 编号）"),
        Text(
            "attention: encoder layer by layer, then the decoder's self- and cross-attention",
            "注意力：先逐层编码器，再逐层解码器的自注意力和交叉注意力",
        ),
    )


EXPERIMENT = Experiment(
    name="heads",
    number=2,
    version=3,
    title=Text("Heads: 1 to 16 at equal width", "注意力头：同样宽度下 1 到 16 个"),
    question=Text(
        "Do several heads see several things, how soon, and are they all needed?",
        "多个头是否看到不同的东西？多快开始不同？都有必要吗？",
    ),
    settings=SMALL,
    steps=1000,
    quick_steps=400,
    checkpoint_every=_EVERY,
    variants=(
        Variant(name_of(_BASE), zh=f"{_BASE} 个头"),
        *(
            Variant(name_of(count), Change("model.num_heads", count), zh=f"{count} 个头")
            for count in _COUNTS
        ),
    ),
    measures=(
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
        Measure("distance_at_end", Text("distance of two heads, trained", "训练后两个头的距离")),
        Measure(
            "spare",
            Text(
                "heads that cost a tenth of the exact translations or less",
                "损失不超过十分之一完全正确译文的头所占比例",
            ),
        ),
        Measure(
            "distance",
            Text(
                "mean Jensen-Shannon distance of two heads' weights (0 to 1)",
                "两个头权重的平均 Jensen-Shannon 距离（0 到 1）",
            ),
            Text("step", "步"),
        ),
        _knocked_out("lost_zero", "set to zero", "置零"),
        _knocked_out("lost_mean", "set to its mean", "取均值"),
        *_pictures(),
    ),
    claims=(
        Claim(
            Text(
                "Heads begin to differ soon after training starts.",
                "训练开始后不久，各个头就开始不同。",
            ),
            Text("the essay, 3.1", "原文 3.1"),
            Text(
                f"By step {_SOON} the mean distance of two of the 4 heads has grown by 0.1 or "
                "more. Random heads differ, too: what counts is more than at the start.",
                f"到第 {_SOON} 步，4 个头两两之间的平均距离至少增加 0.1。"
                "随机初始化的头本来就不同，所以要与起点相比。",
            ),
            _judge_soon,
        ),
        Claim(
            Text("Trained heads differ strongly.", "训练后的各个头差别很大。"),
            Text("the essay, 3.1", "原文 3.1"),
            Text(
                "A mean distance of 0.5 or more, halfway to looking at nothing in common.",
                "平均距离不低于 0.5，即离“毫无共同关注”只差一半。",
            ),
            _judge_strongly,
        ),
        Claim(
            Text(
                "One head is worse than several of the same width together.",
                "总宽度相同时，一个头不如多个头。",
            ),
            Text(
                "Vaswani et al. 2017, Table 3 row A (0.9 BLEU); the essay, 3.1",
                "Vaswani et al. 2017，表 3 A 行（0.9 BLEU）；原文 3.1",
            ),
            Text(
                "Clearly fewer exact translations than with 4.", "完全正确的译文明显少于 4 个头。"
            ),
            partial(judge_gain, name_of(_BASE), name_of(1)),
        ),
        Claim(
            Text(
                "Too many heads cost quality, too: 16 of width 4.",
                "头太多也有损失：16 个宽度为 4 的头。",
            ),
            Text(
                "Vaswani et al. 2017, Table 3 row A (32 heads of width 16)",
                "Vaswani et al. 2017，表 3 A 行（32 个宽度为 16 的头）",
            ),
            Text(
                "Clearly fewer exact translations than with 4.", "完全正确的译文明显少于 4 个头。"
            ),
            partial(judge_gain, name_of(_BASE), name_of(16)),
        ),
        Claim(
            Text(
                "Most heads can be taken away one at a time at little cost.",
                "多数头单独去掉时损失很小。",
            ),
            Text("Michel, Levy and Neubig 2019", "Michel, Levy and Neubig 2019"),
            Text(
                "Of the 4-head model, more than half of the heads cost at most a tenth of the "
                "exact translations when set to zero. With so few heads we doubt it.",
                "在 4 个头的模型中，超过一半的头置零后至多损失十分之一的完全正确译文。"
                "头这么少，我们对此存疑。",
            ),
            _judge_spare,
            expected=DOUBTED,
        ),
        Claim(
            Text(
                "Setting a head to zero overstates what it does: its mean costs less.",
                "把头置零会高估它的作用：换成均值损失更小。",
            ),
            Text(
                "often said where heads are ablated, such as Wang et al. 2022",
                "消融注意力头的工作中常见的说法，如 Wang et al. 2022",
            ),
            Text(
                "Clearly more lost by zero, over all heads.", "对所有头平均，置零的损失明显更大。"
            ),
            _judge_ablation,
        ),
    ),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "A softmax gives one average over the keys. Several heads give several averages, each in "
        "a subspace of its own, at the same number of weights and products; the narrower a head, "
        "the coarser its scores. At the start heads differ only by their random weights.",
        "一个 softmax 只能给出对键的一种平均。多个头给出多种平均，各在自己的子空间中，"
        "权重和乘法的数量不变；头越窄，得分越粗糙。训练开始时，各个头的差别只来自随机初始化。",
    ),
    formula="JSD(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2, distance = sqrt(JSD / ln 2)",
    code=(scaled_dot_product_attention, Layout.split_heads, MultiHeadAttention.forward),
)
