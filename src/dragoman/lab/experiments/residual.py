"""Residual connections taken away (section 3.1)."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from dragoman.config import EOS, PAD, ModelConfig
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.experiment import (
    DOUBTED,
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
from dragoman.lab.judging import CHANCE, judge_gain, judge_nothing
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.layers import PostNorm, _add, _replace
from dragoman.model.masks import AttentionMask
from dragoman.model.transformer import Transformer

_WITH, _WITHOUT = "residual", "no residual"
_DEEP, _DEEP_WITHOUT = "6 encoder layers", "6 encoder layers, no residual"
_DEPTH = 12
"""Encoder layers of what is looked at without training."""
_STARTS = 4
"""Fresh models that this is averaged over."""
_LENGTH, _BATCH, _VOCABULARY = 16, 8, 100


def spread(x: Float[Tensor, "batch length d_model"], lengths: list[int] | None = None) -> float:
    """Returns 1 minus the mean cosine of two positions of a sentence: 0 where all are alike.

    Args:
        x: vectors of positions.
        lengths: how many of them are real, two at least in some sentence; all if None.
    """
    found = []
    for row, length in zip(x, lengths or [x.shape[1]] * len(x), strict=True):
        if length > 1:
            unit = F.normalize(row[:length].double(), dim=-1)
            cosines = unit @ unit.T
            mean = ((cosines.sum() - length) / (length * (length - 1))).item()
            found.append(max(0.0, 1 - mean))  # rounding may take it above 1
    return sum(found) / len(found)


def through_layers(residual: bool, seed: int) -> tuple[list[float], list[float]]:
    """Follows random tokens forward and a gradient backward through a fresh, deep encoder.

    Returns:
        For the input and the output of each layer, the `spread` of its positions; and the norm of
        the gradient there, as a share of the one at the output of the last layer, which is random.
    """
    torch.manual_seed(seed)
    config = ModelConfig(
        source_vocab_size=_VOCABULARY,
        target_vocab_size=_VOCABULARY,
        num_encoder_layers=_DEPTH,
        num_decoder_layers=1,
        d_model=64,
        d_ff=128,
        num_heads=4,
        residual=residual,
    )
    model = Transformer(config).double().eval()
    x = model.source_embedding(torch.randint(EOS + 1, _VOCABULARY, (_BATCH, _LENGTH)))
    states = [x.detach().requires_grad_()]
    for layer in model.encoder.layers:
        states.append(layer(states[-1], AttentionMask()))
    gradients = torch.autograd.grad(states[-1], states, torch.randn_like(states[-1]))
    norms = [gradient.norm().item() for gradient in gradients]
    return [spread(state.detach()) for state in states], [norm / norms[-1] for norm in norms]


def _observe() -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for name, residual in (("with", True), ("without", False)):
        starts = [through_layers(residual, seed) for seed in range(_STARTS)]
        for what, series in zip(("spread", "gradient"), zip(*starts, strict=True), strict=True):
            means = [sum(values) / len(values) for values in zip(*series, strict=True)]
            found[f"{what}_{name}"] = {str(layer): mean for layer, mean in enumerate(means)}
    return found


@torch.no_grad()
def _measure(trained: Trained) -> dict[str, Measured]:
    source = end_and_pad(trained.ids[0])
    lengths = (source != PAD).sum(dim=1).tolist()
    assert isinstance(trained.model, Transformer)
    memory, _ = trained.model.encode(source)
    return {"forced": trained.forced_accuracy(), "spread": spread(memory, lengths)}


def _by_layer(results: Results, name: str, layer: int) -> float:
    found = results.observed[name]
    assert isinstance(found, dict)
    return found[str(layer)]


def _judge_alike(results: Results) -> Verdict:
    kept, lost = (_by_layer(results, f"spread_{each}", _DEPTH) for each in ("with", "without"))
    text = Text(
        "1 - cosine of two positions behind {2:.0f} fresh layers: {0:.2g} with, {1:.2g} without",
        "经过 {2:.0f} 个未训练的层后，两个位置的 1 - 余弦：有残差 {0:.2g}，没有 {1:.2g}",
    )
    return holds(lost <= kept / 10, numbers(text, kept, lost, _DEPTH))


def _judge_gradient(results: Results) -> Verdict:
    kept, lost = (_by_layer(results, f"gradient_{each}", 0) for each in ("with", "without"))
    text = Text(
        "of the gradient behind layer {2:.0f}, {0:.2g} times as much arrives at the input with, "
        "{1:.2g} times without",
        "第 {2:.0f} 层之后的梯度传到输入时，有残差为 {0:.2g} 倍，没有为 {1:.2g} 倍",
    )
    return holds(lost <= kept / 10, numbers(text, kept, lost, _DEPTH))


EXPERIMENT = Experiment(
    name="residual",
    number=6,
    version=2,
    title=Text("Residual connections taken away", "去掉残差连接"),
    question=Text(
        "What is lost where a sub-layer's output takes the place of its input?",
        "如果子层的输出直接取代输入，会失去什么？",
    ),
    settings=SMALL,
    steps=600,
    quick_steps=400,
    variants=(
        Variant(_WITH, zh="有残差"),
        Variant(_WITHOUT, Change("model.residual", False), zh="无残差"),
        Variant(_DEEP, Change("model.num_encoder_layers", 6), zh="6 层编码器"),
        Variant(_DEEP_WITHOUT, Change("model.residual", False), _DEEP, zh="6 层编码器，无残差"),
    ),
    measures=(
        Measure("forced", Text("tokens right under teacher forcing", "教师强制下的词元正确率")),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
        Measure(
            "spread",
            Text(
                "1 - cosine of two positions of the encoder's output",
                "编码器输出两个位置的 1 - 余弦",
            ),
        ),
    ),
    charts=(
        Chart(
            Text("1 - cosine of two positions, untrained", "两个位置的 1 - 余弦，未训练"),
            Text("encoder layers passed", "经过的编码器层数"),
            {
                "spread_with": Text("residual", "有残差"),
                "spread_without": Text("no residual", "无残差"),
            },
        ),
        Chart(
            Text(
                "gradient as a share of that at the last layer's output, untrained",
                "梯度与最后一层输出处梯度之比，未训练",
            ),
            Text("encoder layers passed", "经过的编码器层数"),
            {
                "gradient_with": Text("residual", "有残差"),
                "gradient_without": Text("no residual", "无残差"),
            },
        ),
    ),
    claims=(
        Claim(
            Text(
                "Residual connections are a motorway for gradients: without them little arrives "
                "at the first layers.",
                "残差连接是梯度的高速公路：没有它，传到前几层的梯度很少。",
            ),
            Text("the essay, 4.1", "原文 4.1"),
            Text(
                f"Through {_DEPTH} fresh layers a tenth of what arrives with them, at most. We "
                "doubt it: layer normalisation sets the size of what passes anew behind every "
                "sub-layer, forward and backward.",
                f"穿过 {_DEPTH} 个未训练的层后，至多为有残差时的十分之一。我们对此存疑："
                "层归一化在每个子层之后都会重新设定前向和反向信号的大小。",
            ),
            _judge_gradient,
            expected=DOUBTED,
        ),
        Claim(
            Text(
                "Without them attention makes all positions alike, the deeper the more.",
                "没有残差，注意力会使所有位置趋同，越深越严重。",
            ),
            Text("Dong, Cordonnier and Loukas 2021", "Dong, Cordonnier and Loukas 2021"),
            Text(
                f"Behind {_DEPTH} fresh layers 1 - cosine of two positions is at most a tenth of "
                "what it is with them.",
                f"经过 {_DEPTH} 个未训练的层后，两个位置的 1 - 余弦至多为有残差时的十分之一。",
            ),
            _judge_alike,
        ),
        Claim(
            Text("A model of 2 + 2 layers learns worse.", "2 + 2 层的模型学得更差。"),
            Text(
                "Vaswani et al. 2017, section 3.1; the essay, 4.1",
                "Vaswani et al. 2017，3.1 节；原文 4.1",
            ),
            Text("Clearly fewer exact translations.", "完全正确的译文明显更少。"),
            partial(judge_gain, _WITH, _WITHOUT),
        ),
        Claim(
            Text(
                "With 6 encoder layers it learns nothing without them.",
                "编码器有 6 层时，没有残差就什么也学不到。",
            ),
            Text("Dong, Cordonnier and Loukas 2021", "Dong, Cordonnier and Loukas 2021"),
            Text(
                f"At most {100 * CHANCE:g} % exactly right, and clearly fewer than with them.",
                f"完全正确的不超过 {100 * CHANCE:g}%，且明显少于有残差时。",
            ),
            partial(judge_nothing, _DEEP_WITHOUT, _DEEP),
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    observe=_observe,
    why=Text(
        "x + f(x) passes x on, whatever f does, and the gradient of x likewise. Alone, each "
        "attention replaces a vector by an average of all: averages of averages have little left "
        "that tells positions apart. A norm restores their size, not their difference.",
        "无论 f 做什么，x + f(x) 都会把 x 传下去，梯度也一样。没有残差时，"
        "每个注意力都用所有向量的平均来取代一个向量：平均再平均，位置之间的差别就所剩无几。"
        "归一化能恢复大小，却恢复不了差别。",
    ),
    formula="y = LayerNorm(x + f(x)), d(x + f(x))/dx = 1 + f'(x)",
    code=(_add, _replace, PostNorm),
)
