"""Normalisation behind, before or nowhere, in shallow and deep stacks (sections 3.1 and 5.4)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from dragoman.config import EOS
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.early_steps import learns, unigram_entropy
from dragoman.lab.experiment import (
    WITHIN_NOISE,
    Change,
    Chart,
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
from dragoman.lab.judging import holds_beside, judge_gain
from dragoman.lab.trained import Trained
from dragoman.model.architecture import build_model
from dragoman.model.layers import PostNorm, PreNorm, Stack
from dragoman.model.loss import training_loss
from dragoman.settings import build_config

_PLACES = ("post", "pre", "none")
_PLACES_IN_CHINESE = {"post": "post-norm", "pre": "pre-norm", "none": "无归一化"}
_DEPTHS = (2, 6, 12, 18)
"""Layers of each stack whose gradients are looked at before training, and of trained decoders."""
_SHALLOW, _DEEP = 2, 12
"""Those of them that claims are about."""
_WARM_UP = 100
_SHORTER = (0, 25)
"""Steps of the warm-ups that deep models try besides."""
_SYMBOLS, _SENTENCES, _LENGTH = 10, 30, 6
"""Of the text that gradients are looked at with: ids, sentences, and ids of a sentence."""
_STARTS = 8
"""Fresh models that gradients are averaged over."""
_SETTINGS = {
    **SMALL,
    "model": {**SMALL["model"], "d_model": 32, "d_ff": 64},
    "training": {
        **SMALL["training"],
        "batch_tokens": 256,
        "schedule": "constant",
        "warmup_steps": _WARM_UP,
    },
}


def name_of(place: str, depth: int, warm_up: int = _WARM_UP) -> str:
    """Returns the name of a variant."""
    return f"{place}, {depth} layers" + ("" if warm_up == _WARM_UP else f", warm-up {warm_up}")


def _in_chinese(place: str, depth: int, warm_up: int = _WARM_UP) -> str:
    warmed = "" if warm_up == _WARM_UP else f"，预热 {warm_up} 步"
    return f"{_PLACES_IN_CHINESE[place]}，{depth} 层{warmed}"


def _reversals() -> tuple[Tensor, Tensor]:
    """Makes sources of ids and the targets to them, each with EOS behind it."""
    source = torch.randint(EOS + 1, EOS + 1 + _SYMBOLS, (_SENTENCES, _LENGTH))
    end = torch.full((_SENTENCES, 1), EOS)
    return torch.cat([source, end], 1), torch.cat([source.flip(1), end], 1)


def gradients(place: str, depth: int) -> list[float]:
    """Returns the gradient's norm in each layer of a fresh decoder, averaged over some starts.

    It is that of the feed-forward network's second matrix, whose expectation Xiong et al. 2020
    derive. Both stacks have that many layers; the loss is the mean over the target tokens.
    """
    stacks = dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), depth)
    sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), EOS + 1 + _SYMBOLS)
    config = build_config(_SETTINGS, {"model": {"norm_place": place, **stacks, **sizes}}).model
    found = torch.zeros(depth, dtype=torch.float64)
    for seed in range(_STARTS):
        torch.manual_seed(seed)
        model, (source, target) = build_model(config), _reversals()
        (training_loss(model, source, target, 0.0).loss / target.numel()).backward()
        matrices = [
            model.get_parameter(f"decoder.layers.{layer}.feed_forward.out_proj.weight")
            for layer in range(depth)
        ]
        found += torch.stack([_norm(matrix.grad) for matrix in matrices])
    averages: list[float] = (found / _STARTS).tolist()
    return averages


def _norm(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    norm: Tensor = gradient.double().norm()
    return norm


def growth_exponent(by_depth: dict[str, float]) -> float:
    """Returns the k of the depth^k that fits best: the slope between logarithms."""
    x = torch.tensor([math.log(int(depth)) for depth in by_depth], dtype=torch.float64)
    y = torch.tensor([math.log(value) for value in by_depth.values()], dtype=torch.float64)
    return (torch.cov(torch.stack([x, y]))[0, 1] / x.var()).item()


def _observe() -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for place in _PLACES:
        by_depth = {depth: gradients(place, depth) for depth in _DEPTHS}
        last = {str(depth): norms[-1] for depth, norms in by_depth.items()}
        found[f"last_{place}"] = last
        found[f"exponent_{place}"] = growth_exponent(last)
        deepest = by_depth[_DEPTHS[-1]]
        found[f"layers_{place}"] = {str(n): norm for n, norm in enumerate(deepest, start=1)}
    return found


def _measure(trained: Trained) -> dict[str, Measured]:
    return {"unigram": unigram_entropy(trained)}


def _ratio(results: Results, name: str) -> float:
    """Returns the last of some observed numbers over the first."""
    found = results.observed[name]
    assert isinstance(found, dict)
    first, *_, last = found.values()
    return last / first


def _judge_post_depth(results: Results) -> Verdict:
    ratio = _ratio(results, "last_post")
    text = Text(
        "post-norm, last layer: 18 layers have {0:.2f} times the gradient of 2",
        "post-norm 最后一层：18 层的梯度是 2 层的 {0:.2f} 倍",
    )
    return holds(1 / 1.5 <= ratio <= 1.5, numbers(text, ratio))


def _judge_pre_depth(results: Results) -> Verdict:
    exponent, ratio = results.number("exponent_pre"), _ratio(results, "last_pre")
    text = Text(
        "pre-norm, last layer: as depth to the power of {0:.2f}; 18 layers have {1:.2f} times the "
        "gradient of 2",
        "pre-norm 最后一层：与深度的 {0:.2f} 次方成正比；18 层的梯度是 2 层的 {1:.2f} 倍",
    )
    return holds(-0.7 <= exponent <= -0.3, numbers(text, exponent, ratio))


def _judge_layers(results: Results) -> Verdict:
    post, even = _ratio(results, "layers_post"), results.observed["layers_pre"]
    assert isinstance(even, dict)
    spread = max(even.values()) / min(even.values())
    text = Text(
        "18 layers: post-norm, last over first {0:.3g}; pre-norm, largest over smallest {1:.3g}",
        "18 层：post-norm 最后一层与第一层之比 {0:.3g}；pre-norm 最大与最小之比 {1:.3g}",
    )
    return holds(post > 3 and spread < 3, numbers(text, post, spread))


def _judge_explosion(results: Results) -> Verdict:
    none, post = (_ratio(results, f"last_{place}") for place in ("none", "post"))
    text = Text(
        "last layer, 18 layers over 2: {0:.3g} without a norm, {1:.3g} with post-norm",
        "最后一层，18 层与 2 层之比：无归一化 {0:.3g}，post-norm {1:.3g}",
    )
    return holds(none > 100, numbers(text, none, post))


def _learnt(results: Results, place: str, depth: int, warm_up: int = _WARM_UP) -> float:
    """Returns the share of a variant's runs that learn; one that breaks off doesn't."""
    trials = results.of(name_of(place, depth, warm_up))
    return sum(map(learns, trials)) / len(trials)


def _shortest(results: Results, place: str) -> float:
    """Returns the shortest warm-up with which all runs of a deep model learn."""
    tried = (*_SHORTER, _WARM_UP)
    return next((w for w in tried if _learnt(results, place, _DEEP, w) == 1.0), math.inf)


def _judge_needs_warm_up(results: Results) -> Verdict:
    deep, with_it, seen = _without_warm_up(results, "post")
    if with_it == 1.0 and deep <= with_it / 2:
        return Verdict("confirmed", seen)
    if deep < with_it:  # a seed's accident
        return Verdict("within noise", seen)
    return holds_beside(deep > 0, False, seen)


def _judge_needs_none(results: Results) -> Verdict:
    deep, with_it, seen = _without_warm_up(results, "pre")
    return holds_beside(max(deep, with_it) > 0, deep == 1.0, seen)


def _without_warm_up(results: Results, place: str) -> tuple[float, float, Text]:
    """Returns the shares of deep models that learn without a warm-up and with it, and in words."""
    deep, shallow = (_learnt(results, place, depth, 0) for depth in (_DEEP, _SHALLOW))
    with_it = _learnt(results, place, _DEEP)
    text = Text(
        "runs that learn without a warm-up: {0:.0%} with 12 layers, {1:.0%} with 2; with 12 and a "
        "warm-up of 100 steps {2:.0%}",
        "不预热能学会的比例：12 层 {0:.0%}，2 层 {1:.0%}；12 层且预热 100 步 {2:.0%}",
    )
    return deep, with_it, numbers(text, deep, shallow, with_it)


def _judge_shortest(results: Results) -> Verdict:
    post, pre = (_shortest(results, place) for place in ("post", "pre"))
    text = Text(
        "12 layers, shortest of the tried warm-ups that trains: post-norm {0:.0f}, "
        "pre-norm {1:.0f} (inf: none of them)",
        "12 层，试过的预热中能训练的最短步数：post-norm {0:.0f}，pre-norm {1:.0f}（inf：都不能）",
    )
    return holds_beside(min(pre, post) < math.inf, pre < post, numbers(text, post, pre))


def _judge_none(results: Results) -> Verdict:
    shallow, deep = (results.of(name_of("none", depth)) for depth in (_SHALLOW, _DEEP))
    text = Text(
        "runs without a norm that learn: {0:.0%} with 2 layers, {1:.0%} with 12; broken off, for "
        "their gradient was infinite: {2:.0%} and {3:.0%}",
        "无归一化时能学会的比例：2 层 {0:.0%}，12 层 {1:.0%}；"
        "因梯度无穷大而中断：{2:.0%} 和 {3:.0%}",
    )
    found = [sum(map(learns, trials)) / len(trials) for trials in (shallow, deep)]
    broken = [sum(bool(t.failed) for t in trials) / len(trials) for trials in (shallow, deep)]
    control = max(_learnt(results, place, _DEEP) for place in ("post", "pre"))
    return holds_beside(control > 0, found[1] == 0.0, numbers(text, *found, *broken))


def _variants() -> tuple[Variant, ...]:
    base = Variant(name_of(_PLACES[0], _SHALLOW), zh=_in_chinese(_PLACES[0], _SHALLOW))
    places = (
        Variant(
            name_of(place, _SHALLOW),
            Change("model.norm_place", place),
            zh=_in_chinese(place, _SHALLOW),
        )
        for place in _PLACES[1:]
    )
    depths = (
        Variant(
            name_of(place, depth),
            Change("model.num_decoder_layers", depth),
            name_of(place, _SHALLOW),
            zh=_in_chinese(place, depth),
        )
        for place in _PLACES
        for depth in _DEPTHS
        if depth != _SHALLOW
    )
    tried = [(place, depth, 0) for place in _PLACES for depth in _DEPTHS]
    tried += [(place, _DEEP, warm_up) for place in _PLACES[:2] for warm_up in _SHORTER if warm_up]
    warm_ups = (
        Variant(
            name_of(place, depth, warm_up),
            Change("training.warmup_steps", warm_up),
            name_of(place, depth),
            zh=_in_chinese(place, depth, warm_up),
        )
        for place, depth, warm_up in tried
    )
    return (base, *places, *depths, *warm_ups)


_LABELS = {
    "post": Text("post-norm", "post-norm"),
    "pre": Text("pre-norm", "pre-norm"),
    "none": Text("no norm", "无归一化"),
}
_GRADIENT = Text(
    "gradient's norm at the start, second feed-forward matrix",
    "初始梯度范数，前馈网络第二个矩阵",
)

EXPERIMENT = Experiment(
    name="norm-place",
    number=5,
    version=3,
    title=Text("Post-norm, pre-norm, no norm", "post-norm、pre-norm 与无归一化"),
    question=Text(
        "What does the place of the normalisation decide, and from which depth on?",
        "归一化的位置决定什么？从多深开始有影响？",
    ),
    settings=_SETTINGS,
    steps=450,
    quick_steps=250,
    variants=_variants(),
    measures=(Measure("exact", Text("translations exactly right", "译文完全正确的比例")),),
    charts=(
        Chart(
            _GRADIENT,
            Text("layer of a decoder of 18", "18 层解码器中的层"),
            {f"layers_{place}": _LABELS[place] for place in _PLACES},
        ),
        Chart(
            Text(_GRADIENT.en + ", last layer", _GRADIENT.zh + "，最后一层"),
            Text("layers of each stack", "每个栈的层数"),
            {f"last_{place}": _LABELS[place] for place in _PLACES},
        ),
    ),
    claims=(
        Claim(
            Text(
                "In a fresh post-norm model the last layer's gradient is as large at any depth.",
                "在未训练的 post-norm 模型中，最后一层的梯度与深度无关。",
            ),
            Text("Xiong et al. 2020, theorem 1", "Xiong et al. 2020，定理 1"),
            Text(
                "18 layers beside 2: at most 1.5 times as much or as little.",
                "18 层与 2 层相差不超过 1.5 倍。",
            ),
            _judge_post_depth,
        ),
        Claim(
            Text(
                "In a fresh pre-norm model it falls as one over the root of the depth.",
                "在未训练的 pre-norm 模型中，它与深度的平方根成反比。",
            ),
            Text("Xiong et al. 2020, theorem 1", "Xiong et al. 2020，定理 1"),
            Text(
                "A power between -0.7 and -0.3 over 2, 6, 12, 18 layers.",
                "在 2、6、12、18 层上，指数在 -0.7 与 -0.3 之间。",
            ),
            _judge_pre_depth,
        ),
        Claim(
            Text(
                "Post-norm gradients grow towards the output; pre-norm ones are even.",
                "post-norm 的梯度越靠近输出越大；pre-norm 各层相近。",
            ),
            Text("Xiong et al. 2020, section 3.3 and figure 3", "Xiong et al. 2020，3.3 节与图 3"),
            Text(
                "Of 18 layers the last has over 3 times the first one's gradient; with pre-norm "
                "they are within 3 times of each other.",
                "18 层中，最后一层的梯度是第一层的 3 倍以上；pre-norm 则在 3 倍以内。",
            ),
            _judge_layers,
        ),
        Claim(
            Text(
                "Normalisation keeps scales in check: without it gradients explode with depth.",
                "归一化控制数值的大小：没有它，梯度随深度爆炸。",
            ),
            Text("the essay, 4.1", "原文 4.1"),
            Text(
                "Over 100 times as large in 18 layers as in 2.",
                "18 层是 2 层的 100 倍以上。",
            ),
            _judge_explosion,
        ),
        Claim(
            Text(
                "A deep post-norm model needs a warm-up.",
                "深的 post-norm 模型需要预热。",
            ),
            Text(
                "Xiong et al. 2020, section 3.2; the essay, 6.3",
                "Xiong et al. 2020，3.2 节；原文 6.3",
            ),
            Text(
                "With 12 decoder layers all runs learn with it, and at most half without it.",
                "解码器 12 层时，有预热每次都能学会，不预热至多一半。",
            ),
            _judge_needs_warm_up,
        ),
        Claim(
            Text(
                "A deep pre-norm model learns without a warm-up.",
                "深的 pre-norm 模型不预热也能学会。",
            ),
            Text("Xiong et al. 2020, section 4.2", "Xiong et al. 2020，4.2 节"),
            Text("With 12 decoder layers all runs do.", "解码器 12 层时每次都能学会。"),
            _judge_needs_none,
        ),
        Claim(
            Text(
                "Pre-norm needs a shorter warm-up than post-norm.",
                "pre-norm 需要的预热比 post-norm 短。",
            ),
            Text("the essay, 6.3", "原文 6.3"),
            Text(
                "With 12 decoder layers, of the tried 0, 25 and 100 steps: pre-norm needs 0, "
                "post-norm 25 or more.",
                "解码器 12 层，试 0、25、100 步：pre-norm 需要 0 步，post-norm 需要 25 步或更多。",
            ),
            _judge_shortest,
        ),
        Claim(
            Text(
                "Pre-norm costs some expressiveness: where both learn, post-norm ends higher.",
                "pre-norm 会损失一些表达能力：两者都能训练时，post-norm 结果更好。",
            ),
            Text("the essay, 6.3", "原文 6.3"),
            Text(
                "We doubt that a toy task shows it: within noise, with 2 decoder layers.",
                "玩具任务未必看得出：解码器 2 层时在噪声范围内。",
            ),
            partial(judge_gain, name_of("post", _SHALLOW), name_of("pre", _SHALLOW)),
            expected=WITHIN_NOISE,
        ),
        Claim(
            Text(
                "Without any norm a deep model doesn't learn.",
                "完全没有归一化，深模型学不会。",
            ),
            Text("the essay, 4.1", "原文 4.1"),
            Text(
                "With 12 decoder layers no run learns; some may break off.",
                "解码器 12 层时没有一次能学会，有的可能中断。",
            ),
            _judge_none,
        ),
    ),
    data=partial(task_data, "reverse", (2, 4)),
    measure=_measure,
    observe=_observe,
    why=Text(
        "Post-norm normalises the sum at each sub-layer, so that on the way back the residual path "
        "is divided each time by about the root of 2: little reaches the first layers, and the "
        "last ones take all of it. Pre-norm leaves the path alone; what passes grows with each "
        "sub-layer, and the final norm divides by the root of their number.",
        "post-norm 在每个子层对和做归一化，反向传播时残差路径每次约除以根号 2："
        "传到前几层的很少，最后几层承受全部。pre-norm 不动这条路径；通过的量随子层增长，"
        "末尾的归一化再除以其数目的平方根。",
    ),
    formula="post: x = norm(x + f(x))    pre: x = x + f(norm(x)), and one norm behind the stack",
    code=(PostNorm, PreNorm, Stack.__init__),
)
