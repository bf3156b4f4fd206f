"""Scores with and without the division by sqrt(d_k) (section 3.2.1, footnote 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor

from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
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
from dragoman.lab.trained import Trained
from dragoman.model import hooks
from dragoman.model.attention import MultiHeadAttention, scaled_dot_product_attention
from dragoman.model.loss import label_smoothed_cross_entropy
from dragoman.model.seq2seq import Seq2Seq

_WIDTHS = (16, 64, 512)
_VECTORS = 2048
_KEYS = 64
"""Keys of a query in the part without training, as in a sentence of so many tokens."""
_STARTS = 16
"""Fresh models that the growth at the start is averaged over."""
_PLACES = ("encoder.layers.0.self_attention", "encoder.layers.1.self_attention")


def name_of(d_k: int, *, scaled: bool) -> str:
    """Returns the name of a variant."""
    return f"d_k {d_k}" + ("" if scaled else ", no division")


def unit_scores() -> dict[str, float]:
    """Measures attention between independent q and k whose every dimension is N(0, 1).

    Returns:
        For each d_k, with the division and without: standard deviation of the scores; entropy of
        the weights over 64 keys, nats; and the median over the queries of the 2-norm of softmax's
        derivative, diag(p) - p p^T.
    """
    generator = torch.Generator().manual_seed(1)
    found = {}
    for d_k in _WIDTHS:
        query, key = torch.randn(2, _VECTORS, d_k, generator=generator, dtype=torch.float64)
        for kind, scale in (("divided", None), ("plain", 1.0)):
            seen: list[Tensor] = []
            scaled_dot_product_attention(
                query, key, key, scale=scale, on_scores=partial(_keep, seen)
            )
            weights = seen[0][:, :_KEYS].softmax(-1)
            found[f"std_{kind}_{d_k}"] = seen[0].std().item()
            found[f"entropy_{kind}_{d_k}"] = _entropy(weights).mean().item()
            found[f"slope_{kind}_{d_k}"] = _slope(weights).median().item()
    return found


def _keep(seen: list[Tensor], scores: Tensor) -> Tensor:
    seen.append(scores)
    return scores


def _entropy(weights: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(weights).sum(-1)
    return entropy


def _slope(weights: Tensor) -> Tensor:
    """Returns the norm of each row's softmax derivative; by elements, so that nothing cancels."""
    outer = weights[..., :, None] * weights[..., None, :]
    norms: Tensor = torch.linalg.matrix_norm(torch.diag_embed(weights) - outer)
    return norms


def growth(model: Seq2Seq, source: Tensor) -> float:
    """Returns std(q . k) / (std(q) std(k)), averaged over the encoder's layers."""
    twin = model.readable()
    names = [f"{place}.{part}" for place in _PLACES for part in ("queries", "k_proj", "scores")]
    with torch.no_grad(), hooks.record(twin, names) as seen:
        twin(source, twin.decoder_input(source))
    ratios = []
    for place in _PLACES:
        attention = twin.get_submodule(place)
        assert isinstance(attention, MultiHeadAttention)
        products = seen[f"{place}.scores"] / attention.scale
        spread = seen[f"{place}.queries"].std() * seen[f"{place}.k_proj"].std()
        ratios.append((products.std() / spread).item())
    return sum(ratios) / len(ratios)


def _inside(model: Seq2Seq, source: Tensor, target: Tensor) -> dict[str, Measured]:
    """Returns spread of scores, entropy of weights and gradients at q and k, in the encoder."""
    twin, kept = model.readable(), dict[str, Tensor]()

    def keep(name: str) -> Callable[[Tensor], Tensor]:
        def put_aside(x: Tensor) -> Tensor:
            x.retain_grad()
            kept[name] = x
            return x

        return put_aside

    parts = ("q_proj", "k_proj", "scores", "weights")
    with ExitStack() as stack:
        for name in (f"{place}.{part}" for place in _PLACES for part in parts):
            stack.enter_context(hooks.replace(twin, name, keep(name)))
        logits = twin(source, twin.decoder_input(target))
        (label_smoothed_cross_entropy(logits, target, 0.0).loss / target.numel()).backward()

    def over_places(measure: Callable[[str], float]) -> float:
        return sum(map(measure, _PLACES)) / len(_PLACES)

    def gradient(part: str) -> float:
        return over_places(lambda place: _norm(kept[f"{place}.{part}"].grad))

    return {
        "score_std": over_places(lambda place: kept[f"{place}.scores"].std().item()),
        "entropy": over_places(
            lambda place: _entropy(kept[f"{place}.weights"].detach()).mean().item()
        ),
        "gradient_q": gradient("q_proj"),
        "gradient_k": gradient("k_proj"),
    }


def _norm(gradient: Tensor | None) -> float:
    assert gradient is not None
    norm: float = gradient.norm().item()
    return norm


def _measure(trained: Trained) -> dict[str, Measured]:
    source, target = max(trained.unpadded, key=lambda batch: len(batch[0]))
    starts = trained.starts(_STARTS)
    first = _inside(starts[0], source, target)
    return {
        "growth": sum(growth(model, source) for model in starts) / len(starts),
        **{f"first_{name}": value for name, value in first.items()},
        **_inside(trained.model, source, target),
    }


def _judge_deviation(results: Results) -> Verdict:
    found = [results.number(f"std_plain_{d_k}") for d_k in _WIDTHS]
    expected = [math.sqrt(d_k) for d_k in _WIDTHS]
    text = Text(
        "{0:.3f}, {1:.3f}, {2:.3f} for d_k 16, 64, 512; the roots are {3:.3f}, {4:.3f}, {5:.3f}",
        "d_k 为 16、64、512 时分别是 {0:.3f}、{1:.3f}、{2:.3f}；平方根为 {3:.3f}、{4:.3f}、{5:.3f}",
    )
    fits = all(abs(a / b - 1) <= 0.02 for a, b in zip(found, expected, strict=True))
    return holds(fits, numbers(text, *found, *expected))


def _judge_saturation(results: Results) -> Verdict:
    names = [f"{what}_{kind}_512" for what in ("entropy", "slope") for kind in ("divided", "plain")]
    entropy, entropy_plain, slope, slope_plain = (results.number(name) for name in names)
    text = Text(
        "d_k 512, 64 keys: entropy {1:.2f} nats without, {0:.2f} with the division; median size of "
        "softmax's derivative {3:.4f} and {2:.4f}",
        "d_k 为 512、64 个键：不除时熵为 {1:.2f} nat，除后为 {0:.2f}；"
        "softmax 导数大小的中位数分别为 {3:.4f} 和 {2:.4f}",
    )
    vanished = entropy_plain < 0.1 * entropy and slope_plain < 0.1 * slope
    return holds(vanished, numbers(text, entropy, entropy_plain, slope, slope_plain))


def _judge_growth(results: Results) -> Verdict:
    found = [results.mean(name_of(d_k, scaled=False), "growth") for d_k in _WIDTHS]
    relative = [
        value / found[0] / math.sqrt(d_k / _WIDTHS[0])
        for value, d_k in zip(found, _WIDTHS, strict=True)
    ]
    text = Text(
        "{0:.2f}, {1:.2f}, {2:.2f} for d_k 16, 64, 512: beside the root {3:.3f} and {4:.3f}",
        "d_k 为 16、64、512 时分别是 {0:.2f}、{1:.2f}、{2:.2f}；与平方根之比为 {3:.3f} 和 {4:.3f}",
    )
    fits = all(abs(value - 1) <= 0.1 for value in relative)
    return holds(fits, numbers(text, *found, *relative[1:]))


def _variants() -> tuple[Variant, ...]:
    first, *wider = _WIDTHS
    scaled = {d_k: name_of(d_k, scaled=True) for d_k in _WIDTHS}
    return (
        Variant(scaled[first]),
        *(Variant(scaled[d_k], Change("model.d_k", d_k)) for d_k in wider),
        *(
            Variant(
                name_of(d_k, scaled=False),
                Change("model.scale_scores", False),
                scaled[d_k],
                zh=f"d_k {d_k}，不除",
            )
            for d_k in _WIDTHS
        ),
    )


EXPERIMENT = Experiment(
    name="scaling",
    number=1,
    version=3,
    title=Text("Scores without the division by sqrt(d_k)", "不除以 sqrt(d_k) 的注意力得分"),
    question=Text(
        "Why are scores divided by sqrt(d_k), and when does it matter?",
        "为什么得分要除以 sqrt(d_k)？在什么情况下才重要？",
    ),
    settings={**SMALL, "model": {**SMALL["model"], "num_heads": 1, "d_k": 16}},
    steps=500,
    quick_steps=300,
    variants=_variants(),
    measures=(
        Measure(
            "growth", Text("std(q.k) / (std q std k) at the start", "初始 std(q·k)/(std q std k)")
        ),
        Measure("first_score_std", Text("std of scores at the start", "初始得分标准差")),
        Measure("score_std", Text("std of scores, trained", "训练后得分标准差")),
        Measure("first_entropy", Text("entropy at the start (nats)", "初始熵（nat）")),
        Measure("entropy", Text("entropy, trained (nats)", "训练后熵（nat）")),
        Measure("first_gradient_q", Text("gradient at q at the start", "初始 q 处梯度")),
        Measure("first_gradient_k", Text("gradient at k at the start", "初始 k 处梯度")),
        Measure("gradient_q", Text("gradient at q, trained", "训练后 q 处梯度")),
        Measure("gradient_k", Text("gradient at k, trained", "训练后 k 处梯度")),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Dot products of unit-variance vectors have standard deviation sqrt(d_k).",
                "单位方差向量的点积，标准差为 sqrt(d_k)。",
            ),
            Text(
                "Vaswani et al. 2017, section 3.2.1, footnote 4; the essay, 2.2",
                "Vaswani et al. 2017，3.2.1 节，脚注 4；原文 2.2",
            ),
            Text("Within 2 % for d_k 16, 64, 512.", "d_k 为 16、64、512 时误差在 2% 以内。"),
            _judge_deviation,
        ),
        Claim(
            Text(
                "Undivided, softmax goes one-hot and its gradient vanishes.",
                "不除的话，softmax 趋于 one-hot，梯度消失。",
            ),
            Text(
                "Vaswani et al. 2017, section 3.2.1; the essay, 2.2",
                "Vaswani et al. 2017，3.2.1 节；原文 2.2",
            ),
            Text(
                "At d_k 512 entropy and the median derivative fall below a tenth.",
                "d_k 为 512 时，熵和导数中位数都降到十分之一以下。",
            ),
            _judge_saturation,
        ),
        Claim(
            Text(
                "In a model before training, std(q.k) / (std q std k) grows as sqrt(d_k).",
                "在训练前的模型中，std(q·k)/(std q std k) 随 sqrt(d_k) 增长。",
            ),
            Text("follows from the definition", "由定义推出"),
            Text("Within 10 % from d_k 16 to 512.", "从 d_k 16 到 512，误差在 10% 以内。"),
            _judge_growth,
        ),
        Claim(
            Text(
                "With wide heads (d_k 512) a model learns better with the division.",
                "头较宽（d_k 512）时，除以 sqrt(d_k) 的模型学得更好。",
            ),
            Text("Vaswani et al. 2017, section 3.2.1", "Vaswani et al. 2017，3.2.1 节"),
            Text(
                "More exact translations after as many steps.", "同样的步数后，完全正确的译文更多。"
            ),
            partial(judge_gain, name_of(512, scaled=True), name_of(512, scaled=False)),
        ),
        Claim(
            Text(
                "With narrow heads (d_k 16) a model learns better with it, too.",
                "头较窄（d_k 16）时也是如此。",
            ),
            Text("how the claim is often repeated, without its d_k", "常见的转述，略去了 d_k"),
            Text("Within noise: training adapts.", "在噪声范围内：训练会自行适应。"),
            partial(judge_gain, name_of(16, scaled=True), name_of(16, scaled=False)),
            expected=WITHIN_NOISE,
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    observe=unit_scores,
    why=Text(
        "q . k is a sum of d_k products, each of variance 1 where q and k are independent with "
        "unit variance; variances add up to d_k. In a model Xavier's weights make q and k "
        "smaller the wider they are, and training sets their size anew.",
        "q·k 是 d_k 个乘积之和；若 q、k 相互独立且方差为 1，则每个乘积方差为 1，总方差为 d_k。"
        "在模型中，Xavier 初始化使 q、k 随宽度变小，训练又会重新调整它们的大小。",
    ),
    formula="Var(q . k) = sum_i Var(q_i k_i) = d_k",
    code=(scaled_dot_product_attention, MultiHeadAttention.__init__),
)
