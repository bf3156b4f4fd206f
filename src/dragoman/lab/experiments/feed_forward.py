"""The feed-forward network taken away, narrowed, gated (section 3.3)."""

from __future__ import annotations

from functools import partial

import torch

from dragoman.config import ModelConfig
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
from dragoman.lab.judging import decide, judge_gain
from dragoman.lab.scores import predict
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.feed_forward import FeedForward, GatedFeedForward
from dragoman.model.masks import AttentionMask
from dragoman.model.transformer import Transformer

_RELU, _NONE, _QUARTER = "ReLU", "none", "a quarter"
_GATED, _GATED_EQUAL = "SwiGLU", "SwiGLU, as many weights"
_D_FF: int = SMALL["model"]["d_ff"]
_EQUAL = round(_D_FF * 2 / 3 / 2) * 2
"""The width at which three matrices weigh what two of `_D_FF` do; even."""


@torch.no_grad()
def superposition_error(feed_forward: str) -> float:
    """Returns how far an encoder is from f(x + y) = f(x) + f(y), as a share of the right side.

    Of two fresh layers, in float64, between random vectors; a linear map has 0.
    """
    torch.manual_seed(1)
    config = ModelConfig(
        source_vocab_size=19,
        target_vocab_size=19,
        num_encoder_layers=2,
        num_decoder_layers=1,
        d_model=64,
        d_ff=_D_FF,
        num_heads=4,
        feed_forward=feed_forward,  # type: ignore[arg-type]
    )
    encoder = Transformer(config).double().eval().encoder
    x, y = torch.randn(2, 1, 16, config.d_model, dtype=torch.float64)
    of_sum, of_x, of_y = (encoder(each, AttentionMask()) for each in (x + y, x, y))
    error: float = ((of_sum - of_x - of_y).norm() / (of_x + of_y).norm()).item()
    return error


def _measure(trained: Trained) -> dict[str, Measured]:
    found = predict(trained.model, trained, trained.data.test)
    losses = found.sentence_means(found.nll)
    network = trained.model.get_submodule("encoder.layers.0.feed_forward")
    return {
        "nll": sum(losses.values()) / len(losses),
        "losses": losses,
        "weights": float(sum(each.numel() for each in network.parameters())),
        "forced": trained.forced_accuracy(),
    }


def _observe() -> dict[str, Measured]:
    return {f"superposition_{each}": superposition_error(each) for each in ("relu", "none")}


def _judge_linear(results: Results) -> Verdict:
    relu, none = (results.number(f"superposition_{each}") for each in ("relu", "none"))
    text = Text(
        "f(x + y) differs from f(x) + f(y) by {1:.0%} without, by {0:.0%} with it",
        "f(x + y) 与 f(x) + f(y) 的相对差：去掉后 {1:.0%}，保留时 {0:.0%}",
    )
    return holds(none <= 0.1, numbers(text, relu, none))


def _judge_gated(results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(_RELU, "losses"), results.parts(_GATED_EQUAL, "losses")
    )
    text = Text(
        "loss on test sentences: ReLU {0:.3f}, SwiGLU {1:.3f} nats per token; "
        "difference {2:.3f} [{3:.3f}, {4:.3f}]",
        "测试句损失：ReLU {0:.3f}，SwiGLU {1:.3f} nat/词元；相差 {2:.3f} [{3:.3f}, {4:.3f}]",
    )
    found = (results.mean(name, "nll") for name in (_RELU, _GATED_EQUAL))
    seen = numbers(text, *found, gain.mean, gain.low, gain.high)
    return decide(gain, seen)


EXPERIMENT = Experiment(
    name="feed-forward",
    number=7,
    version=2,
    title=Text(
        "Feed-forward network: none, a quarter, gated", "前馈网络：去掉、缩到四分之一、加门控"
    ),
    question=Text(
        "What does the network that sees each position alone add to attention?",
        "只看单个位置的前馈网络，给注意力补充了什么？",
    ),
    settings=SMALL,
    steps=1000,
    quick_steps=500,
    variants=(
        Variant(_RELU),
        Variant(_NONE, Change("model.feed_forward", "none"), zh="无前馈网络"),
        Variant(_QUARTER, Change("model.d_ff", _D_FF // 4), zh="四分之一"),
        Variant(_GATED, Change("model.feed_forward", "swiglu")),
        Variant(_GATED_EQUAL, Change("model.d_ff", _EQUAL), _GATED, zh="SwiGLU，参数量相同"),
    ),
    measures=(
        Measure("weights", Text("weights of a network", "每个前馈网络的参数量")),
        Measure("nll", Text("loss on test sentences (nats per token)", "测试句损失（nat/词元）")),
        Measure("forced", Text("tokens right under teacher forcing", "教师强制下的词元正确率")),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Without the network's non-linearity a model falls off.",
                "没有前馈网络的非线性，模型明显变差。",
            ),
            Text("the essay, 4.3", "原文 4.3"),
            Text(
                "Clearly fewer exact translations after as many steps.",
                "同样步数后，完全正确的译文明显更少。",
            ),
            partial(judge_gain, _RELU, _NONE),
        ),
        Claim(
            Text("Without it the model nears a linear map.", "没有它，模型接近线性映射。"),
            Text("the essay, 4.3", "原文 4.3"),
            Text(
                "f(x + y) and f(x) + f(y) of a fresh encoder differ by at most a tenth. We doubt "
                "it: softmax and layer normalisation aren't linear either.",
                "未训练的编码器上，f(x + y) 与 f(x) + f(y) 至多相差十分之一。我们对此存疑："
                "softmax 和层归一化同样不是线性的。",
            ),
            _judge_linear,
            expected=DOUBTED,
        ),
        Claim(
            Text("A quarter of the width is worse.", "宽度减到四分之一会变差。"),
            Text(
                "Vaswani et al. 2017, Table 3 row C (half of it: 0.4 BLEU)",
                "Vaswani et al. 2017，表 3 C 行（减半：0.4 BLEU）",
            ),
            Text("Clearly fewer exact translations.", "完全正确的译文明显更少。"),
            partial(judge_gain, _RELU, _QUARTER),
        ),
        Claim(
            Text(
                "A gated network learns better at the same number of weights.",
                "参数量相同时，门控前馈网络学得更好。",
            ),
            Text("Shazeer 2020 (SwiGLU)", "Shazeer 2020 (SwiGLU)"),
            Text("Clearly lower loss on test sentences.", "测试句损失明显更低。"),
            _judge_gated,
        ),
    ),
    data=partial(cldr_data, "de"),
    measure=_measure,
    observe=_observe,
    why=Text(
        "Attention mixes positions, but what it adds up is linear in the values. The network is "
        "where a position's vector is worked on by itself; in the paper's encoder layer, where "
        "d_ff is 4 d_model, it holds two thirds of the weights. A gate multiplies two "
        "projections; three matrices make 3/2 of the network's weights, unless its width goes "
        "down to 2/3.",
        "注意力混合各个位置，但它所加总的对值是线性的。前馈网络则单独处理每个位置的向量，"
        "在论文的编码器层中（d_ff = 4 d_model）占参数的三分之二。"
        "门控把两个投影相乘；三个矩阵使前馈网络的参数变为 3/2，除非把宽度降到 2/3。",
    ),
    formula="FFN(x) = max(0, x W_1 + b_1) W_2 + b_2; SwiGLU(x) = (silu(x W) * x V) W_2",
    code=(FeedForward, GatedFeedForward),
)
