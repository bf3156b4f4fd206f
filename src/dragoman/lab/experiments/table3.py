"""Every row of the paper's Table 3, with all widths divided by eight, beside its own numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

from dragoman.lab.base import SMALL
from dragoman.lab.data import cldr_data
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
    numbers,
)
from dragoman.lab.judging import decide, equal_within
from dragoman.lab.scores import bleu, bleu_parts, predict, translate
from dragoman.lab.statistics import Difference, bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.transformer import Transformer

_FACTOR = 8
"""What every width of the paper's is divided by; layers, heads and shares stay as they are."""
_BASE = "base"
_CLOSE = 0.5
"""BLEU between variants that are said to be equal; the paper has 0.1."""
_LEAST = 5.0
"""BLEU of the base below which nothing has been learnt that could be compared."""


def _dropout(share: float) -> Change:
    return Change("model.dropout", share, (("model.embedding_dropout", share),))


def _width(paper: int) -> int:
    return paper // _FACTOR


def _layers(count: int) -> Change:
    return Change("model.num_encoder_layers", count, (("model.num_decoder_layers", count),))


_ROWS: tuple[tuple[str, Change | None, float, float, float], ...] = (
    # name with the paper's sizes, what changes, perplexity a piece, BLEU, millions of parameters
    (_BASE, None, 4.92, 25.8, 65),
    ("A, 1 head", Change("model.num_heads", 1), 5.29, 24.9, 65),
    ("A, 4 heads", Change("model.num_heads", 4), 5.00, 25.5, 65),
    ("A, 16 heads", Change("model.num_heads", 16), 4.91, 25.8, 65),
    ("A, 32 heads", Change("model.num_heads", 32), 5.01, 25.4, 65),
    ("B, d_k 16", Change("model.d_k", _width(16)), 5.16, 25.1, 58),
    ("B, d_k 32", Change("model.d_k", _width(32)), 5.01, 25.4, 60),
    ("C, 2 layers", _layers(2), 6.11, 23.7, 36),
    ("C, 4 layers", _layers(4), 5.19, 25.3, 50),
    ("C, 8 layers", _layers(8), 4.88, 25.5, 80),
    ("C, d_model 256", Change("model.d_model", _width(256)), 5.75, 24.5, 28),
    ("C, d_model 1024", Change("model.d_model", _width(1024)), 4.66, 26.0, 168),
    ("C, d_ff 1024", Change("model.d_ff", _width(1024)), 5.12, 25.4, 53),
    ("C, d_ff 4096", Change("model.d_ff", _width(4096)), 4.75, 26.2, 90),
    ("D, dropout 0.0", _dropout(0.0), 5.77, 24.6, 65),
    ("D, dropout 0.2", _dropout(0.2), 4.95, 25.5, 65),
    ("D, smoothing 0.0", Change("training.label_smoothing", 0.0), 4.67, 25.3, 65),
    ("D, smoothing 0.2", Change("training.label_smoothing", 0.2), 5.47, 25.7, 65),
    ("E, learned positions", Change("model.positions", "learned"), 4.92, 25.7, 65),
    (
        "big",
        Change(
            "model.d_model",
            _width(1024),
            (
                ("model.d_ff", _width(4096)),
                ("model.num_heads", 16),
                *_dropout(0.3).all.items(),
            ),
        ),
        *(4.33, 26.4, 213),
    ),
)
_SETTINGS: dict[str, dict[str, Any]] = {
    "model": {
        **{"num_encoder_layers": 6, "num_decoder_layers": 6, "num_heads": 8},
        **{"d_model": _width(512), "d_ff": _width(2048)},
        **{"dropout": 0.1, "embedding_dropout": 0.1},
    },
    "data": SMALL["data"],
    "training": {
        **SMALL["training"],
        **{"label_smoothing": 0.1, "peak_learning_rate": 1e-3, "warmup_steps": 200},
        **{"batch_tokens": 1024},
    },
}


def _measure(trained: Trained) -> dict[str, Measured]:
    found = translate(trained.model, trained)
    nll = predict(trained.model, trained, trained.data.test).nll.mean()
    return {
        "perplexity": nll.exp().item(),
        "bleu": bleu(trained, found),
        "bleu_parts": bleu_parts(trained, found),
        "parameters": sum(p.numel() for p in trained.model.parameters()) / 1e6,
    }


def _compare(higher: str, lower: str, results: Results) -> tuple[Difference, Text]:
    """Returns how much BLEU a row has over another, and that in words."""
    gain = bootstrap_difference(
        results.parts(higher, "bleu_parts"), results.parts(lower, "bleu_parts")
    )
    text = Text(
        f"BLEU {{0:.1f}} ({higher}), {{1:.1f}} ({lower}), over parts of the test text {{2:+.2f}} "
        "[{3:.2f}, {4:.2f}]; perplexity {5:.2f} and {6:.2f}",
        f"BLEU：{{0:.1f}}（{higher}）与 {{1:.1f}}（{lower}），按测试集分块计 {{2:+.2f}} "
        "[{3:.2f}, {4:.2f}]；困惑度 {5:.2f} 与 {6:.2f}",
    )
    means = [results.mean(name, "bleu") for name in (higher, lower)]
    losses = [results.mean(name, "perplexity") for name in (higher, lower)]
    return gain, numbers(text, *means, gain.mean, gain.low, gain.high, *losses)


def _judge(higher: str, lower: str, results: Results) -> Verdict:
    gain, seen = _compare(higher, lower, results)
    return decide(gain, seen) if _has_learnt(results) else Verdict("no result", seen)


def _judge_equal(one: str, other: str, results: Results) -> Verdict:
    gain, seen = _compare(one, other, results)
    return equal_within(_CLOSE, gain, seen) if _has_learnt(results) else Verdict("no result", seen)


def _has_learnt(results: Results) -> bool:
    return results.mean(_BASE, "bleu") >= _LEAST


def _claim(statement: Text, row: str, prediction: Text, higher: str, lower: str) -> Claim:
    source = f"Vaswani et al. 2017, Table 3 row {row}"
    return Claim(statement, source, prediction, partial(_judge, higher, lower))


_CLEAR = Text("Clear here, too.", "在这里同样明显。")
_NOISE = Text(
    "Within noise here: a few phrases can be had in many ways.",
    "在这里处于噪声范围内：短语简单，各种结构都能学会。",
)

EXPERIMENT = Experiment(
    name="table3",
    number=23,
    version=1,
    title=Text(
        f"Table 3 of the paper, widths divided by {_FACTOR}", f"论文表 3，宽度除以 {_FACTOR}"
    ),
    question=Text(
        "Does each row of the paper's Table 3 point the same way in a model an eighth as wide?",
        "宽度只有八分之一的模型里，论文表 3 的每一行是否指向同一方向？",
    ),
    settings=_SETTINGS,
    steps=1000,
    quick_steps=300,
    variants=tuple(
        Variant(
            name,
            change,
            published={"perplexity": perplexity, "bleu": score, "parameters": parameters},
        )
        for name, change, perplexity, score, parameters in _ROWS
    ),
    measures=(
        Measure("perplexity", Text("perplexity a piece", "每子词困惑度")),
        Measure("bleu", Text("BLEU, greedy", "BLEU（贪心解码）")),
        Measure("parameters", Text("millions of parameters", "参数量（百万）")),
    ),
    claims=(
        _claim(
            Text("One head is worse than eight.", "一个头不如八个头。"),
            *("A (0.9 BLEU)", _NOISE, _BASE, "A, 1 head"),
        ),
        _claim(
            Text("Too many heads are worse, too.", "头太多也会变差。"),
            *("A (32 heads, 0.4 BLEU)", _NOISE, _BASE, "A, 32 heads"),
        ),
        _claim(
            Text("Smaller keys hurt.", "减小 d_k 会降低质量。"),
            *("B (d_k 16, 0.7 BLEU)", _NOISE, _BASE, "B, d_k 16"),
        ),
        _claim(
            Text("Fewer layers are worse.", "层数少会变差。"),
            "C (2 layers, 2.1 BLEU)",
            Text(
                "Not here: so few steps teach two layers more than six.",
                "在这里不成立：步数太少，两层反而比六层学得多。",
            ),
            *(_BASE, "C, 2 layers"),
        ),
        _claim(
            Text("A narrower model is worse.", "更窄的模型更差。"),
            *("C (d_model 256, 1.3 BLEU)", _CLEAR, _BASE, "C, d_model 256"),
        ),
        _claim(
            Text("A wider model is better.", "更宽的模型更好。"),
            *("C (d_model 1024, 0.2 BLEU)", _CLEAR, "C, d_model 1024", _BASE),
        ),
        _claim(
            Text("A wider feed-forward network is better.", "更宽的前馈网络更好。"),
            *("C (d_ff 4096, 0.4 BLEU)", _NOISE, "C, d_ff 4096", _BASE),
        ),
        _claim(
            Text("Without dropout it is worse.", "去掉 dropout 会变差。"),
            "D (0.0, 1.2 BLEU)",
            Text(
                "Not here: nothing is learnt by heart in so few steps.",
                "在这里不成立：步数太少，还谈不上死记硬背。",
            ),
            *(_BASE, "D, dropout 0.0"),
        ),
        _claim(
            Text("Without label smoothing BLEU is lower.", "去掉标签平滑后 BLEU 更低。"),
            *("D (0.0, 0.5 BLEU)", _NOISE, _BASE, "D, smoothing 0.0"),
        ),
        Claim(
            Text("Learned positions are as good as sinusoids.", "学习式位置与正弦式一样好。"),
            "Vaswani et al. 2017, Table 3 row E (0.1 BLEU)",
            Text(
                f"Within noise: an interval inside of {_CLOSE} BLEU takes more than three seeds.",
                f"在噪声范围内：要把区间缩到 {_CLOSE} BLEU 以内，三个种子不够。",
            ),
            partial(_judge_equal, "E, learned positions", _BASE),
        ),
        _claim(
            Text("The big model is the best.", "大模型最好。"),
            "big (0.6 BLEU over base, in three times the steps)",
            Text(
                "Not here: a dropout of 0.3 needs more steps than all variants have.",
                "在这里不成立：0.3 的 dropout 需要更多步数。",
            ),
            *("big", _BASE),
        ),
    ),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "Table 3 varies one choice at a time in a model that is trained for 100,000 steps on 4.5 "
        "million pairs. What holds there for lack of capacity, or against learning by heart, need "
        "not hold where steps are what is short.",
        "表 3 每次只改一个选择，模型在 450 万句对上训练 10 万步。"
        "在那里由容量不足或过拟合决定的结论，在步数才是瓶颈的地方不一定成立。",
    ),
    formula="d_model, d_ff, d_k, d_v: the paper's / 8; N, h, P_drop, eps_ls: the paper's",
    code=(Transformer,),
)
