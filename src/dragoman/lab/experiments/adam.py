"""Adam's epsilon and memory, and gradient clipping (section 5.3)."""

from __future__ import annotations

import math
from functools import partial
from itertools import islice

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from dragoman.config import PAD, TrainingConfig
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.early_steps import draw_batches, first_steps
from dragoman.lab.experiment import (
    WITHIN_NOISE,
    Change,
    Chart,
    Claim,
    Experiment,
    Measure,
    Measured,
    Outcome,
    Results,
    Text,
    Variant,
    Verdict,
    holds,
    numbers,
)
from dragoman.lab.judging import CHANCE, if_learnt, judge_gain
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.loss import training_loss
from dragoman.training.optimizer import build_optimizer
from dragoman.training.step import training_step

_PAPER = "eps 1e-9, beta2 .98"
_EPSILONS = (1e-9, 1e-8, 1e-6)
_BETAS = (0.98, 0.999)
_LONG, _CLIPPED = "beta2 .999", "clipping"
_CLIP = 1.0
_FOLLOWED = 100
"""Steps from the first whose gradients are compared with the length that clipping allows."""
_BATCHES = 20
"""Batches that the size of a trained model's gradients is taken over."""
_LARGE, _AFTER, _DROP = 10_000, 9000, 100.0
"""Steps with a large gradient, steps with one that is so many times smaller."""
_NOTICEABLE = 0.01
"""Change of a step that epsilon is noticed by."""
_EACH = 0.975
"""Confidence of either of two intervals, so that both together have 0.95 (Bonferroni)."""


def name_of(epsilon: float) -> str:
    """Returns the name of a variant."""
    return _PAPER if epsilon == _EPSILONS[0] else f"eps {epsilon:.0e}".replace("e-0", "e-")


def adam_steps(config: TrainingConfig, gradients: list[float]) -> list[float]:
    """Returns how far Adam moves a parameter at each step, over the rate."""
    module = nn.Linear(1, 1, bias=False).double()
    optimizer = build_optimizer(module, config)
    optimizer.param_groups[0]["lr"] = 1.0
    found = []
    for gradient in gradients:
        before = module.weight.item()
        module.weight.grad = torch.full_like(module.weight, gradient)
        optimizer.step()
        found.append(abs(module.weight.item() - before))
    return found


def recovery(beta2: float) -> list[float]:
    """Returns Adam's steps, over the rate, from where the gradient becomes 100 times smaller."""
    gradients = [1.0] * _LARGE + [1 / _DROP] * _AFTER
    return adam_steps(TrainingConfig(adam_beta2=beta2), gradients)[_LARGE:]


def rescaling_error(factor: float) -> float:
    """Returns how much Adam's steps change, at most, where all gradients are so many times larger.

    With a negligible epsilon.
    """
    gradients = torch.randn(101, generator=torch.Generator().manual_seed(1)).tolist()
    config = TrainingConfig(adam_epsilon=1e-30)
    plain, scaled = (adam_steps(config, [x * by for x in gradients]) for by in (1.0, factor))
    return max(abs(a - b) for a, b in zip(plain, scaled, strict=True))


def _observe() -> dict[str, Measured]:
    found: dict[str, Measured] = {"rescaling_error": rescaling_error(1000.0)}
    for beta2 in _BETAS:
        steps = recovery(beta2)
        found[f"half_{beta2}"] = 1.0 + max(n for n, size in enumerate(steps, 1) if size < 0.5)
        found[f"recovery_{beta2}"] = {
            str(n): size for n, size in enumerate(steps, start=1) if n % 100 == 0
        }
    return found


def epsilon_share(trained: Trained) -> float:
    """Returns the share of the trained parameters whose step the run's epsilon makes 1 % smaller.

    A step is m / (root(v) + epsilon); v is the mean square of the gradient over some batches.
    Parameters without any gradient don't count.
    """
    config, model = trained.config.training, trained.model
    squares = torch.zeros_like(parameters_to_vector(model.parameters()))
    for source, target in islice(draw_batches(trained), _BATCHES):
        sums = training_loss(model, source, target, config.label_smoothing)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(sums.loss / (target != PAD).sum(), parameters)
        squares += parameters_to_vector(gradients) ** 2
    sizes = (squares[squares > 0] / _BATCHES).sqrt()
    shrunk = config.adam_epsilon / (sizes + config.adam_epsilon) > _NOTICEABLE
    return shrunk.double().mean().item()


def _measure(trained: Trained) -> dict[str, Measured]:
    norms = [step.gradient_norm for step in islice(first_steps(trained), _FOLLOWED)]
    return {
        "epsilon_share": epsilon_share(trained),
        "gradient_norm": {str(n): norm for n, norm in enumerate(norms, start=1)},
        "long_gradients": sum(norm > _CLIP for norm in norms) / len(norms),
    }


def _expected_half(beta2: float) -> float:
    """Returns when v = beta2^n + DROP^-2 has fallen to 4 DROP^-2, so that a step is half."""
    return math.log(3 / _DROP**2) / math.log(beta2)


def _judge_memory(results: Results) -> Verdict:
    found = [results.number(f"half_{beta2}") for beta2 in _BETAS]
    expected = [_expected_half(beta2) for beta2 in _BETAS]
    text = Text(
        "{0:.0f} steps with .98, {1:.0f} with .999; by the formula {2:.0f} and {3:.0f}",
        ".98 要 {0:.0f} 步，.999 要 {1:.0f} 步；按公式为 {2:.0f} 和 {3:.0f}",
    )
    fits = all(abs(a / b - 1) <= 0.02 for a, b in zip(found, expected, strict=True))
    return holds(fits, numbers(text, *found, *expected))


def _judge_rescaling(results: Results) -> Verdict:
    error = results.number("rescaling_error")
    text = Text(
        "gradients 1000 times as large: steps over the rate differ by {0:.1g}",
        "梯度放大 1000 倍：步长与学习率之比相差 {0:.1g}",
    )
    return holds(error < 1e-9, numbers(text, error))


def _judge_shares(results: Results) -> Verdict:
    found = [results.mean(name_of(epsilon), "epsilon_share") for epsilon in _EPSILONS]
    text = Text(
        "parameters whose step it makes 1 % smaller, trained: {0:.1%} at 1e-9, {1:.1%} at 1e-8, "
        "{2:.1%} at 1e-6",
        "训练后步长因它缩小 1% 以上的参数：1e-9 时 {0:.1%}，1e-8 时 {1:.1%}，1e-6 时 {2:.1%}",
    )
    return holds(found[0] < 0.01 and found[-1] > 0.5, numbers(text, *found))


def _judge_epsilon(results: Results) -> Verdict:
    """Confirms the claim if one of the larger epsilons clearly changes the score."""
    text = Text(
        "exact translations beside 1e-9: {0:+.1%} [{1:.1%}, {2:.1%}] with 1e-8, "
        "{3:+.1%} [{4:.1%}, {5:.1%}] with 1e-6 (intervals of {6:.1%})",
        "与 1e-9 相比，完全正确的译文：1e-8 {0:+.1%} [{1:.1%}, {2:.1%}]，"
        "1e-6 {3:+.1%} [{4:.1%}, {5:.1%}]（{6:.1%} 区间）",
    )
    found = [
        bootstrap_difference(results.items(name_of(epsilon)), results.items(_PAPER), _EACH)
        for epsilon in _EPSILONS[1:]
    ]
    ends = (x for each in found for x in (each.mean, each.low, each.high))
    seen = numbers(text, *ends, _EACH)
    outcome: Outcome = "confirmed" if any(each.clear for each in found) else "within noise"
    best = max(results.mean(name_of(epsilon), "exact") for epsilon in _EPSILONS)
    return if_learnt(best > CHANCE, Verdict(outcome, seen))


EXPERIMENT = Experiment(
    name="adam",
    number=11,
    version=2,
    title=Text(
        "Adam's epsilon, its memory, and clipping",
        "Adam 的 epsilon、记忆长度与梯度裁剪",
    ),
    question=Text(
        "Which of the optimiser's numbers matter?",
        "优化器的哪些数值真正重要？",
    ),
    settings={**SMALL, "training": {**SMALL["training"], "clip_norm": 0.0}},
    steps=700,
    quick_steps=500,
    variants=(
        Variant(_PAPER),
        *(
            Variant(name_of(epsilon), Change("training.adam_epsilon", epsilon))
            for epsilon in _EPSILONS[1:]
        ),
        Variant(_LONG, Change("training.adam_beta2", _BETAS[1])),
        Variant(_CLIPPED, Change("training.clip_norm", _CLIP), zh="裁剪梯度"),
    ),
    measures=(
        Measure(
            "epsilon_share",
            Text(
                "parameters whose step epsilon shrinks by 1 %",
                "步长因 epsilon 缩小 1% 的参数",
            ),
        ),
        Measure(
            "gradient_norm",
            Text("gradient's norm before clipping", "裁剪前的梯度范数"),
            Text("step", "步"),
        ),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
    ),
    charts=(
        Chart(
            Text(
                "step over rate, once the gradient is 100 times smaller",
                "梯度缩小 100 倍之后，步长与学习率之比",
            ),
            Text("steps since then", "之后的步数"),
            {f"recovery_{beta2}": Text(f"beta2 {beta2}", f"beta2 {beta2}") for beta2 in _BETAS},
        ),
    ),
    claims=(
        Claim(
            Text(
                "Adam remembers a large gradient for 20 times as many steps with beta2 .999 as "
                "with .98.",
                "beta2 为 .999 时，Adam 对大梯度的记忆步数是 .98 时的 20 倍。",
            ),
            Text("follows from the definition", "由定义推出"),
            Text(
                "Where the gradient becomes 100 times smaller, steps are back at half their size "
                "after log(0.0003) / log(beta2) steps: within 2 %.",
                "梯度缩小 100 倍后，经过 log(0.0003)/log(beta2) 步，步长恢复到一半：误差 2% 以内。",
            ),
            _judge_memory,
        ),
        Claim(
            Text(
                "Adam's steps don't depend on the gradients' common size.",
                "Adam 的步长与梯度的整体大小无关。",
            ),
            Text("Kingma and Ba 2015, section 2.1", "Kingma and Ba 2015，2.1 节"),
            Text(
                "With a negligible epsilon, to rounding, where one factor is on all of them.",
                "epsilon 可忽略、且所有梯度乘同一个因子时，只差舍入误差。",
            ),
            _judge_rescaling,
        ),
        Claim(
            Text(
                "Epsilon has a numerical effect: small gradients feel it.",
                "epsilon 在数值上有影响：小梯度会感受到它。",
            ),
            Text("the essay, 5.2", "原文 5.2"),
            Text(
                "In a trained model 1e-9 changes the step of under 1 % of the parameters "
                "noticeably, 1e-6 of over half.",
                "训练后的模型中，1e-9 明显改变不到 1% 参数的步长，1e-6 则超过一半。",
            ),
            _judge_shares,
        ),
        Claim(
            Text(
                "Which epsilon is taken, 1e-9, 1e-8 or 1e-6, changes the result.",
                "epsilon 取 1e-9、1e-8 还是 1e-6，会影响结果。",
            ),
            Text("the essay, 5.2, read strictly", "原文 5.2，按字面理解"),
            Text("Within noise.", "在噪声范围内。"),
            _judge_epsilon,
            expected=WITHIN_NOISE,
        ),
        Claim(
            Text(
                "A Transformer learns better with beta2 .98 than with .999.",
                "Transformer 用 beta2 .98 比用 .999 学得更好。",
            ),
            Text(
                "Vaswani et al. 2017, section 5.3, takes .98 without a reason",
                "Vaswani et al. 2017，5.3 节，取 .98 而未说明理由",
            ),
            Text(
                "More exact translations after as many steps, for with .999 all that is trained "
                "here lies within one memory.",
                "同样的步数后完全正确的译文更多，因为 .999 的记忆比这里的整个训练还长。",
            ),
            partial(judge_gain, _PAPER, _LONG),
        ),
        Claim(
            Text(
                "Clipping gradients makes a Transformer learn better.",
                "裁剪梯度能让模型学得更好。",
            ),
            Text("common practice; the paper names no clipping", "常见做法；论文没有提到裁剪"),
            Text(
                "Within noise, with Adam and a warm-up.",
                "有 Adam 和预热时，在噪声范围内。",
            ),
            partial(judge_gain, _CLIPPED, _PAPER),
            expected=WITHIN_NOISE,
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    observe=_observe,
    why=Text(
        "Adam divides by the root of v, so that a factor on all gradients cancels. A long memory "
        "holds the large gradients of the beginning against the small ones of later. Epsilon only "
        "counts where root(v) is as small.",
        "Adam 除以 v 的平方根，所有梯度的公共因子因此抵消。"
        "记忆长时，后来的小梯度要与开始的大梯度相比。只有 v 的平方根同样小时，epsilon 才起作用。",
    ),
    formula="step = rate m / (sqrt(v) + epsilon), v = beta2 v + (1 - beta2) gradient^2",
    code=(build_optimizer, training_step),
)
