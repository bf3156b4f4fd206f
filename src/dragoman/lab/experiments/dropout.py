"""Dropout on little text, and the places that it may have (section 5.4)."""

from __future__ import annotations

from functools import partial

from dragoman.kernels.dropout import Dropout
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
from dragoman.lab.judging import decide, holds_clearly
from dragoman.lab.scores import predict
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.feed_forward import FeedForward
from dragoman.model.layers import PostNorm

_NONE, _TENTH, _MORE = "no dropout", "0.1", "0.3"
_WEIGHTS, _INSIDE = "0.3, attention weights", "0.3, inside the network"
_LESS = 10
"""The text has one pair in so many: little enough to be learnt by heart."""
_CHECKPOINT = 50


def _measure(trained: Trained) -> dict[str, Measured]:
    training, test = trained.config.training, trained.data.test
    every = -(-len(trained.data.train) // len(test))
    learnt = trained.data.thin_out(every).train
    steps = range(training.validate_every, training.max_steps + 1, training.validate_every)
    on_test = {
        str(step): predict(trained.at(step), trained, test).nll.mean().item() for step in steps
    }
    found = predict(trained.model, trained, test)
    train_loss, test_loss = (
        seen.nll.mean().item() for seen in (predict(trained.model, trained, learnt), found)
    )
    shares = found.shares(found.nll)
    return {
        "train_loss": train_loss,
        "test_loss": test_loss,
        "gap": test_loss - train_loss,
        "test_loss_by_step": on_test,
        "test_shares": shares,
        "gap_shares": {line: share - train_loss for line, share in shares.items()},
    }


def _judge_lower(better: str, worse: str, results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(worse, "test_shares"), results.parts(better, "test_shares")
    )
    text = Text(
        f"test loss {{0:.3f}} with {worse}, {{1:.3f}} with {better}; difference {{2:.3f}} nats "
        "per token [{3:.3f}, {4:.3f}]",
        f"测试损失：“{worse}”为 {{0:.3f}}，“{better}”为 {{1:.3f}}；"
        "每个词元相差 {2:.3f} nat [{3:.3f}, {4:.3f}]",
    )
    found = [results.mean(variant, "test_loss") for variant in (worse, better)]
    return decide(gain, numbers(text, *found, gain.mean, gain.low, gain.high))


def _judge_gap(results: Results) -> Verdict:
    none, tenth, more = (results.parts(variant, "gap_shares") for variant in (_NONE, _TENTH, _MORE))
    steps = bootstrap_difference(none, tenth), bootstrap_difference(tenth, more)
    text = Text(
        "test loss minus training loss: {0:.3f} nats per token without, {1:.3f} with 0.1, {2:.3f} "
        "with 0.3",
        "测试损失减训练损失：无 dropout {0:.3f} nat/词元，0.1 时 {1:.3f}，0.3 时 {2:.3f}",
    )
    seen = numbers(text, *(results.mean(variant, "gap") for variant in (_NONE, _TENTH, _MORE)))
    return holds_clearly(seen, *steps)


EXPERIMENT = Experiment(
    name="dropout",
    number=10,
    version=2,
    title=Text("Dropout on little text, and where it sits", "数据很少时的 dropout，以及放在哪里"),
    question=Text(
        "What does dropout do against over-fitting, and does its place matter?",
        "dropout 对过拟合有什么作用？放的位置重要吗？",
    ),
    settings=SMALL,
    steps=800,
    quick_steps=500,
    checkpoint_every=_CHECKPOINT,
    variants=(
        Variant(_NONE, zh="无 dropout"),
        Variant(_TENTH, Change("model.dropout", 0.1)),
        Variant(_MORE, Change("model.dropout", 0.3)),
        Variant(_WEIGHTS, Change("model.attention_dropout", 0.3), zh="0.3，注意力权重"),
        Variant(_INSIDE, Change("model.feed_forward_dropout", 0.3), zh="0.3，前馈网络内部"),
    ),
    measures=(
        Measure(
            "test_loss_by_step",
            Text("test loss (nats per token)", "测试损失（nat/词元）"),
            Text("step", "步"),
        ),
        Measure("train_loss", Text("training loss at the end (nats)", "最终训练损失（nat）")),
        Measure("test_loss", Text("test loss at the end (nats)", "最终测试损失（nat）")),
        Measure("gap", Text("test minus training (nats)", "测试减训练（nat）")),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
    ),
    claims=(
        Claim(
            Text("Dropout helps against over-fitting.", "dropout 有助于避免过拟合。"),
            Text(
                "Vaswani et al. 2017, section 6.2 and Table 3 row D; the essay, 5.2",
                "Vaswani et al. 2017，6.2 节与表 3 D 行；原文 5.2",
            ),
            Text(
                "On little text: after the last step a lower test loss with 0.1 than without.",
                "数据很少：最后一步之后，0.1 的测试损失低于无 dropout。",
            ),
            partial(_judge_lower, _TENTH, _NONE),
        ),
        Claim(
            Text(
                "The more dropout, the nearer are test and training loss.",
                "dropout 越大，测试损失与训练损失越接近。",
            ),
            Text("Srivastava et al. 2014, section 1", "Srivastava et al. 2014，1 节"),
            Text(
                "Their distance falls from 0 to 0.1, and from 0.1 to 0.3.",
                "从 0 到 0.1，再到 0.3，二者的差逐级缩小。",
            ),
            _judge_gap,
        ),
        Claim(
            Text(
                "With little text 0.3 is better than the paper's 0.1.",
                "数据很少时，0.3 优于论文的 0.1。",
            ),
            Text(
                "Wu et al. 2021, who take 0.3 for Multi30k", "Wu et al. 2021，在 Multi30k 上取 0.3"
            ),
            Text("A lower test loss with 0.3 than with 0.1.", "0.3 的测试损失低于 0.1。"),
            partial(_judge_lower, _MORE, _TENTH),
        ),
        Claim(
            Text(
                "Dropout on the attention weights, and there alone, helps too.",
                "只在注意力权重上用 dropout 也有帮助。",
            ),
            Text(
                "the essay, 5.2, and tensor2tensor; not the paper's text",
                "原文 5.2 与 tensor2tensor；论文正文没有",
            ),
            Text(
                "A lower test loss than without any: each weight left out hides a token.",
                "测试损失低于完全不用：每丢掉一个权重，就遮住了一个词元。",
            ),
            partial(_judge_lower, _WEIGHTS, _NONE),
        ),
        Claim(
            Text(
                "Dropout inside the feed-forward network, and there alone, helps too.",
                "只在前馈网络内部用 dropout 也有帮助。",
            ),
            Text("tensor2tensor; not the paper's text", "tensor2tensor；论文正文没有"),
            Text("A lower test loss than without any.", "测试损失低于完全不用。"),
            partial(_judge_lower, _INSIDE, _NONE),
        ),
        Claim(
            Text(
                "On the sub-layers' outputs, where the paper has it, it does more than on the "
                "attention weights.",
                "放在子层输出上（论文的做法）比放在注意力权重上更有效。",
            ),
            Text(
                "Vaswani et al. 2017, section 5.4, names this place and not the other",
                "Vaswani et al. 2017，5.4 节，只提到这个位置",
            ),
            Text(
                "At 0.3 each, a lower test loss on the outputs: they carry all that a layer adds.",
                "同为 0.3 时，放在输出上测试损失更低：一层所加的内容都经过那里。",
            ),
            partial(_judge_lower, _MORE, _WEIGHTS),
        ),
    ),
    data=partial(cldr_data, "de"),
    thin_out=_LESS,
    measure=_measure,
    why=Text(
        "What a step leaves out at random can't be relied on, so that a memory of single "
        "sentences, which needs many numbers to agree, is harder to build than a rule that "
        "several parts know. The price is noise: a model needs more steps, or more width.",
        "每一步随机丢弃一部分，模型就不能依赖任何单个数值。"
        "死记某一句需要许多数值相互配合，因而比多处都掌握的规律更难形成。"
        "代价是噪声：需要更多步数或更大的宽度。",
    ),
    formula="dropout(x) = m * x / (1 - p), m ~ Bernoulli(1 - p)",
    code=(PostNorm, MultiHeadAttention.__init__, FeedForward, Dropout),
)
