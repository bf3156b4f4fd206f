"""The causal mask left out: the decoder reads what it should predict (section 3.2.3)."""

from __future__ import annotations

from functools import partial

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
    numbers,
)
from dragoman.lab.judging import CHANCE, holds_beside
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.masks import AttentionMask
from dragoman.model.transformer import Transformer

_WITH, _WITHOUT = "causal mask", "no causal mask"


def _measure(trained: Trained) -> dict[str, Measured]:
    return {"forced": trained.forced_accuracy()}


def _judge_cheating(results: Results) -> Verdict:
    forced, free = results.mean(_WITHOUT, "forced"), results.mean(_WITHOUT, "exact")
    lost = bootstrap_difference(results.items(_WITH), results.items(_WITHOUT))
    seen = numbers(
        Text(
            "without the mask {0:.1%} of the tokens are right under teacher forcing, but {1:.1%} "
            "of the free translations; the mask is worth {2:.1%} [{3:.1%}, {4:.1%}] of them",
            "去掉掩码后，教师强制下有 {0:.1%} 的词元正确，而自由解码只有 {1:.1%} 的译文正确；"
            "掩码带来的差别为 {2:.1%} [{3:.1%}, {4:.1%}]",
        ),
        *(forced, free, lost.mean, lost.low, lost.high),
    )
    learnt = results.mean(_WITH, "exact") > CHANCE
    return holds_beside(learnt, forced >= 0.9 and lost.low > 0, seen)


EXPERIMENT = Experiment(
    name="causal-mask",
    number=12,
    version=2,
    title=Text("Causal mask left out", "去掉因果掩码"),
    question=Text(
        "What becomes of a decoder that may look at later target tokens while it trains?",
        "如果解码器在训练时能看到后面的目标词元，会怎样？",
    ),
    settings=SMALL,
    steps=500,
    quick_steps=400,
    variants=(
        Variant(_WITH, zh="有因果掩码"),
        Variant(_WITHOUT, Change("model.causal_mask", False), zh="无因果掩码"),
    ),
    measures=(
        Measure("forced", Text("tokens right under teacher forcing", "教师强制下的词元正确率")),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Without the mask, training cheats: it copies the next token and learns no "
                "translation.",
                "没有掩码，训练就会作弊：模型抄下一个词元，而没有学会翻译。",
            ),
            Text(
                "Vaswani et al. 2017, section 3.2.3; the essay, 4.2",
                "Vaswani et al. 2017，3.2.3 节；原文 4.2",
            ),
            Text(
                "Above 90 % of the tokens are right under teacher forcing, yet fewer free "
                "translations than with the mask.",
                "教师强制下正确率超过 90%，自由解码却比有掩码时差。",
            ),
            _judge_cheating,
        ),
    ),
    data=partial(task_data, "reverse", (5, 8)),
    measure=_measure,
    why=Text(
        "At position i the decoder reads target token i - 1 and has to predict token i, which is "
        "what it reads at position i + 1. Without a mask, attention reaches there. In free "
        "decoding that token doesn't exist yet.",
        "在位置 i，解码器读入目标词元 i-1，要预测词元 i，而后者就是位置 i+1 的输入。"
        "没有掩码时，注意力可以看到那里；"
        "而在自由解码时，这个词元还不存在。",
    ),
    formula="weights[i, j] = 0 for j > i",
    code=(AttentionMask._part, Transformer._target_mask),
)
