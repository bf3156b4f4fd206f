"""The learning rate of the first steps: Noam, constant, no warm-up (section 5.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import islice

from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.early_steps import first_steps, learns, unigram_entropy
from dragoman.lab.experiment import (
    DOUBTED,
    Change,
    Claim,
    Experiment,
    Measure,
    Measured,
    Results,
    Text,
    Trial,
    Variant,
    Verdict,
    holds,
    numbers,
)
from dragoman.lab.judging import holds_beside, judge_gain
from dragoman.lab.trained import Trained
from dragoman.training.optimizer import build_optimizer
from dragoman.training.schedule import learning_rate

_NOAM, _CONSTANT, _NONE = "Noam", "constant rate", "no warm-up"
_HIGH, _HIGH_NONE = "constant rate x 3", "no warm-up x 3"
_LOW_NONE = "no warm-up / 3"
_RATE = 3e-3
_FOLLOWED = 200
"""Steps that are followed one by one."""
_NOISE = 0.2
"""Nats by which the loss may differ from batch to batch."""
_FROZEN = 100
"""Steps that Adam's moments are watched for without the weights moving."""
_SHOWN = (1, 2, 3, *range(5, _FOLLOWED + 1, 5))


def second_moments(trained: Trained) -> dict[str, dict[str, float]]:
    """Follows Adam's corrected second moments in a model that stands still.

    Returns:
        By step, beside those of the last step: their sum, and the median over the parameters.
    """
    steps = [step.second_moments for step in islice(first_steps(trained, frozen=True), _FROZEN)]
    last = steps[-1]
    live = last > 0
    return {
        "moment_mean": {
            str(n): (seen.sum() / last.sum()).item() for n, seen in enumerate(steps, start=1)
        },
        "moment_median": {
            str(n): (seen[live] / last[live]).median().item()
            for n, seen in enumerate(steps, start=1)
        },
    }


def _measure(trained: Trained) -> dict[str, Measured]:
    steps = dict(enumerate(islice(first_steps(trained), _FOLLOWED), start=1))
    late = [steps[n].size for n in range(_FOLLOWED - 19, _FOLLOWED + 1)]
    moments = second_moments(trained)
    return {
        "size": {str(n): steps[n].size for n in _SHOWN},
        "early_loss": {str(n): steps[n].nll for n in _SHOWN},
        "first_size": steps[1].size,
        "late_size": sum(late) / len(late),
        "first_loss": steps[1].nll,
        "highest_loss": max(step.nll for step in steps.values()),
        "unigram": unigram_entropy(trained),
        "first_moment_mean": moments["moment_mean"]["1"],
        "first_moment_median": moments["moment_median"]["1"],
        **moments,
    }


def _judge_sizes(results: Results) -> Verdict:
    first, late = (results.mean(_NONE, name) for name in ("first_size", "late_size"))
    text = Text(
        "no warm-up: step 1 moves parameters by {0:.3f} times the rate, "
        "steps 181 to 200 by {1:.3f}",
        "不预热：第 1 步参数的变化是学习率的 {0:.3f} 倍，第 181 到 200 步是 {1:.3f} 倍",
    )
    return holds(abs(first - 1) <= 0.02 and late < 0.5, numbers(text, first, late))


def _judge_moments(results: Results) -> Verdict:
    median, mean = (
        results.mean(_NOAM, name) for name in ("first_moment_median", "first_moment_mean")
    )
    text = Text(
        "after step 1, beside step 100: the median parameter has {0:.2f} of it, "
        "all together {1:.2f}",
        "第 1 步与第 100 步相比：参数的中位数为 {0:.2f}，总和为 {1:.2f}",
    )
    scatters = median < 0.5 and abs(mean - 1) < 0.5
    return holds(scatters, numbers(text, median, mean))


def _rise(trial: Trial) -> float:
    """Returns by how many nats the loss gets above that of step 1; without end if it broke off."""
    if trial.failed:
        return math.inf
    found = (trial.measures[name] for name in ("highest_loss", "first_loss"))
    highest, first = map(float, found)  # type: ignore[arg-type]
    return highest - first


def _mean_end(trials: Sequence[Trial]) -> float:
    """Returns the mean loss at the end; infinite if one broke off."""
    return sum(math.inf if t.failed else t.curve[-1][1] for t in trials) / len(trials)


def _judge_shooting_up(results: Results) -> Verdict:
    trials = results.of(_NONE)
    rises = [*map(_rise, trials)]
    text = Text(
        "no warm-up: in 200 steps from the same weights, on batches drawn for it, the loss rises "
        "by {0:.2f} nats at most over that of step 1; the run itself ends at {1:.2f} (inf: one "
        "broke off); frequencies alone give {2:.2f}",
        "不预热：从同样的初始权重、另取批次走 200 步，损失最多比第 1 步高 {0:.2f} nat；"
        "训练本身最后为 {1:.2f}（inf：有训练中断）；只凭词频为 {2:.2f}",
    )
    ends = _mean_end(trials), results.mean(_CONSTANT, "unigram")
    seen = numbers(text, sum(rises) / len(rises), *ends)
    shoots_up = all(rise > _NOISE for rise in rises)
    return holds_beside(_learns_with(results), shoots_up and not any(map(learns, trials)), seen)


def _judge_low(results: Results) -> Verdict:
    trials = results.of(_LOW_NONE)
    text = Text(
        "no warm-up, a third of the rate: the loss ends at {0:.2f} (inf: a run broke off); "
        "frequencies alone give {1:.2f}",
        "不预热，学习率为三分之一：损失最后为 {0:.2f}（inf：有训练中断）；只凭词频为 {1:.2f}",
    )
    seen = numbers(text, _mean_end(trials), results.mean(_CONSTANT, "unigram"))
    return holds_beside(_learns_with(results), all(map(learns, trials)), seen)


def _learns_with(results: Results) -> bool:
    """Says whether all runs with a warm-up learn, or they are too short for either."""
    return all(map(learns, results.whole(_CONSTANT)))


EXPERIMENT = Experiment(
    name="warm-up",
    number=4,
    version=2,
    title=Text("Learning rate: Noam, constant, no warm-up", "学习率：Noam、恒定、不预热"),
    question=Text(
        "What does the warm-up of the learning rate do?",
        "学习率预热起什么作用？",
    ),
    settings={**SMALL, "training": {**SMALL["training"], "peak_learning_rate": _RATE}},
    steps=600,
    quick_steps=400,
    variants=(
        Variant(_NOAM),
        Variant(_CONSTANT, Change("training.schedule", "constant"), zh="恒定学习率"),
        Variant(_NONE, Change("training.warmup_steps", 0), _CONSTANT, zh="无预热"),
        Variant(
            _HIGH,
            Change("training.peak_learning_rate", 3 * _RATE),
            _CONSTANT,
            zh="恒定学习率 × 3",
        ),
        Variant(_HIGH_NONE, Change("training.warmup_steps", 0), _HIGH, zh="无预热 × 3"),
        Variant(
            _LOW_NONE, Change("training.peak_learning_rate", _RATE / 3), _NONE, zh="无预热 / 3"
        ),
    ),
    measures=(
        Measure(
            "size",
            Text(
                "change of a parameter over the rate (rms)",
                "参数变化与学习率之比（均方根）",
            ),
            Text("step", "步"),
        ),
        Measure(
            "early_loss",
            Text("loss (nats per token)", "损失（nat/词元）"),
            Text("step", "步"),
        ),
        Measure(
            "moment_median",
            Text(
                "second moment beside that of step 100, median, weights at rest",
                "二阶矩与第 100 步之比，中位数，权重不动",
            ),
            Text("step", "步"),
        ),
        Measure(
            "moment_mean",
            Text(
                "second moment beside that of step 100, sum, weights at rest",
                "二阶矩与第 100 步之比，总和，权重不动",
            ),
            Text("step", "步"),
        ),
        Measure(
            "highest_loss",
            Text("highest loss of 200 steps (nats)", "200 步内最高损失（nat）"),
        ),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Adam's first step moves every parameter by the rate itself, whatever its "
                "gradient; later ones move it by much less.",
                "Adam 的第一步使每个参数恰好变化一个学习率，与梯度大小无关；以后的变化小得多。",
            ),
            Text(
                "follows from the definition; Ma and Yarats 2021, on what warm-up is for",
                "由定义推出；Ma and Yarats 2021，论预热的作用",
            ),
            Text(
                "Within 2 % of the rate at step 1; less than half of it, in the mean square, at "
                "steps 181 to 200.",
                "第 1 步与学习率相差 2% 以内；第 181 到 200 步（均方根）不到一半。",
            ),
            _judge_sizes,
        ),
        Claim(
            Text(
                "In the first steps Adam's second moment is too small for most parameters, though "
                "right in their sum.",
                "训练初期，Adam 的二阶矩对多数参数偏小，但总和正确。",
            ),
            Text("the essay, 5.1 (too small)", "原文 5.1（偏小）"),
            Text(
                "For the median parameter, below half of what it comes to: of one squared "
                "gradient the median is about 0.45 of the mean. The sum over all is right from "
                "the start, within a half, for Adam corrects it: it scatters, and isn't too small "
                "as a whole.",
                "就中位数参数而言，不到稳定值的一半：单个梯度平方的中位数约为均值的 0.45。"
                "总和从一开始就正确（误差一半以内），因为 Adam 做了偏差修正："
                "是分散，而不是整体偏小。",
            ),
            _judge_moments,
        ),
        Claim(
            Text(
                "Without a warm-up the early loss shoots up and doesn't come back.",
                "不预热，训练初期损失会飙升，而且回不来。",
            ),
            Text("the essay, 5.1", "原文 5.1"),
            Text(
                "We doubt it for two layers: the loss rises in the first steps, then falls below "
                "half of what token frequencies give.",
                "对两层的模型我们存疑：最初几步损失上升，之后会降到词频损失的一半以下。",
            ),
            _judge_shooting_up,
            expected=DOUBTED,
        ),
        Claim(
            Text(
                "With a warm-up a model learns better than at the same rate from step 1.",
                "有预热的模型，比从第 1 步起就用同样学习率的学得更好。",
            ),
            Text(
                "Vaswani et al. 2017, section 5.3; Xiong et al. 2020, section 3.2",
                "Vaswani et al. 2017，5.3 节；Xiong et al. 2020，3.2 节",
            ),
            Text(
                "More exact translations after as many steps.",
                "同样的步数后，完全正确的译文更多。",
            ),
            partial(judge_gain, _CONSTANT, _NONE),
        ),
        Claim(
            Text(
                "A warm-up is needed the more, the higher the rate: at three times the rate a "
                "model learns better with it.",
                "学习率越高越需要预热：学习率为三倍时，有预热的模型学得更好。",
            ),
            Text("Xiong et al. 2020, section 3.2", "Xiong et al. 2020，3.2 节"),
            Text(
                "More exact translations after as many steps.",
                "同样的步数后，完全正确的译文更多。",
            ),
            partial(judge_gain, _HIGH, _HIGH_NONE),
        ),
        Claim(
            Text(
                "At a third of the rate a model learns without any warm-up.",
                "学习率降到三分之一时，不预热也能学会。",
            ),
            Text(
                "follows from the first claim, if the size of the first steps is what matters",
                "如果关键在于最初几步的大小，则由第一条论断推出",
            ),
            Text(
                "The loss falls below half of what token frequencies give.",
                "损失降到词频损失的一半以下。",
            ),
            _judge_low,
        ),
        Claim(
            Text(
                "A rate that falls behind the warm-up does better than a constant one.",
                "预热后学习率下降，比保持恒定效果更好。",
            ),
            Text("Vaswani et al. 2017, section 5.3", "Vaswani et al. 2017，5.3 节"),
            Text(
                "More exact translations after as many steps.",
                "同样的步数后，完全正确的译文更多。",
            ),
            partial(judge_gain, _NOAM, _CONSTANT),
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    why=Text(
        "Adam divides a running mean of gradients by the root of a running mean of their squares. "
        "After one step both hold the same gradient, and the quotient is 1 or -1 everywhere; later "
        "the mean of gradients that point here and there is small beside their size. So without a "
        "warm-up the largest steps of all come when the model knows least.",
        "Adam 用梯度的滑动平均除以梯度平方滑动平均的平方根。第一步之后两者只含同一个梯度，"
        "商处处为 1 或 -1；以后梯度方向不一，其平均相对于大小就很小。"
        "所以不预热时，最大的步子恰好迈在模型最无知的时候。",
    ),
    formula="rate = factor d_model^-0.5 min(step^-0.5, step warmup^-1.5)",
    code=(learning_rate, build_optimizer),
)
