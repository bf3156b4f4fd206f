"""Label smoothing (section 5.4): what it costs in perplexity, and what it may give in return."""

from __future__ import annotations

import math
from functools import partial

from dragoman.kernels.cross_entropy import projected_cross_entropy
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
from dragoman.lab.judging import LEAST_BLEU, decide, holds_clearly, if_learnt
from dragoman.lab.scores import bleu, bleu_parts, predict
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.loss import label_smoothed_cross_entropy

_NONE, _TENTH, _MORE = "no smoothing", "0.1", "0.3"


def _measure(trained: Trained) -> dict[str, Measured]:
    found = predict(trained.model, trained, trained.data.test)
    calibration = found.calibration_shares()
    return {
        "perplexity": math.exp(found.nll.mean().item()),
        "accuracy": found.correct.double().mean().item(),
        "overconfidence": found.overconfidence.mean().item(),
        "calibration_error": sum(calibration.values()) / len(calibration),
        "reliability": found.reliability(),
        "bleu": bleu(trained, trained.translations),
        "bleu_parts": bleu_parts(trained, trained.translations),
        "nll_shares": found.shares(found.nll),
        "calibration_shares": calibration,
        "overconfidence_shares": found.shares(found.overconfidence),
    }


def _judge_perplexity(results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(_TENTH, "nll_shares"), results.parts(_NONE, "nll_shares")
    )
    text = Text(
        "perplexity {0:.3g} without, {1:.3g} with 0.1, {2:.3g} with 0.3; 0.1 costs {3:.3f} nats "
        "per token [{4:.3f}, {5:.3f}]",
        "困惑度：不平滑 {0:.3g}，0.1 时 {1:.3g}，0.3 时 {2:.3g}；"
        "0.1 使每个词元的损失增加 {3:.3f} nat [{4:.3f}, {5:.3f}]",
    )
    found = [results.mean(variant, "perplexity") for variant in (_NONE, _TENTH, _MORE)]
    return decide(gain, numbers(text, *found, gain.mean, gain.low, gain.high))


def _judge_bleu(results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(_TENTH, "bleu_parts"), results.parts(_NONE, "bleu_parts")
    )
    text = Text(
        "BLEU {0:.1f} without, {1:.1f} with 0.1, {2:.1f} with 0.3; 0.1 is worth {3:.2f} over "
        "parts of the test text [{4:.2f}, {5:.2f}]",
        "BLEU：不平滑 {0:.1f}，0.1 时 {1:.1f}，0.3 时 {2:.1f}；"
        "按测试集分块计，0.1 带来 {3:.2f} [{4:.2f}, {5:.2f}]",
    )
    found = [results.mean(variant, "bleu") for variant in (_NONE, _TENTH, _MORE)]
    seen = numbers(text, *found, gain.mean, gain.low, gain.high)
    return if_learnt(max(found) >= LEAST_BLEU, decide(gain, seen))


def _judge_sureness(results: Results) -> Verdict:
    none, tenth, more = (
        results.parts(variant, "overconfidence_shares") for variant in (_NONE, _TENTH, _MORE)
    )
    steps = bootstrap_difference(none, tenth), bootstrap_difference(tenth, more)
    text = Text(
        "confidence minus accuracy: {0:+.1%} without, {1:+.1%} with 0.1, {2:+.1%} with 0.3",
        "置信度减正确率：不平滑 {0:+.1%}，0.1 时 {1:+.1%}，0.3 时 {2:+.1%}",
    )
    found = [results.mean(variant, "overconfidence") for variant in (_NONE, _TENTH, _MORE)]
    seen = numbers(text, *found)
    return holds_clearly(seen, *steps)


def _judge_calibration(results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(_NONE, "calibration_shares"), results.parts(_TENTH, "calibration_shares")
    )
    text = Text(
        "expected calibration error {0:.1%} without, {1:.1%} with 0.1, {2:.1%} with 0.3; 0.1 "
        "lowers it by {3:.1%} [{4:.1%}, {5:.1%}]",
        "期望校准误差：不平滑 {0:.1%}，0.1 时 {1:.1%}，0.3 时 {2:.1%}；"
        "0.1 使其降低 {3:.1%} [{4:.1%}, {5:.1%}]",
    )
    found = [results.mean(variant, "calibration_error") for variant in (_NONE, _TENTH, _MORE)]
    return decide(gain, numbers(text, *found, gain.mean, gain.low, gain.high))


EXPERIMENT = Experiment(
    name="label-smoothing",
    number=9,
    version=2,
    title=Text("Label smoothing: none, 0.1, 0.3", "标签平滑：无、0.1、0.3"),
    question=Text(
        "What is won by teaching a model to be less sure than its text is?",
        "让模型学得不那么“确定”，能换来什么？",
    ),
    settings=SMALL,
    steps=1500,
    quick_steps=800,
    variants=(
        Variant(_NONE, zh="无平滑"),
        Variant(_TENTH, Change("training.label_smoothing", 0.1)),
        Variant(_MORE, Change("training.label_smoothing", 0.3)),
    ),
    measures=(
        Measure(
            "reliability",
            Text("tokens right, of those in a bin", "各区间内的词元正确率"),
            Text("confidence (%, middle of the bin)", "置信度（%，区间中点）"),
        ),
        Measure("perplexity", Text("perplexity of the test text", "测试集困惑度")),
        Measure("accuracy", Text("tokens right under teacher forcing", "教师强制下的词元正确率")),
        Measure("bleu", Text("BLEU, greedy", "BLEU（贪心解码）")),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
        Measure("overconfidence", Text("confidence minus accuracy", "置信度减正确率")),
        Measure("calibration_error", Text("expected calibration error", "期望校准误差")),
    ),
    claims=(
        Claim(
            Text("Label smoothing hurts perplexity.", "标签平滑会损害困惑度。"),
            Text(
                "Vaswani et al. 2017, section 5.4 and Table 3 row D",
                "Vaswani et al. 2017，5.4 节与表 3 D 行",
            ),
            Text(
                "Higher on the test text with 0.1 than without; by the plain likelihood, never "
                "the smoothed loss.",
                "0.1 时测试集困惑度更高；按未平滑的似然计算，而不是平滑后的损失。",
            ),
            _judge_perplexity,
        ),
        Claim(
            Text("Label smoothing of 0.1 improves BLEU.", "0.1 的标签平滑能提高 BLEU。"),
            Text(
                "Vaswani et al. 2017, section 5.4; the essay, 5.2 (about 0.5 BLEU)",
                "Vaswani et al. 2017，5.4 节；原文 5.2（约 0.5 BLEU）",
            ),
            Text(
                "Higher with 0.1 than without. Half a point would hide in the noise of so small "
                "a test text.",
                "0.1 时更高。但测试集这么小，半个点可能被噪声淹没。",
            ),
            _judge_bleu,
            expected=("confirmed", "within noise"),
        ),
        Claim(
            Text(
                "The more smoothing, the less sure of itself the model is.",
                "平滑越强，模型越不自信。",
            ),
            Text(
                "Vaswani et al. 2017, section 5.4 (more unsure)",
                "Vaswani et al. 2017，5.4 节（更不确定）",
            ),
            Text(
                "Confidence minus accuracy falls from 0 to 0.1, and from 0.1 to 0.3.",
                "从 0 到 0.1，再到 0.3，置信度减正确率逐级下降。",
            ),
            _judge_sureness,
        ),
        Claim(
            Text(
                "Label smoothing of 0.1 makes the probabilities of tokens better calibrated.",
                "0.1 的标签平滑使词元概率校准得更好。",
            ),
            Text(
                "Mueller, Kornblith and Hinton 2019, section 3",
                "Mueller, Kornblith and Hinton 2019，3 节",
            ),
            Text(
                "A lower expected calibration error with 0.1 than without. It holds where a model "
                "is too sure; one that has just begun to learn need not be.",
                "0.1 时期望校准误差更低。前提是模型过于自信；刚开始学习的模型未必如此。",
            ),
            _judge_calibration,
        ),
    ),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "The loss is lowest where the right token has 1 - eps + eps / V and every other one "
        "eps / V. A hard target is only reached with logits that grow without end; a smoothed one "
        "is reached with finite ones. Perplexity pays for the probability given away. Which "
        "token is the most probable doesn't change with it.",
        "当正确词元的概率为 1-eps+eps/V、其余词元各为 eps/V 时，损失最低。"
        "硬目标要求 logit 无限增大，平滑后的目标用有限的 logit 就能达到。"
        "让出去的概率由困惑度来承担；而哪个词元概率最大并不因此改变。",
    ),
    formula="loss = -(1 - eps) log p(y) - eps / V * sum_v log p(v)",
    code=(label_smoothed_cross_entropy, projected_cross_entropy),
)
