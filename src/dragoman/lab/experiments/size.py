"""How large a model so much text can fill (section 6.2, Table 3 rows C)."""

from __future__ import annotations

import dataclasses
from functools import partial

from dragoman.lab.base import SMALL
from dragoman.lab.data import LabData, cldr_data
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
from dragoman.lab.judging import LEAST_BLEU, decide, if_learnt
from dragoman.lab.scores import bleu, bleu_parts, predict
from dragoman.lab.statistics import Difference, bootstrap_difference
from dragoman.lab.trained import Trained, train_to_end
from dragoman.presets import PRESETS
from dragoman.settings import build_config

Sizes = tuple[Text, Text, Text]
"""What three variants are called, the smallest first."""

_WIDTHS: Sizes = (
    Text("width 32", "宽度 32"),
    Text("width 64", "宽度 64"),
    Text("width 128", "宽度 128"),
)
_LITTLE, _ALL = "little", "all"
_LESS = 10
"""The smaller text has one pair in so many."""


def train_on_less(trained: Trained, every: int) -> Trained:
    """Trains a model of the same settings, budget and vocabulary on one pair in `every`.

    Raises:
        BrokenOff: if that run can't go on.
    """
    data = trained.data.thin_out(every)
    files = data.write(trained.folder / "text")
    tokenizer = {"data": {"tokenizer": str(trained.folder / "tokenizer.model")}}
    config = build_config(dataclasses.asdict(trained.config), files, tokenizer)
    return train_to_end(trained.folder / f"less-{data.digest}", config, data, trained.device)


def _measure(trained: Trained) -> dict[str, Measured]:
    loss, score = dict[str, float](), dict[str, float]()
    measures: dict[str, Measured] = {"loss_by_pairs": loss, "bleu_by_pairs": score}
    for name, each in ((_LITTLE, train_on_less(trained, _LESS)), (_ALL, trained)):
        seen = predict(each.model, each, each.data.test)
        pairs = str(len(each.data.train))
        loss[pairs], score[pairs] = seen.nll.mean().item(), bleu(each, each.translations)
        measures[f"bleu_{name}"] = score[pairs]
        measures[f"parts_{name}"] = bleu_parts(each, each.translations)
    measures["parameters"] = float(sum(p.numel() for p in trained.model.parameters()))
    return measures


def _growing(sizes: Sizes, results: Results, text: str) -> list[list[float]]:
    """Returns what the largest model gains over the smallest, part by part of the test text."""
    large, small = (results.parts(sizes[each].en, f"parts_{text}") for each in (-1, 0))
    return [
        [high - low for high, low in zip(*seed, strict=True)]
        for seed in zip(large, small, strict=True)
    ]


def _decide(gain: Difference, sizes: Sizes, results: Results) -> Verdict:
    en, zh = ", ".join(each.en for each in sizes), "、".join(each.zh for each in sizes)
    text = Text(
        f"BLEU of {en}: {{0:.1f}}, {{1:.1f}}, {{2:.1f}} on all of the text, {{3:.1f}}, "
        "{4:.1f}, {5:.1f} on a tenth; difference over parts of the test text {6:.2f} "
        "[{7:.2f}, {8:.2f}]",
        f"{zh} 的 BLEU：全部数据 {{0:.1f}}、{{1:.1f}}、{{2:.1f}}，"
        "十分之一数据 {3:.1f}、{4:.1f}、{5:.1f}；按测试集分块计相差 {6:.2f} [{7:.2f}, {8:.2f}]",
    )
    found = [results.mean(size.en, f"bleu_{name}") for name in (_ALL, _LITTLE) for size in sizes]
    seen = numbers(text, *found, gain.mean, gain.low, gain.high)
    return if_learnt(max(found) >= LEAST_BLEU, decide(gain, seen))


def _judge_larger(sizes: Sizes, results: Results) -> Verdict:
    large, small = (results.parts(sizes[each].en, f"parts_{_ALL}") for each in (-1, 0))
    return _decide(bootstrap_difference(large, small), sizes, results)


def _judge_little(sizes: Sizes, results: Results) -> Verdict:
    on_all, on_little = (_growing(sizes, results, text) for text in (_ALL, _LITTLE))
    return _decide(bootstrap_difference(on_all, on_little), sizes, results)


def _judge_data(sizes: Sizes, results: Results) -> Verdict:
    small, large = (
        results.parts(sizes[each].en, f"parts_{text}") for each, text in ((0, _ALL), (-1, _LITTLE))
    )
    return _decide(bootstrap_difference(small, large), sizes, results)


def _claims_about(sizes: Sizes) -> tuple[Claim, ...]:
    """Makes the claims about three sizes of a model, and of all of a text and a tenth of it."""
    smallest, _, largest = sizes
    return (
        Claim(
            Text("Bigger models are better.", "模型越大越好。"),
            Text(
                "Vaswani et al. 2017, section 6.2 and Table 3 rows C",
                "Vaswani et al. 2017，6.2 节与表 3 C 行",
            ),
            Text(
                f"A higher BLEU of {largest.en} than of {smallest.en}, on all of the text.",
                f"用全部数据时，{largest.zh} 的 BLEU 高于 {smallest.zh}。",
            ),
            partial(_judge_larger, sizes),
        ),
        Claim(
            Text(
                "With little text there is less to win by size.",
                "数据少时，增大模型的收益更小。",
            ),
            Text(
                "why Multi30k is done with small models: Wu et al. 2021",
                "Multi30k 为何用小模型：Wu et al. 2021",
            ),
            Text(
                f"From {smallest.en} to {largest.en} fewer points are gained on a tenth of the "
                "text than on all of it.",
                f"从 {smallest.zh} 到 {largest.zh}，用十分之一数据时提高的分数少于用全部数据时。",
            ),
            partial(_judge_little, sizes),
        ),
        Claim(
            Text(
                "Ten times the text is worth more than a larger model.",
                "十倍的数据比更大的模型更有价值。",
            ),
            Text(
                "Koehn and Knowles 2017, section 3.2: little text is what hurts most",
                "Koehn and Knowles 2017，3.2 节：数据少伤害最大",
            ),
            Text(
                f"A higher BLEU of {smallest.en} on all of the text than of {largest.en} on a "
                "tenth.",
                f"{smallest.zh} 加全部数据的 BLEU 高于 {largest.zh} 加十分之一数据。",
            ),
            partial(_judge_data, sizes),
        ),
    )


_PAIRS = Text("training pairs", "训练句对数")

EXPERIMENT = Experiment(
    name="size",
    number=21,
    version=2,
    title=Text("Size of the model against size of the text", "模型大小与数据大小"),
    question=Text(
        "Is a larger model better, and does it still hold with a tenth of the text?",
        "模型越大越好吗？数据只有十分之一时还成立吗？",
    ),
    settings={**SMALL, "model": {**SMALL["model"], "d_k": 16, "d_v": 16}},
    steps=900,
    quick_steps=400,
    variants=(
        Variant(_WIDTHS[1].en, zh=_WIDTHS[1].zh),
        Variant(_WIDTHS[0].en, Change("model.d_model", 32), zh=_WIDTHS[0].zh),
        Variant(_WIDTHS[2].en, Change("model.d_model", 128), zh=_WIDTHS[2].zh),
    ),
    measures=(
        Measure(
            "loss_by_pairs", Text("test loss (nats per token)", "测试损失（nat/词元）"), _PAIRS
        ),
        Measure("bleu_by_pairs", Text("BLEU, greedy", "BLEU（贪心解码）"), _PAIRS),
        Measure("parameters", Text("parameters", "参数量")),
        Measure("exact", Text("exactly right, all of the text", "完全正确的比例（全部数据）")),
    ),
    claims=_claims_about(_WIDTHS),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "Heads and the network's inside keep their sizes, so that all parameters grow as the "
        "width does. A wider model can tell more things apart, if there is text to learn them "
        "from. Where there is none it learns its few sentences by heart. All have the same number "
        "of steps, so that the smaller text is read ten times as often.",
        "注意力头和前馈网络内部的大小不变，所以参数量与宽度成正比。"
        "更宽的模型能区分更多的东西，前提是有数据可学；没有足够数据时，它只会背下那几句话。"
        "所有模型的步数相同，因此较小的数据会被重复读十倍的次数。",
    ),
    formula="parameters ~ d (V + N (12 h d_k + 4 d_ff)), N layers on each side",
    code=(LabData.thin_out, train_on_less),
)

_SIZES = ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads")
_TINY, _SMALL, _BASE = "tiny", "small", "paper-base"


def _sizes(preset: str) -> dict[str, int]:
    model = build_config(PRESETS[preset].settings).model
    return {name: getattr(model, name) for name in _SIZES}


def _resize(preset: str) -> Change:
    """Returns how a preset's sizes differ from those of small."""
    before = _sizes(_SMALL)
    changed = [(f"model.{n}", size) for n, size in _sizes(preset).items() if size != before[n]]
    return Change(*changed[0], tuple(changed[1:]))


FULL_SIZE = dataclasses.replace(
    EXPERIMENT,
    name="size-full",
    number=25,
    version=1,
    title=Text("Size against text, in full size", "模型大小与数据大小（原尺寸）"),
    question=Text(
        "How large a model can your own text fill: tiny, small or the paper's base?",
        "你自己的数据能撑起多大的模型：tiny、small 还是论文的 base？",
    ),
    settings={
        "model": {
            **_sizes(_SMALL),
            **{"norm_place": "pre", "dropout": 0.3, "embedding_dropout": 0.3},
        },
        "data": PRESETS[_SMALL].settings["data"],
        "training": PRESETS[_SMALL].settings["training"],
    },
    steps=8000,
    quick_steps=2000,
    variants=(
        Variant(_SMALL),
        *(Variant(name, _resize(name)) for name in (_TINY, _BASE)),
    ),
    claims=_claims_about((Text(_TINY, _TINY), Text(_SMALL, _SMALL), Text(_BASE, _BASE))),
    data=None,
    why=Text(
        "These are the sizes of three presets, all else alike: pre-norm, for the smallest learns "
        "badly without, the dropout that little text asks for, 8,000 subwords and steps. A larger "
        "model can tell more things apart, if there is text to learn them from. Where there is "
        "none it learns its sentences by heart. All have the same number of steps, so that the "
        "smaller text is read ten times as often.",
        "三个预设的尺寸，其余都相同：前归一化（否则最小的模型学不好）、适合小数据的 dropout、"
        "8000 个子词、8000 步。"
        "更大的模型能区分更多的东西，前提是有数据可学；没有足够数据时，它只会背下那些句子。"
        "所有模型的步数相同，因此较小的数据会被重复读十倍的次数。",
    ),
    formula="parameters ~ d (V + N (12 d + 4 d_ff)), N layers on each side",
)
