"""Ways to tell a model the order of its tokens, and none (section 3.5)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from dragoman.config import EOS, InputError, ModelConfig
from dragoman.lab.base import SMALL
from dragoman.lab.data import LabData, task_data
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
from dragoman.lab.judging import CHANCE, holds_beside, judge_equal, judge_nothing
from dragoman.lab.trained import Trained
from dragoman.model.positions import (
    AlibiPositions,
    LearnedPositions,
    NoPositions,
    RotaryPositions,
    sinusoidal_positions,
)
from dragoman.model.transformer import Transformer

_SHORTEST, _LONGEST, _BEYOND = 3, 7, 12
"""Symbols of a source: the fewest, the most that are trained on, the most that are tested."""
_SMALL_LOSS = 0.03
_GUESSED = 0.05
"""Share of strings that guesses may find: who knows the symbols and no order gets 4 % of these."""
_KINDS = ("sinusoidal", "learned", "rotary", "alibi", "none")
_IN_CHINESE = dict(zip(_KINDS, ("正弦式", "学习式", "旋转式", "ALiBi", "无位置"), strict=True))


def _config(positions: str, **changes: int) -> ModelConfig:
    sizes = {"source_vocab_size": 19, "target_vocab_size": 19, "num_encoder_layers": 2}
    return ModelConfig(
        **{"d_model": 32, "d_ff": 64, "num_heads": 4, **sizes, **changes},  # type: ignore[arg-type]
        num_decoder_layers=1,
        positions=positions,  # type: ignore[arg-type]
    )


@torch.no_grad()
def equivariance_error(positions: str) -> float:
    """Returns how far encode(shuffle(x)) is from shuffle(encode(x)), at most, in float64."""
    torch.manual_seed(1)
    model = Transformer(_config(positions)).double().eval()
    source = torch.randint(EOS + 1, 19, (7, 13))
    order = torch.randperm(13)
    shuffled_first, _ = model.encode(source[:, order])
    shuffled_last, _ = model.encode(source)
    return (shuffled_first - shuffled_last[:, order]).abs().max().item()


def learned_stop(limit: int = 11) -> bool:
    """Says whether a model with learned positions reads so many tokens, and not one more."""
    model = Transformer(_config("learned", max_positions=limit)).eval()
    model.encode(torch.full((1, limit), EOS))
    try:
        model.encode(torch.full((1, limit + 1), EOS))
    except InputError:
        return True
    return False


def _reversals() -> LabData:
    data = task_data("reverse", (_SHORTEST, _LONGEST), longest=_BEYOND)
    return replace(data, settings={"model": {"max_positions": _LONGEST + 1}})


def _observe() -> dict[str, Measured]:
    errors = {f"error_{kind}": equivariance_error(kind) for kind in _KINDS}
    return {**errors, "learned_stop": float(learned_stop())}


def _measure(trained: Trained) -> dict[str, Measured]:
    by_length: dict[int, list[tuple[str, str]]] = {}
    for pair in [*trained.data.test, *trained.data.beyond]:
        by_length.setdefault(len(pair[0].split()), []).append(pair)
    accuracy = {str(n): trained.exact(pairs) for n, pairs in sorted(by_length.items())}
    measures: dict[str, Measured] = {"by_length": accuracy}
    if trained.data.beyond:
        measures["beyond"] = trained.exact(trained.data.beyond)
    return measures


def _judge_equivariance(results: Results) -> Verdict:
    without = results.number("error_none")
    others = min(results.number(f"error_{kind}") for kind in _KINDS if kind != "none")
    text = Text(
        "without positions both ways agree within {0:.1g}; with any of the others they differ by "
        "{1:.2g} or more",
        "没有位置信息时，两种顺序的结果相差不超过 {0:.1g}；有任何一种位置信息时至少相差 {1:.2g}",
    )
    return holds(without < 1e-12 and others > 1e-3, numbers(text, without, others))


def _judge_order(results: Results) -> Verdict:
    if not _has_strings(results):
        return Verdict("no result", Text("the text has no strings", "文本中没有字符串"))
    return judge_nothing("none", "sinusoidal", results, most=_GUESSED)


def _has_strings(results: Results) -> bool:
    """Says whether the text was the task's: no other has longer sentences to test with."""
    return results.has("sinusoidal", "beyond")


def _judge_stop(results: Results) -> Verdict:
    text = Text(
        "one token more than model.max_positions is refused",
        "超过 model.max_positions 一个词元即被拒绝",
    )
    return holds(results.number("learned_stop") == 1.0, text)


def _judge_beyond(results: Results) -> Verdict:
    if not _has_strings(results):
        nothing = Text("this text has nothing longer to test with", "该数据没有更长的测试句")
        return Verdict("no result", nothing)
    within, beyond = (results.mean("sinusoidal", name) for name in ("exact", "beyond"))
    text = Text(
        "sinusoids: {0:.1%} exactly right up to the trained length, {1:.1%} beyond; "
        "rotary {2:.1%}, ALiBi {3:.1%}, learned {4:.1%} beyond",
        "正弦式：训练长度以内完全正确 {0:.1%}，超出后 {1:.1%}；"
        "超出后旋转式 {2:.1%}，ALiBi {3:.1%}，学习式 {4:.1%}",
    )
    others = [results.mean(kind, "beyond") for kind in ("rotary", "alibi", "learned")]
    seen = numbers(text, within, beyond, *others)
    return holds_beside(within > CHANCE, beyond >= within / 2, seen)


EXPERIMENT = Experiment(
    name="positions",
    number=3,
    version=2,
    title=Text("Positions: four ways to have them, and none", "位置信息：四种加入方式，以及没有"),
    question=Text(
        "What does attention know of the order of its tokens?",
        "注意力对词元的顺序知道多少？",
    ),
    settings=SMALL,
    steps=600,
    quick_steps=400,
    variants=(
        Variant(_KINDS[0], zh=_IN_CHINESE[_KINDS[0]]),
        *(
            Variant(kind, Change("model.positions", kind), zh=_IN_CHINESE[kind])
            for kind in _KINDS[1:]
        ),
    ),
    measures=(
        Measure(
            "by_length",
            Text("translations exactly right", "译文完全正确的比例"),
            Text(
                f"words of the source (trained on: up to {_LONGEST} where the text is the task's)",
                f"源句词数（玩具任务训练到 {_LONGEST} 为止）",
            ),
        ),
        Measure("exact", Text("exactly right, trained lengths", "训练长度内完全正确")),
        Measure("beyond", Text("exactly right, longer", "更长时完全正确")),
    ),
    claims=(
        Claim(
            Text(
                "Without positions the encoder is permutation-equivariant: shuffled input gives "
                "equally shuffled output (not the same output, as is often said).",
                "没有位置信息时，编码器对排列等变：打乱输入，输出以同样方式被打乱"
                "（而不是常说的“输出不变”）。",
            ),
            Text(
                "follows from the definition; the essay, 3.3, says it less exactly",
                "由定义推出；原文 3.3 说得不够准确",
            ),
            Text("To rounding, in float64.", "在 float64 下只差舍入误差。"),
            _judge_equivariance,
        ),
        Claim(
            Text(
                "Without positions a model can't learn to reverse a string.",
                "没有位置信息，模型学不会反转字符串。",
            ),
            Text("Vaswani et al. 2017, section 3.5", "Vaswani et al. 2017，3.5 节"),
            Text(
                f"At most {100 * _GUESSED:g} % exactly right, for the order of a short string can "
                "be guessed, and clearly fewer than with sinusoids.",
                f"完全正确的不超过 {100 * _GUESSED:g}%（短串的顺序可以猜对），且明显少于正弦式。",
            ),
            _judge_order,
        ),
        Claim(
            Text(
                "Learned positions and sinusoids do nearly the same.",
                "学习式与正弦式位置的效果几乎相同。",
            ),
            Text(
                "Vaswani et al. 2017, Table 3 row E; the essay, 3.3",
                "Vaswani et al. 2017，表 3 E 行；原文 3.3",
            ),
            Text("A difference of 3 % at most.", "相差不超过 3%。"),
            partial(judge_equal, "learned", "sinusoidal", _SMALL_LOSS),
        ),
        Claim(
            Text(
                "Learned positions stop at the trained length.",
                "学习式位置到训练长度为止。",
            ),
            Text("follows from the definition", "由定义推出"),
            Text("One token more is refused.", "多一个词元就被拒绝。"),
            _judge_stop,
        ),
        Claim(
            Text(
                "Sinusoids extend to longer sentences than were trained on.",
                "正弦式可以推广到比训练时更长的句子。",
            ),
            Text(
                "Vaswani et al. 2017, section 3.5 (may allow); the essay, 3.3",
                "Vaswani et al. 2017，3.5 节（“可能”）；原文 3.3",
            ),
            Text(
                "At least half as many exact beyond the trained length. We doubt it: a table that "
                "goes on isn't yet a model that has learnt to use it.",
                "超出训练长度后，正确率至少为一半。我们对此存疑：位置表可以延伸，"
                "并不等于模型学会了使用它。",
            ),
            _judge_beyond,
            expected=DOUBTED,
        ),
    ),
    data=_reversals,
    measure=_measure,
    observe=_observe,
    why=Text(
        "Attention is a sum over a set: moving the keys moves no sum, and moving a query moves its "
        "row alone. Sinusoids add a vector, rotary turns queries and keys so that scores depend on "
        "distance, ALiBi lowers scores with distance.",
        "注意力是对集合求和：交换键不改变和，移动查询只移动它自己的那一行。"
        "正弦式加上一个向量；旋转式转动查询和键，使得分取决于距离；ALiBi 则随距离降低得分。",
    ),
    formula="PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))",
    code=(
        sinusoidal_positions,
        LearnedPositions.forward,
        RotaryPositions.rotate,
        AlibiPositions.bias_parts,
        NoPositions,
    ),
)
