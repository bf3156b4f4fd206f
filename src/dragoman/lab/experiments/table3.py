"""Every row of the paper's Table 3 beside its own numbers, an eighth as wide or whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from dragoman.lab.base import SMALL
from dragoman.lab.data import cldr_data
from dragoman.lab.experiment import (
    DOUBTED,
    WITHIN_NOISE,
    Change,
    Claim,
    Experiment,
    Measure,
    Measured,
    Outcome,
    Results,
    Text,
    Variant,
    Verdict,
    numbers,
)
from dragoman.lab.judging import decide, equal_within, if_learnt
from dragoman.lab.scores import bleu, bleu_parts, predict
from dragoman.lab.statistics import Difference, bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.transformer import Transformer
from dragoman.presets import PRESETS

_FACTOR = 8
"""What every width of the paper's is divided by; layers, heads and shares stay as they are."""
_WIDTHS = ("model.d_model", "model.d_ff", "model.d_k", "model.d_v")
_BASE = "base"
_CLOSE = 0.02
"""Nats a piece, so 2 % of the perplexity, between variants that are said to be equal."""


def _dropout(share: float) -> Change:
    return Change("model.dropout", share, (("model.embedding_dropout", share),))


def _layers(count: int) -> Change:
    return Change("model.num_encoder_layers", count, (("model.num_decoder_layers", count),))


_ROWS: tuple[tuple[str, Change | None, float, float, float], ...] = (
    # name, what changes, perplexity a piece, BLEU, millions of parameters, all as in the paper
    (_BASE, None, 4.92, 25.8, 65),
    ("A, 1 head", Change("model.num_heads", 1), 5.29, 24.9, 65),
    ("A, 4 heads", Change("model.num_heads", 4), 5.00, 25.5, 65),
    ("A, 16 heads", Change("model.num_heads", 16), 4.91, 25.8, 65),
    ("A, 32 heads", Change("model.num_heads", 32), 5.01, 25.4, 65),
    ("B, d_k 16", Change("model.d_k", 16), 5.16, 25.1, 58),
    ("B, d_k 32", Change("model.d_k", 32), 5.01, 25.4, 60),
    ("C, 2 layers", _layers(2), 6.11, 23.7, 36),
    ("C, 4 layers", _layers(4), 5.19, 25.3, 50),
    ("C, 8 layers", _layers(8), 4.88, 25.5, 80),
    ("C, d_model 256", Change("model.d_model", 256), 5.75, 24.5, 28),
    ("C, d_model 1024", Change("model.d_model", 1024), 4.66, 26.0, 168),
    ("C, d_ff 1024", Change("model.d_ff", 1024), 5.12, 25.4, 53),
    ("C, d_ff 4096", Change("model.d_ff", 4096), 4.75, 26.2, 90),
    ("D, dropout 0.0", _dropout(0.0), 5.77, 24.6, 65),
    ("D, dropout 0.2", _dropout(0.2), 4.95, 25.5, 65),
    ("D, smoothing 0.0", Change("training.label_smoothing", 0.0), 4.67, 25.3, 65),
    ("D, smoothing 0.2", Change("training.label_smoothing", 0.2), 5.47, 25.7, 65),
    ("E, learned positions", Change("model.positions", "learned"), 4.92, 25.7, 65),
    (
        "big",
        Change(
            "model.d_model",
            1024,
            (
                ("model.d_ff", 4096),
                ("model.num_heads", 16),
                *_dropout(0.3).all.items(),
            ),
        ),
        *(4.33, 26.4, 213),
    ),
)

_IN_CHINESE = {
    **{"base": "基准", "big": "大模型", " heads": " 个头", " head": " 个头", " layers": " 层"},
    **{"smoothing": "平滑", "learned positions": "学习式位置", ", ": "，"},
}
"""What the rows' names are made of."""


def _narrow(change: Change, factor: int) -> Change:
    scaled = ((n, v // factor if n in _WIDTHS else v) for n, v in change.all.items())
    (setting, value), *more = scaled
    return Change(setting, value, tuple(more))


def _rows(factor: int) -> tuple[Variant, ...]:
    """Makes a variant of each row, with all widths divided by a factor."""
    return tuple(
        Variant(
            name,
            change and _narrow(change, factor),
            published={"perplexity": perplexity, "bleu": score, "parameters": parameters},
            zh=reduce(lambda text, pair: text.replace(*pair), _IN_CHINESE.items(), name),
        )
        for name, change, perplexity, score, parameters in _ROWS
    )


_VARIANTS = _rows(_FACTOR)
_PUBLISHED = {variant.name: variant.published for variant in _VARIANTS}
_SETTINGS: dict[str, dict[str, Any]] = {
    "model": {
        **{"num_encoder_layers": 6, "num_decoder_layers": 6, "num_heads": 8},
        **{"d_model": 512 // _FACTOR, "d_ff": 2048 // _FACTOR},
        **{"dropout": 0.1, "embedding_dropout": 0.1},
        # The paper names no initialisation: a narrow post-norm model keeps its positions apart so.
        "projection_gain": 0.58,
    },
    "data": SMALL["data"],
    "training": {
        **SMALL["training"],
        **{"label_smoothing": 0.1, "peak_learning_rate": 3e-3, "warmup_steps": 300},
    },
}


def _measure(trained: Trained) -> dict[str, Measured]:
    found = predict(trained.model, trained, trained.data.test)
    return {
        "perplexity": math.exp(found.nll.mean().item()),
        "nll_shares": found.shares(found.nll),
        "bleu": bleu(trained, trained.translations),
        "bleu_parts": bleu_parts(trained, trained.translations),
        "parameters": sum(p.numel() for p in trained.model.parameters()) / 1e6,
    }


def _by_bleu(better: str, worse: str, results: Results) -> tuple[Difference, Text]:
    """Returns how much BLEU a row has over another, and that in words."""
    gain = bootstrap_difference(
        results.parts(better, "bleu_parts"), results.parts(worse, "bleu_parts")
    )
    text = Text(
        f"BLEU {{0:.1f}} ({better}), {{1:.1f}} ({worse}), over parts of the test text {{2:+.2f}} "
        "[{3:.2f}, {4:.2f}]",
        f"BLEU：{{0:.1f}}（{better}）与 {{1:.1f}}（{worse}），按测试集分块计 {{2:+.2f}} "
        "[{3:.2f}, {4:.2f}]",
    )
    means = (results.mean(name, "bleu") for name in (better, worse))
    return gain, numbers(text, *means, gain.mean, gain.low, gain.high)


def _by_perplexity(better: str, worse: str, results: Results) -> tuple[Difference, Text]:
    """Returns by how many nats a piece a row has a lower loss than another, and that in words."""
    gain = bootstrap_difference(
        results.parts(worse, "nll_shares"), results.parts(better, "nll_shares")
    )
    text = Text(
        f"perplexity {{0:.3f}} ({better}), {{1:.3f}} ({worse}), {{2:+.3f}} nats a piece "
        "[{3:.3f}, {4:.3f}]; BLEU {5:.1f} and {6:.1f}",
        f"困惑度：{{0:.3f}}（{better}）与 {{1:.3f}}（{worse}），每子词 {{2:+.3f}} nat "
        "[{3:.3f}, {4:.3f}]；BLEU {5:.1f} 与 {6:.1f}",
    )
    means, scores = (
        [results.mean(name, measure) for name in (better, worse)]
        for measure in ("perplexity", "bleu")
    )
    return gain, numbers(text, *means, gain.mean, gain.low, gain.high, *scores)


_COMPARE = {"perplexity": _by_perplexity, "bleu": _by_bleu}
_NAMES = {"perplexity": ("perplexity", "困惑度"), "bleu": ("BLEU", "BLEU")}


def _judge(
    by: str,
    rule: Callable[[Difference, Text], Verdict],
    better: str,
    worse: str,
    results: Results,
) -> Verdict:
    """Returns the verdict of a rule on two rows."""
    return rule(*_COMPARE[by](better, worse, results))


def _claim(
    statement: Text,
    better: str,
    worse: str,
    prediction: Text,
    by: str = "perplexity",
    rule: Callable[[Difference, Text], Verdict] = decide,
    expected: tuple[Outcome, ...] = WITHIN_NOISE,
) -> Claim:
    """Makes a claim about the base and another row, which is judged by one of two measures."""
    row = worse if better == _BASE else better
    theirs, base = (_PUBLISHED[name][by] for name in (row, _BASE))
    en, zh = _NAMES[by]
    source = Text(
        f"Vaswani et al. 2017, Table 3, {row}: {en} {theirs:g}, base {base:g}",
        f"Vaswani et al. 2017，表 3，{row}：{zh} {theirs:g}，base {base:g}",
    )
    judge = partial(_judge, by, rule, better, worse)
    return Claim(statement, source, prediction, judge, expected)


_CLEAR = Text("Clear here, too.", "在这里同样明显。")
_NOISE = Text(
    "Within noise here: phrases are simple, any of these structures can learn them.",
    "在这里处于噪声范围内：短语简单，各种结构都能学会。",
)

_CLAIMS = (
    _claim(
        Text("One head is worse than eight.", "一个头不如八个头。"),
        *(_BASE, "A, 1 head", _NOISE),
    ),
    _claim(
        Text("Too many heads are worse, too.", "头太多也会变差。"),
        *(_BASE, "A, 32 heads", _NOISE),
    ),
    _claim(
        Text("Smaller keys hurt.", "减小 d_k 会降低质量。"),
        *(_BASE, "B, d_k 16", _NOISE),
    ),
    _claim(
        Text("Fewer layers are worse.", "层数少会变差。"),
        *(_BASE, "C, 2 layers"),
        Text(
            "Not here: two layers are enough for phrases, and learn sooner than six.",
            "在这里不成立：对短语来说两层就够了，而且比六层学得快。",
        ),
        expected=DOUBTED,
    ),
    _claim(
        Text("A narrower model is worse.", "更窄的模型更差。"),
        *(_BASE, "C, d_model 256", _CLEAR),
        expected=("confirmed",),
    ),
    _claim(
        Text("A wider model is better.", "更宽的模型更好。"),
        *("C, d_model 1024", _BASE, _CLEAR),
        expected=("confirmed",),
    ),
    _claim(
        Text("A wider feed-forward network is better.", "更宽的前馈网络更好。"),
        *("C, d_ff 4096", _BASE, _NOISE),
    ),
    _claim(
        Text("Without dropout it is worse.", "去掉 dropout 会变差。"),
        *(_BASE, "D, dropout 0.0"),
        Text(
            "Within noise here: what phrases have in common is easier to learn than each by heart.",
            "在这里处于噪声范围内：短语的共同规律比逐句死记更容易学会。",
        ),
        by="bleu",
    ),
    _claim(
        Text("Without label smoothing BLEU is lower.", "去掉标签平滑后 BLEU 更低。"),
        *(_BASE, "D, smoothing 0.0", _NOISE),
        by="bleu",
    ),
    _claim(
        Text("Learned positions are as good as sinusoids.", "学习式位置与正弦式一样好。"),
        *("E, learned positions", _BASE),
        Text(
            f"Within noise: an interval inside of {100 * _CLOSE:g} % takes more than three seeds.",
            f"在噪声范围内：要把区间缩到 {100 * _CLOSE:g}% 以内，三个种子不够。",
        ),
        rule=partial(equal_within, _CLOSE),
    ),
    _claim(
        Text("The big model is the best.", "大模型最好。"),
        *("big", _BASE),
        Text(
            "Not here: its dropout of 0.3 slows learning, and the paper gave it three times "
            "the steps of the base.",
            "在这里不成立：0.3 的 dropout 使学习变慢，而论文给了它三倍于基准的步数。",
        ),
        by="bleu",
        expected=DOUBTED,
    ),
)
"""Verdicts on them stand whether or not the base has learnt."""


def _guard(claims: tuple[Claim, ...], least: float) -> tuple[Claim, ...]:
    """Returns claims on which there is no verdict below a least BLEU of the base."""
    return tuple(
        dataclasses.replace(claim, judge=partial(_judge_if_learnt, claim.judge, least))
        for claim in claims
    )


def _judge_if_learnt(
    judge: Callable[[Results], Verdict], least: float, results: Results
) -> Verdict:
    return if_learnt(results.mean(_BASE, "bleu") >= least, judge(results))


EXPERIMENT = Experiment(
    name="table3",
    number=23,
    version=2,
    title=Text(
        f"Table 3 of the paper, widths divided by {_FACTOR}", f"论文表 3，宽度除以 {_FACTOR}"
    ),
    question=Text(
        "Does each row of the paper's Table 3 point the same way in a model an eighth as wide?",
        "宽度只有八分之一的模型里，论文表 3 的每一行是否指向同一方向？",
    ),
    settings=_SETTINGS,
    steps=1500,  # after 3,000 all rows know the phrases
    quick_steps=700,
    variants=_VARIANTS,
    measures=(
        Measure("perplexity", Text("perplexity a piece", "每子词困惑度")),
        Measure("bleu", Text("BLEU, greedy", "BLEU（贪心解码）")),
        Measure("parameters", Text("millions of parameters", "参数量（百万）")),
    ),
    claims=_guard(_CLAIMS, least=30.0),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "Table 3 varies one choice at a time in a model that is trained for 100,000 steps on 4.5 "
        "million pairs. What holds there for lack of capacity, or against learning by heart, need "
        "not hold for a few phrases. The paper gives perplexity and BLEU for every row. Rows are "
        "judged by perplexity, to which every token counts; where dropout or smoothing changes how "
        "sure a model is, by BLEU.",
        "表 3 每次只改一个选择，模型在 450 万句对上训练 10 万步。"
        "在那里由容量不足或过拟合决定的结论，对少量短语不一定成立。论文每一行都给出困惑度和 BLEU。"
        "这里按困惑度判定，因为每个词元都计入其中；"
        "但 dropout 或平滑会改变模型的自信程度，涉及它们的行按 BLEU 判定。",
    ),
    formula="d_model, d_ff, d_k, d_v: the paper's / 8; N, h, P_drop, eps_ls: the paper's",
    code=(Transformer,),
)

_AS_PUBLISHED = Text("As in the paper.", "与论文一致。")
FULL_SIZE = dataclasses.replace(
    EXPERIMENT,
    name="table3-full",
    number=24,
    version=1,
    title=Text("Table 3 of the paper in full size", "论文表 3（原尺寸）"),
    question=Text(
        "Does each row of the paper's Table 3 point the same way on your own text?",
        "用你自己的数据时，论文表 3 的每一行是否指向同一方向？",
    ),
    settings=PRESETS["paper-base"].settings,
    steps=100_000,
    quick_steps=10_000,
    variants=_rows(1),
    claims=_guard(
        tuple(
            dataclasses.replace(claim, prediction=_AS_PUBLISHED, expected=("confirmed",))
            for claim in _CLAIMS
        ),
        least=10.0,  # sentences are harder than phrases
    ),
    data=None,
    why=Text(
        "Table 3 varies one choice at a time in the base model. All rows have its 100,000 steps of "
        "25,000 tokens, the big model too, to which the paper gave 300,000; and the weights of the "
        "last step are taken, where the paper averages the last five checkpoints. Rows are judged "
        "by perplexity, to which every token counts; where dropout or smoothing changes how sure a "
        "model is, by BLEU.",
        "表 3 在 base 模型上每次只改一个选择。所有行都训练 10 万步，每步 25000 个词元；"
        "big 也一样，而论文给了它 30 万步。这里取最后一步的权重，论文则平均最后五个检查点。"
        "各行按困惑度判定，因为每个词元都计入其中；"
        "但 dropout 或平滑会改变模型的自信程度，涉及它们的行按 BLEU 判定。",
    ),
    formula="d_model, d_ff, d_k, d_v, N, h, P_drop, eps_ls: the paper's",
)
