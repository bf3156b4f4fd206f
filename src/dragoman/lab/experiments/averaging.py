"""The mean of the last checkpoints (section 6.1)."""

from __future__ import annotations

from functools import partial

from dragoman.checkpoint import ModelFolder, average_weights
from dragoman.lab.base import SMALL
from dragoman.lab.data import cldr_data
from dragoman.lab.experiment import (
    DOUBTED,
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
from dragoman.lab.scores import bleu, bleu_parts, predict, translate
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model.architecture import build_model
from dragoman.model.seq2seq import Seq2Seq

_BASE = "base"
_CHECKPOINT = 20
_COUNTS = (1, 2, 3, 5, 10, 20)
_LAST, _FEW, _MANY = _JUDGED = 1, 5, 20
"""The last one alone, and what the paper takes for its base and for its big models."""
_COUNT = Text("checkpoints that are averaged", "取平均的检查点个数")


def average(trained: Trained, count: int) -> Seq2Seq:
    """Returns the model whose weights are the mean of the last so many checkpoints."""
    model = build_model(trained.config.model)
    model.load_arrays(ModelFolder(trained.folder).average_last(count))
    return model.eval()


def _measure(trained: Trained) -> dict[str, Measured]:
    loss, score = dict[str, float](), dict[str, float]()
    measures: dict[str, Measured] = {"loss_by_count": loss, "bleu_by_count": score}
    for count in _COUNTS:
        model = average(trained, count)
        seen, found = predict(model, trained, trained.data.test), translate(model, trained)
        loss[str(count)], score[str(count)] = seen.nll.mean().item(), bleu(trained, found)
        measures[f"loss_{count}"], measures[f"bleu_{count}"] = loss[str(count)], score[str(count)]
        measures[f"loss_shares_{count}"] = seen.shares(seen.nll)
        measures[f"bleu_parts_{count}"] = bleu_parts(trained, found)
    return measures


def _judge_loss(more: int, fewer: int, results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(_BASE, f"loss_shares_{fewer}"), results.parts(_BASE, f"loss_shares_{more}")
    )
    text = Text(
        "test loss {0:.3f} of the last one, {1:.3f} of 5, {2:.3f} of 20 (nats per token); gain "
        "{3:.3f} [{4:.3f}, {5:.3f}]",
        "测试损失（nat/词元）：最后一个 {0:.3f}，平均 5 个 {1:.3f}，平均 20 个 {2:.3f}；"
        "降低 {3:.3f} [{4:.3f}, {5:.3f}]",
    )
    found = (results.mean(_BASE, f"loss_{count}") for count in _JUDGED)
    return decide(gain, numbers(text, *found, gain.mean, gain.low, gain.high))


def _judge_bleu(more: int, fewer: int, results: Results) -> Verdict:
    gain = bootstrap_difference(
        results.parts(_BASE, f"bleu_parts_{more}"), results.parts(_BASE, f"bleu_parts_{fewer}")
    )
    text = Text(
        "BLEU {0:.1f} of the last one, {1:.1f} of 5, {2:.1f} of 20; gain over parts of the test "
        "text {3:.2f} [{4:.2f}, {5:.2f}]",
        "BLEU：最后一个 {0:.1f}，平均 5 个 {1:.1f}，平均 20 个 {2:.1f}；"
        "按测试集分块计提高 {3:.2f} [{4:.2f}, {5:.2f}]",
    )
    found = [results.mean(_BASE, f"bleu_{count}") for count in _JUDGED]
    seen = numbers(text, *found, gain.mean, gain.low, gain.high)
    return if_learnt(max(found) >= LEAST_BLEU, decide(gain, seen))


EXPERIMENT = Experiment(
    name="averaging",
    number=20,
    version=2,
    title=Text("Averaging the last checkpoints", "平均最后若干个检查点"),
    question=Text(
        "What does the mean of the last checkpoints win over the last one, and of how many?",
        "对最后若干个检查点取平均，比只用最后一个好多少？取多少个合适？",
    ),
    settings=SMALL,
    steps=1600,
    quick_steps=800,
    checkpoint_every=_CHECKPOINT,
    variants=(Variant(_BASE, zh="基准"),),
    measures=(
        Measure(
            "loss_by_count", Text("test loss (nats per token)", "测试损失（nat/词元）"), _COUNT
        ),
        Measure("bleu_by_count", Text("BLEU, greedy", "BLEU（贪心解码）"), _COUNT),
        Measure("exact", Text("exactly right, the last one", "完全正确的比例（最后一个检查点）")),
    ),
    claims=(
        Claim(
            Text(
                "The mean of the last five has a lower loss than the last one.",
                "最后五个检查点的平均，损失低于最后一个。",
            ),
            Text(
                "Vaswani et al. 2017, section 6.1, averages 5 without saying what it wins",
                "Vaswani et al. 2017，6.1 节，取 5 个平均，未说明收益",
            ),
            Text("A lower test loss.", "测试损失更低。"),
            partial(_judge_loss, _FEW, _LAST),
        ),
        Claim(
            Text(
                "The mean of the last five translates better than the last one.",
                "最后五个检查点的平均，翻译优于最后一个。",
            ),
            Text("Vaswani et al. 2017, section 6.1", "Vaswani et al. 2017，6.1 节"),
            Text("A higher BLEU.", "BLEU 更高。"),
            partial(_judge_bleu, _FEW, _LAST),
        ),
        Claim(
            Text(
                "The mean of twenty has a lower loss than that of five.",
                "平均二十个的损失低于平均五个。",
            ),
            Text(
                "Vaswani et al. 2017, section 6.1, averages 20 for the big models",
                "Vaswani et al. 2017，6.1 节，大模型取 20 个平均",
            ),
            Text(
                f"A lower test loss. We doubt it: {_MANY} checkpoints of {_CHECKPOINT} steps are a "
                "good part of so short a run, and reach back to weights that knew less.",
                f"测试损失更低。我们存疑：{_MANY} 个间隔 {_CHECKPOINT} 步的检查点占了这次短训练的"
                "一大段，会把学得较少的早期权重也算进来。",
            ),
            partial(_judge_loss, _MANY, _FEW),
            expected=DOUBTED,
        ),
    ),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "While the rate is high the weights don't settle: they move about a valley from step to "
        "step. Their mean lies nearer to its middle, as if the rate had been lowered. The further "
        "back, the more the valley itself was elsewhere.",
        "学习率较高时，权重不会停下来，而是逐步在谷底附近来回移动。"
        "它们的平均更靠近谷底中央，相当于降低了学习率。"
        "但越往前的检查点，谷本身的位置就越不同。",
    ),
    formula="w = (w_T + w_(T-s) + ... + w_(T-(n-1)s)) / n",
    code=(average_weights, ModelFolder.average_last),
)
