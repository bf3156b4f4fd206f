"""Layer, RMS and batch normalisation (section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from dragoman.config import PAD
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
    holds,
    numbers,
)
from dragoman.lab.judging import judge_equal, judge_gain
from dragoman.lab.leaks import future_effect
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.layers import BatchNorm, build_norm
from dragoman.model.loss import training_loss
from dragoman.model.seq2seq import Seq2Seq

_LAYER, _RMS, _BATCH = "layer", "RMS", "batch"
_SENTENCES = 20
_NEIGHBOURS = 3
"""Sentences that stand beside the one that is looked at."""
_SMALL_LOSS = 0.03


def in_training(model: Seq2Seq) -> Seq2Seq:
    """Lets batch norms take mean and variance from the batch, as they do while a model trains."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.train()
    return model


@torch.no_grad()
def neighbour_effect(
    model: Seq2Seq, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> float:
    """Returns how far the logits of sentences move, at most, when others stand beside them.

    Args:
        model: in float64.
        sources: ids without EOS, of some sentences that follow one another.
        targets: likewise.
    """
    count, found = len(sources), [0.0]
    for first in range(min(count, _SENTENCES)):
        logits = []
        for offset in (1, 1 + _NEIGHBOURS):
            rows = [first, *((first + offset + each) % count for each in range(_NEIGHBOURS))]
            source, target = (
                end_and_pad([side[row] for row in rows]) for side in (sources, targets)
            )
            found_logits = model(source, model.decoder_input(target))
            logits.append(found_logits[0, : len(targets[first]) + 1])
        found.append((logits[0] - logits[1]).abs().max().item())
    return max(found)


@torch.no_grad()
def _measure(trained: Trained) -> dict[str, Measured]:
    source, target = (end_and_pad(side) for side in trained.ids)
    pairs = [pair for pair in zip(*trained.ids, strict=True) if len(pair[1]) > 1][:_SENTENCES]
    evaluated, training = trained.in_float64(), in_training(trained.in_float64())
    correct = training_loss(training, source, target, 0.0).correct.item()
    return {
        "neighbours_training": neighbour_effect(training, *trained.ids),
        "neighbours": neighbour_effect(evaluated, *trained.ids),
        "future_training": max((future_effect(training, *pair) for pair in pairs), default=0.0),
        "future": max((future_effect(evaluated, *pair) for pair in pairs), default=0.0),
        "forced_training": correct / int((target != PAD).sum()),
        "forced": trained.forced_accuracy(),
    }


def _judge_apart(results: Results) -> Verdict:
    names = [f"neighbours{mode}" for mode in ("_training", "")]
    most = max(max(results.values(kind, name)) for kind in (_LAYER, _RMS) for name in names)
    text = Text(
        "logits move by {0:.1g} at most beside other neighbours",
        "换了相邻句子，logits 最多变化 {0:.1g}",
    )
    return holds(most < 1e-9, numbers(text, most))


def _judge_neighbours(results: Results) -> Verdict:
    training = min(results.values(_BATCH, "neighbours_training"))
    evaluated = max(results.values(_BATCH, "neighbours"))
    text = Text(
        "beside other neighbours logits move by {0:.2g} with the batch's own statistics, by "
        "{1:.1g} with the running ones",
        "换了相邻句子，用该批次自身的统计量时 logits 变化 {0:.2g}，用滑动统计量时 {1:.1g}",
    )
    return holds(training > 1e-3 and evaluated < 1e-9, numbers(text, training, evaluated))


def _judge_future(results: Results) -> Verdict:
    training = min(results.values(_BATCH, "future_training"))
    others = max(
        max(results.values(_BATCH, "future")),
        *(max(results.values(kind, "future_training")) for kind in (_LAYER, _RMS)),
    )
    text = Text(
        "another last token moves earlier logits by {0:.2g} with the batch's own statistics; by "
        "{1:.1g} at most with running ones, or with layer or RMS norm",
        "换掉最后一个词元，用该批次自身的统计量时前面的 logits 变化 {0:.2g}；"
        "用滑动统计量，或层归一化、RMS 归一化时，最多 {1:.1g}",
    )
    return holds(training > 1e-3 and others < 1e-9, numbers(text, training, others))


EXPERIMENT = Experiment(
    name="norm-kind",
    number=8,
    version=2,
    title=Text("Layer, RMS and batch normalisation", "层归一化、RMS 归一化与批归一化"),
    question=Text(
        "What may a normalisation average over: one position, or the whole batch?",
        "归一化应当在什么范围内求平均：单个位置，还是整个批次？",
    ),
    settings=SMALL,
    steps=600,
    quick_steps=400,
    variants=(
        Variant(_LAYER, zh="层归一化"),
        Variant(_RMS, Change("model.norm", "rms"), zh="RMS 归一化"),
        Variant(_BATCH, Change("model.norm", "batch"), zh="批归一化"),
    ),
    measures=(
        Measure(
            "neighbours_training",
            Text(
                "change of a logit beside other neighbours, as in training (nats)",
                "换相邻句子时 logit 的变化，训练方式（nat）",
            ),
        ),
        Measure(
            "neighbours",
            Text(
                "change of a logit beside other neighbours, as in inference (nats)",
                "换相邻句子时 logit 的变化，推理方式（nat）",
            ),
        ),
        Measure(
            "future_training",
            Text(
                "change of earlier logits with another last token, as in training (nats)",
                "换掉最后一个词元时前面 logits 的变化，训练方式（nat）",
            ),
        ),
        Measure(
            "forced_training",
            Text(
                "tokens right under teacher forcing, as in training",
                "教师强制下的词元正确率，训练方式",
            ),
        ),
        Measure(
            "forced",
            Text(
                "tokens right under teacher forcing, as in inference",
                "教师强制下的词元正确率，推理方式",
            ),
        ),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Layer and RMS norm don't depend on the batch.",
                "层归一化和 RMS 归一化与批次无关。",
            ),
            Text("follows from the definition; the essay, 4.3", "由定义推出；原文 4.3"),
            Text("The same to rounding beside any neighbours.", "与谁相邻都只差舍入误差。"),
            _judge_apart,
        ),
        Claim(
            Text(
                "Batch norm does: while it trains a sentence depends on its neighbours. At "
                "inference it doesn't, for it takes the running averages of training instead.",
                "批归一化则有关：训练时一句话取决于相邻的句子；"
                "推理时无关，因为它改用训练中的滑动平均。",
            ),
            Text(
                "follows from the definition; the essay, 4.3, doesn't tell the two apart",
                "由定义推出；原文 4.3 未区分二者",
            ),
            Text(
                "Logits move by more than 0.001 with the batch's own statistics, by nothing but "
                "rounding with the running ones.",
                "用批次自身的统计量时 logits 变化超过 0.001；用滑动统计量时只有舍入误差。",
            ),
            _judge_neighbours,
        ),
        Claim(
            Text(
                "While it trains, batch norm looks past the causal mask: later tokens are part of "
                "its averages.",
                "训练时批归一化会绕过因果掩码：后面的词元也进入了平均。",
            ),
            Text("follows from the definition", "由定义推出"),
            Text(
                "Another last token moves earlier logits by more than 0.001; at inference, or with "
                "the other norms, by nothing but rounding.",
                "换掉最后一个词元，前面的 logits 变化超过 0.001；推理时或用其他归一化时，"
                "只有舍入误差。",
            ),
            _judge_future,
        ),
        Claim(
            Text("Batch norm translates worse.", "批归一化翻译得更差。"),
            Text(
                "Shen et al. 2020 (PowerNorm); the essay, 4.3",
                "Shen et al. 2020 (PowerNorm)；原文 4.3",
            ),
            Text("Clearly fewer exact translations.", "完全正确的译文明显更少。"),
            partial(judge_gain, _LAYER, _BATCH),
        ),
        Claim(
            Text(
                "RMS norm does as well as layer norm.",
                "RMS 归一化与层归一化一样好。",
            ),
            Text("Zhang and Sennrich 2019", "Zhang and Sennrich 2019"),
            Text("A difference of 3 % at most.", "相差不超过 3%。"),
            partial(judge_equal, _RMS, _LAYER, _SMALL_LOSS),
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    why=Text(
        "Layer norm takes mean and variance over the d_model numbers of one position, RMS norm "
        "their mean square alone. Batch norm takes them over all positions of all sentences, "
        "padding included, one dimension at a time; at inference it takes what it has averaged "
        "over the batches of training, so that a model computes something else than it trained.",
        "层归一化对一个位置的 d_model 个数求均值和方差，RMS 归一化只求均方。"
        "批归一化则逐维度地对所有句子的所有位置（包括填充）求均值和方差；"
        "推理时改用训练各批次的滑动平均，所以模型所计算的与训练时不同。",
    ),
    formula="layer, RMS: over the d_model numbers of a position; batch: over batch x length",
    code=(build_norm, BatchNorm),
)
