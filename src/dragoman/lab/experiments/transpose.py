"""Heads that are cut out without the transpose: the shapes fit, the meaning doesn't (3.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from dragoman.config import ModelConfig
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
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
from dragoman.lab.judging import CHANCE, holds_beside, judge_gain
from dragoman.lab.leaks import drift, future_effect
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model import attention
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.layout import Layout
from dragoman.model.masks import AttentionMask
from dragoman.model.seq2seq import Seq2Seq
from dragoman.model.transformer import Transformer

_BOTH, _MERGE, _NONE = "transposed", "transposed back only", "never transposed"
_SETTINGS = {_BOTH: "both", _MERGE: "merge", _NONE: "none"}
_IN_CHINESE = {_BOTH: "转置", _MERGE: "只转置回来", _NONE: "从不转置"}
_LENGTH = 12
"""Tokens of the sentence whose influences are looked at."""
_SENTENCES = 20
_LONGER = (1, 4, 16)
"""By how many tokens a neighbour is longer."""


def influence(model: Seq2Seq, length: int = _LENGTH) -> Tensor:
    """Returns how much each position of an attention depends on each position of its input.

    Of the encoder's first layer, between random vectors: entry (i, j) is the norm of the
    derivative of output i by input j, divided by the sum of its row.

    Args:
        model: a Transformer in float64.
        length: positions of a sentence without padding.
    """
    layer = model.readable().get_submodule("encoder.layers.0.self_attention")
    assert isinstance(layer, MultiHeadAttention)

    def attend(x: Tensor) -> Tensor:
        found: Tensor = layer(x[None], layer.keys_values(x[None]), AttentionMask())
        return found[0]

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(length, model.config.d_model, generator=generator, dtype=torch.float64)
    derivative = torch.autograd.functional.jacobian(attend, x, vectorize=True)
    norms: Tensor = derivative.pow(2).sum(dim=(1, 3)).sqrt()
    return norms / norms.sum(dim=1, keepdim=True)


def heard(head_transpose: str) -> float:
    """Returns the share of the pairs of positions that one attention connects, untrained."""
    model = _fresh(head_transpose)
    return (influence(model) > 0).double().mean().item()


def _fresh(head_transpose: str) -> Seq2Seq:
    torch.manual_seed(1)
    config = ModelConfig(
        source_vocab_size=19,
        target_vocab_size=19,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_model=32,
        d_ff=64,
        num_heads=4,
        head_transpose=head_transpose,  # type: ignore[arg-type]
    )
    return Transformer(config).double().eval()


@torch.no_grad()
def length_effect(model: Seq2Seq, source: Sequence[int], target: Sequence[int]) -> float:
    """Returns how far logits move, at most, when the input ends behind them.

    That is what happens in decoding step by step: a prefix is all there is.

    Args:
        model: in float64.
        source: ids without EOS.
        target: ids without EOS.
    """
    target_input = model.decoder_input(end_and_pad([target]))
    ended = end_and_pad([source])
    whole = model(ended, target_input)
    prefixes = range(1, target_input.shape[1])
    moved = [
        (model(ended, target_input[:, :end])[:, -1] - whole[:, end - 1]).abs().max().item()
        for end in prefixes
    ]
    return max(moved, default=0.0)


@torch.no_grad()
def reread_exact(trained: Trained) -> float:
    """Returns the share of exact translations when each step reads the whole prefix, uncached.

    A cache is fed token by token, and one token is cut into heads the same in every way: without
    it a decoder does at least what it did while it trained.
    """
    right = 0
    for sources, targets in trained.unpadded:
        tokens = trained.model.decoder_input(targets)[:, :1]
        for _ in range(targets.shape[1]):
            latest = trained.model(sources, tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, latest], dim=1)
        right += int((tokens[:, 1:] == targets).all(dim=1).sum())
    return right / len(trained.data.test)


def _measure(trained: Trained) -> dict[str, Measured]:
    exact_model = trained.in_float64()
    pairs = [pair for pair in zip(*trained.ids, strict=True) if len(pair[1]) > 1][:_SENTENCES]
    return {
        "forced": trained.forced_accuracy(),
        "reread": reread_exact(trained),
        "future": max((future_effect(exact_model, *pair) for pair in pairs), default=0.0),
        "length": max((length_effect(exact_model, *pair) for pair in pairs), default=0.0),
        "drift": {str(longer): drift(trained, longer) for longer in _LONGER},
        "influence": [[round(cell, 3) for cell in row] for row in influence(exact_model).tolist()],
    }


def _observe() -> dict[str, Measured]:
    return {f"heard_{setting}": heard(setting) for setting in _SETTINGS.values()}


def _judge_heard(results: Results) -> Verdict:
    found = [results.number(f"heard_{setting}") for setting in ("both", "merge", "none")]
    text = Text(
        "one layer connects {0:.0%} of the pairs with both transposes, {1:.0%} with the one on the "
        "way back, {2:.0%} with none",
        "一层所连通的位置对：两次转置时 {0:.0%}，只转回时 {1:.0%}，从不转置时 {2:.0%}",
    )
    return holds(found[0] == 1.0 and max(found[1:]) <= 0.5, numbers(text, *found))


def _judge_leak(results: Results) -> Verdict:
    both, merge, none = (max(results.values(name, "future")) for name in _SETTINGS)
    text = Text(
        "another last token moves earlier logits by {1:.2g} with the transpose on the way back "
        "alone, by {0:.1g} with both and {2:.1g} with none",
        "换掉最后一个词元，前面的 logits 的变化：只转回时 {1:.2g}，两次转置时 {0:.1g}，"
        "从不转置时 {2:.1g}",
    )
    seen = numbers(text, both, merge, none)
    return holds(both < 1e-9 and none < 1e-9 and merge > 1e-3, seen)


def _judge_length(results: Results) -> Verdict:
    both = max(results.values(_BOTH, "length"))
    merge, none = (min(results.values(name, "length")) for name in (_MERGE, _NONE))
    text = Text(
        "a prefix alone gives the same logits within {0:.1g} with both transposes; with the one on "
        "the way back they differ by {1:.2g}, with none by {2:.2g}",
        "只输入前缀时，logits 的差异：两次转置时不超过 {0:.1g}，只转回时 {1:.2g}，"
        "从不转置时 {2:.2g}",
    )
    return holds(both < 1e-9 and min(merge, none) > 1e-3, numbers(text, both, merge, none))


def _judge_curve(results: Results) -> Verdict:
    forced, free, reread = (results.mean(_MERGE, name) for name in ("forced", "exact", "reread"))
    sound = results.mean(_BOTH, "exact")
    losses = [[trial.curve[-1][1] for trial in results.whole(name)] for name in (_MERGE, _BOTH)]
    text = Text(
        "transposed back only: {0:.1%} of the tokens are right under teacher forcing, {1:.1%} of "
        "the free translations ({2:.1%} if each step reads the whole prefix again), beside {3:.1%} "
        "with both transposes; the training loss ends at {4:.3f} and {5:.3f} nats per token",
        "只转回时：教师强制下 {0:.1%} 的词元正确，自由解码 {1:.1%} 完全正确"
        "（每步重读整个前缀时 {2:.1%}）；两次转置时为 {3:.1%}；"
        "训练损失最终分别为 {4:.3f} 和 {5:.3f} nat/词元",
    )
    ends = (sum(each) / len(each) for each in losses)
    seen = numbers(text, forced, free, reread, sound, *ends)
    hidden = forced >= 0.9 and max(free, reread) <= sound / 2
    return holds_beside(sound > CHANCE, hidden, seen)


EXPERIMENT = Experiment(
    name="transpose",
    number=22,
    version=2,
    title=Text("Heads reshaped without the transpose", "拆分注意力头时忘记转置"),
    question=Text(
        "What happens if (batch, length, heads x d_k) is viewed as (batch, heads, length, d_k)?",
        "如果直接把 (batch, length, heads x d_k) 当作 (batch, heads, length, d_k)，会怎样？",
    ),
    settings=SMALL,
    steps=600,
    quick_steps=400,
    variants=(
        Variant(_BOTH, zh=_IN_CHINESE[_BOTH]),
        *(
            Variant(name, Change("model.head_transpose", _SETTINGS[name]), zh=_IN_CHINESE[name])
            for name in (_NONE, _MERGE)
        ),
    ),
    measures=(
        Measure("forced", Text("tokens right under teacher forcing", "教师强制下的词元正确率")),
        Measure("exact", Text("free translations exactly right", "自由解码完全正确的比例")),
        Measure("reread", Text("the same without a cache", "同上，不用缓存")),
        Measure(
            "future",
            Text(
                "change of earlier logits with another last token (nats)",
                "换掉最后一个词元时前面 logits 的变化（nat）",
            ),
        ),
        Measure(
            "length",
            Text(
                "change of logits when only the prefix is there (nats)",
                "只有前缀时 logits 的变化（nat）",
            ),
        ),
        Measure(
            "drift",
            Text("largest change of a logit (nats)", "logit 的最大变化（nat）"),
            Text("tokens by which the neighbour is longer", "相邻句子多出的词元数"),
        ),
        Measure(
            "influence",
            Text(
                "share of an input position in an output position's derivative, encoder layer 1",
                "输出位置的导数中各输入位置所占份额（编码器第 1 层）",
            ),
            Text("input position", "输入位置"),
            Text("output position", "输出位置"),
        ),
    ),
    claims=(
        Claim(
            Text(
                "Without the transpose length and heads are mixed, so that a layer connects only "
                "some of the positions.",
                "不转置就会把长度和头混在一起，一层只能连通一部分位置。",
            ),
            Text("the essay, 3.2", "原文 3.2"),
            Text(
                "With both transposes one layer connects every pair of positions; otherwise at "
                "most half of them, for a head gets only its part of the sentence.",
                "两次转置时，一层连通所有位置对；否则至多一半，因为每个头只分到句子的一段。",
            ),
            _judge_heard,
        ),
        Claim(
            Text(
                "If only the way back is transposed, the causal mask leaks. If neither is, it "
                "doesn't: both mistakes together put everything back in its place.",
                "只在合并时转置，因果掩码就会泄漏；两处都不转置则不会，"
                "因为两个错误合在一起，又把一切放回了原位。",
            ),
            Text("follows from the definition", "由定义推出"),
            Text(
                "Another last token moves earlier logits by more than 0.001 in the first case, "
                "by nothing but rounding in the second.",
                "换掉最后一个词元，前面的 logits 在前一种情形下变化超过 0.001，"
                "在后一种情形下只有舍入误差。",
            ),
            _judge_leak,
        ),
        Claim(
            Text(
                "In both cases a position's output depends on the length of the input, so that "
                "decoding step by step computes something else than training did.",
                "两种情形下，一个位置的输出都取决于输入的长度，所以逐步解码所计算的与训练时不同。",
            ),
            Text("follows from the definition", "由定义推出"),
            Text(
                "A prefix alone moves logits by more than 0.001; with both transposes by nothing "
                "but rounding.",
                "只输入前缀时 logits 变化超过 0.001；两次转置时只有舍入误差。",
            ),
            _judge_length,
        ),
        Claim(
            Text(
                "A model whose heads are never transposed translates worse.",
                "从不转置的模型翻译得更差。",
            ),
            Text("the essay, 3.2", "原文 3.2"),
            Text("Clearly fewer exact translations.", "完全正确的译文明显更少。"),
            partial(judge_gain, _BOTH, _NONE),
        ),
        Claim(
            Text(
                "The curve doesn't give the mistake away: with the transpose on the way back "
                "alone, training looks sound while free decoding fails.",
                "曲线看不出这个错误：只转回时，训练看似正常，自由解码却失败。",
            ),
            Text("the essay, 3.2 (results that nobody can explain)", "原文 3.2（结果莫名其妙）"),
            Text(
                "At least 90 % of the tokens are right under teacher forcing, and at most half as "
                "many free translations as with both transposes. We doubt the first: the leak "
                "shows a position some of the later tokens, not just the one it needs.",
                "教师强制下正确率至少 90%，自由解码完全正确的译文至多为两次转置时的一半。"
                "对前半句我们存疑：泄漏的是后面的某些词元，未必正是所需的那一个。",
            ),
            _judge_curve,
            expected=DOUBTED,
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    observe=_observe,
    why=Text(
        "A vector of a position holds the heads one behind the other. Read row by row as (heads, "
        "length, d_k), the first 1/heads of the sentence becomes head 0, the next head 1: each "
        "row is a piece of some position, and a head sees a stretch of the sentence. Row i of all "
        "heads then goes to position i if the way back is transposed, which joins the stretches "
        "again, blind to order and mask. Where a stretch ends depends on the padded length: what "
        "was learnt in batches of one width fails in another.",
        "一个位置的向量依次存放各个头。若按行读成 (heads, length, d_k)，"
        "句子的前 1/heads 段就成了头 0，下一段成了头 1：每一行只是某个位置的一部分，"
        "一个头只看到句子的一段。若合并时转置，各头的第 i 行都送到位置 i，"
        "各段又连在一起，却不顾顺序和掩码。各段的边界取决于填充后的长度："
        "在一种宽度的批次中学到的，换一种宽度就失效。",
    ),
    formula="row i of head j = piece (j length + i) mod heads of position (j length + i) div heads",
    code=(
        Layout.split_heads,
        Layout.merge_heads,
        attention._split_untransposed,
        attention._merge_untransposed,
    ),
)
