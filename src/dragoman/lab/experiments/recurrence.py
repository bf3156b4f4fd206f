"""LSTMs in the place of attention: what the paper replaced (sections 1, 2 and 4)."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dragoman.checkpoint import ModelFolder
from dragoman.config import EOS, ModelConfig, TrainingConfig
from dragoman.kernels.timing import median_seconds
from dragoman.lab.base import SMALL
from dragoman.lab.data import LabData, Pairs, task_data
from dragoman.lab.experiment import (
    DOUBTED,
    WITHIN_NOISE,
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
from dragoman.lab.judging import holds_clearly, judge_gain
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained
from dragoman.model import hooks
from dragoman.model.architecture import build_model
from dragoman.model.loss import training_loss
from dragoman.model.recurrent import AdditiveAttention, RecurrentDecoder, RecurrentEncoder
from dragoman.model.seq2seq import Seq2Seq
from dragoman.training.distributed import Ranks
from dragoman.training.metrics import read_metrics
from dragoman.training.optimizer import build_optimizer
from dragoman.training.step import StepResult, TrainingLoss, training_step

_ATTENTIVE, _PLAIN, _TRANSFORMER = "LSTM with attention", "LSTM", "Transformer"
_UNCLIPPED = "no clipping"
_SHORTEST, _SHORT, _LONG, _LONGEST = 2, 5, 10, 12
"""Symbols of a string: the fewest, the most of a short one, the fewest of a long one, the most."""
_MARKS = {"copy": ">", "reverse": "<"}
"""The word before a source that says what its target is."""
_BACK = (1, 2, 4, 8, 16, 32)
"""How many steps back the gradient is looked at."""
_TARGETS, _STARTS = 16, 4
"""Targets and fresh models that it is averaged over."""

_LENGTHS = (16, 32, 64, 128, 256, 512)
_TOKENS, _WIDTH, _LAYERS, _VOCABULARY = 2048, 128, 2, 300
"""Tokens of a side of each timed batch, d_model, layers of a side, and entries."""
_ROUNDS = 3
_RIVALS: dict[str, dict[str, object]] = {
    "transformer": {},
    "recurrent": {"architecture": "recurrent", "cross_attention": False},
    "attentive": {"architecture": "recurrent"},
}
_MARGIN = 1.1
"""Times that differ by less say nothing."""


def marked_data() -> LabData:
    """Makes strings of two tasks that one model learns: the first word says which."""
    made = {
        mark: task_data(task, (_SHORTEST, _LONGEST), held_out=150)  # type: ignore[arg-type]
        for task, mark in _MARKS.items()
    }

    def join(part: str) -> Pairs:
        return [
            (f"{mark} {source}", target)
            for mark, data in made.items()
            for source, target in getattr(data, part)
        ]

    name = Text(
        f"strings of {_SHORTEST} to {_LONGEST} symbols behind a mark: copy them, or reverse them",
        f"长 {_SHORTEST} 到 {_LONGEST} 的字符串，前面的标记说明要复制还是反转",
    )
    return LabData(join("train"), join("test"), name=name)


def _of_task(pairs: Pairs, task: str) -> dict[int, list[tuple[str, str]]]:
    """Returns the pairs of a task by the number of their symbols."""
    found: dict[int, list[tuple[str, str]]] = {}
    for source, target in pairs:
        words = source.split()
        if words[:1] == [_MARKS[task]]:
            found.setdefault(len(words) - 1, []).append((source, target))
    return dict(sorted(found.items()))


def gradient_back(model: Seq2Seq) -> dict[int, float]:
    """Measures how much of the gradient reaches a target token n steps back.

    Returns:
        For each n the norm of the gradient that the loss at the last position sends to the
        embedding of the token n steps before the last one read, as a share of that for n = 1.
    """
    length = _BACK[-1] + 2
    generator = torch.Generator().manual_seed(1)
    sizes = model.config.source_vocab_size, model.config.target_vocab_size
    source, target = (
        torch.randint(EOS + 1, size, (_TARGETS, length), generator=generator) for size in sizes
    )
    embedded: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        x.retain_grad()
        embedded.append(x)
        return x

    twin = model.readable()
    with hooks.replace(twin, "target_embedding", keep):
        logits = twin(source, twin.decoder_input(target))
    torch.nn.functional.cross_entropy(logits[:, -1], target[:, -1]).backward()
    gradient = embedded[0].grad
    assert gradient is not None
    norms = gradient.norm(dim=2).mean(dim=0)
    return {steps: (norms[-1 - steps] / norms[-2]).item() for steps in _BACK}


def _mean_gradient_back(models: list[Seq2Seq]) -> dict[str, float]:
    found = [gradient_back(model) for model in models]
    return {str(steps): statistics.mean(each[steps] for each in found) for steps in _BACK}


def _norms(trained: Trained) -> dict[str, float]:
    """Returns the norm of the whole gradient, before clipping, at the steps that were logged."""
    events = read_metrics(ModelFolder(trained.folder).run / "metrics.jsonl")
    return {
        str(event["step"]): event["gradient_norm"]
        for event in events
        if event["event"] == "log" and event["gradient_norm"] is not None
    }


def _measure(trained: Trained) -> dict[str, Measured]:
    first = _mean_gradient_back(trained.starts(_STARTS))
    last = _mean_gradient_back([trained.model])
    norms = _norms(trained)
    found: dict[str, Measured] = {
        "first_back": first,
        "first_reach": first[str(_BACK[-1])],
        "back": last,
        "reach": last[str(_BACK[-1])],
        "norms": norms,
        "highest_norm": max(norms.values()),
    }
    marked = all(source[:1] in _MARKS.values() for source, _ in trained.data.test)
    for task in _MARKS if marked else ():  # nothing is a task in the user's own text
        by_length = _of_task(trained.data.test, task)
        found[task] = {str(n): trained.exact(pairs) for n, pairs in by_length.items()}
        for name, lengths in (("short", range(_SHORT + 1)), ("long", range(_LONG, _LONGEST + 1))):
            pairs = [pair for n in by_length if n in lengths for pair in by_length[n]]
            found[f"{name}_{task}"] = trained.exact(pairs)
    return found


def training_rates(lengths: tuple[int, ...] = _LENGTHS) -> dict[str, dict[str, float]]:
    """Measures target tokens a second in training steps on batches of equally long sentences."""
    training, ranks = TrainingConfig(), Ranks(torch.device("cpu"))
    sizes = {
        **dict.fromkeys(("source_vocab_size", "target_vocab_size"), _VOCABULARY),
        **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), _LAYERS),
        **{"d_model": _WIDTH, "d_ff": 2 * _WIDTH, "num_heads": 4},
    }

    def prepare(name: str) -> partial[StepResult]:
        torch.manual_seed(1)
        model = build_model(ModelConfig(**sizes, **_RIVALS[name])).train()  # type: ignore[arg-type]
        optimizer, loss = build_optimizer(model, training), TrainingLoss(model, 0.0)
        return partial(training_step, loss, optimizer, config=training, rate=1e-4, ranks=ranks)

    works: dict[str, Callable[[], object]] = {}
    for name in _RIVALS:
        step = prepare(name)
        for length in lengths:
            ids = torch.randint(EOS + 1, _VOCABULARY, (max(1, _TOKENS // length), length))
            ids[:, -1] = EOS
            work = partial(step, micro_batches=[(ids, ids)], precision="float32")
            work()  # what happens once a shape
            works[f"{name} {length}"] = work
    rates: dict[str, dict[str, float]] = {name: {} for name in _RIVALS}
    for key, taken in median_seconds(works, _ROUNDS).items():
        name, tokens = key.split()
        count = max(1, _TOKENS // int(tokens)) * int(tokens)
        rates[name][tokens] = count / taken
    return rates


def _observe() -> dict[str, Measured]:
    rates = {f"rate_{name}": rate for name, rate in training_rates().items()}
    return {**rates, "threads": float(torch.get_num_threads())}


def _curve(results: Results, name: str) -> dict[str, float]:
    found = results.observed[name]
    assert isinstance(found, dict)
    return found


def _judge_copy(results: Results) -> Verdict:
    if not results.has(_ATTENTIVE, "short_copy"):
        return _no_strings()
    short = results.mean(_ATTENTIVE, "short_copy")
    return holds(short >= 0.95, numbers(Text("{0:.1%} exactly right", "{0:.1%} 完全正确"), short))


def _judge_bottleneck(results: Results) -> Verdict:
    if not results.has(_PLAIN, "short_copy"):
        return _no_strings()
    gain = bootstrap_difference(results.items(_ATTENTIVE), results.items(_PLAIN))
    short, long = (results.mean(_PLAIN, f"{length}_copy") for length in ("short", "long"))
    text = Text(
        "without attention {0:.1%} of the short copies are exact and {1:.1%} of the long ones; "
        "attention is worth {2:.1%} [{3:.1%}, {4:.1%}] of all strings",
        "没有注意力时，短串复制的完全正确率为 {0:.1%}，长串为 {1:.1%}；"
        "注意力使全部字符串的正确率增加 {2:.1%} [{3:.1%}, {4:.1%}]",
    )
    seen = numbers(text, short, long, gain.mean, gain.low, gain.high)
    return holds_clearly(seen, gain, besides=long < short)


def _no_strings() -> Verdict:
    return Verdict("no result", Text("the text has no strings to copy", "文本中没有可复制的字符串"))


def _judge_wear(results: Results) -> Verdict:
    recurrent, transformer = (
        results.mean(name, "first_reach") for name in (_ATTENTIVE, _TRANSFORMER)
    )
    text = Text(
        "32 steps back, of what comes one step back: LSTM {0:.2g}, Transformer {1:.2g}",
        "回溯 32 步的梯度与回溯 1 步之比：LSTM 为 {0:.2g}，Transformer 为 {1:.2g}",
    )
    seen = numbers(text, recurrent, transformer)
    return holds(recurrent < 0.01 and transformer >= 0.1, seen)


def _judge_clipping(results: Results) -> Verdict:
    verdict = judge_gain(_ATTENTIVE, _UNCLIPPED, results)
    text = Text(
        "of the norms that were logged without it, the highest is {0:.2g}",
        "不裁剪时，有记录的各步中最大范数为 {0:.2g}",
    )
    high, worth = numbers(text, results.mean(_UNCLIPPED, "highest_norm")), verdict.seen
    return Verdict(verdict.outcome, Text(f"{worth.en}; {high.en}", f"{worth.zh}；{high.zh}"))


def _judge_rates(results: Results) -> Verdict:
    ours, theirs = _curve(results, "rate_transformer"), _curve(results, "rate_recurrent")
    ratios = [ours[length] / theirs[length] for length in ours]
    text = Text(
        "{0:.0f} threads: the Transformer's rate is {1:.2f} to {2:.2f} times the plain LSTM's",
        "{0:.0f} 个线程：Transformer 的速度是无注意力 LSTM 的 {1:.2f} 至 {2:.2f} 倍",
    )
    seen = numbers(text, results.number("threads"), min(ratios), max(ratios))
    if min(ratios) >= _MARGIN:
        return Verdict("confirmed", seen)
    return Verdict("not confirmed" if min(ratios) * _MARGIN <= 1 else "within noise", seen)


def _judge_constant(results: Results) -> Verdict:
    names = ("rate_recurrent", "rate_transformer", "rate_attentive")
    kept = [(each := list(_curve(results, name).values()))[-1] / each[0] for name in names]
    text = Text(
        "rate at 512 tokens over rate at 16: LSTM {0:.2f}, Transformer {1:.2f}, LSTM with "
        "attention {2:.2f}",
        "长 512 与长 16 的速度之比：LSTM {0:.2f}，Transformer {1:.2f}，带注意力的 LSTM {2:.2f}",
    )
    plain, _, attentive = kept
    return holds(plain >= 0.8 and attentive < 0.5, numbers(text, *kept))


_RATE = Text("target tokens a second in training", "训练速度（目标词元/秒）")
_STEPS_BACK = Text("steps back (tokens)", "回溯步数（词元）")
_SYMBOLS = Text("symbols of the string", "字符串的符号数")

EXPERIMENT = Experiment(
    name="recurrence",
    number=16,
    version=3,
    title=Text("LSTMs in the place of attention", "用 LSTM 代替注意力"),
    question=Text(
        "What do LSTMs, with attention and without, do worse than the Transformer - or better?",
        "无论有没有注意力，LSTM 在哪些方面不如 Transformer，又在哪些方面更好？",
    ),
    settings={**SMALL, "model": {**SMALL["model"], "architecture": "recurrent"}},
    steps=1200,
    quick_steps=800,
    variants=(
        Variant(_ATTENTIVE, zh="带注意力的 LSTM"),
        Variant(_PLAIN, Change("model.cross_attention", False)),
        Variant(_TRANSFORMER, Change("model.architecture", "transformer")),
        Variant(_UNCLIPPED, Change("training.clip_norm", 0.0), zh="不裁剪梯度"),
    ),
    measures=(
        Measure("copy", Text("copies exactly right", "复制完全正确的比例"), _SYMBOLS),
        Measure("reverse", Text("reversals exactly right", "反转完全正确的比例"), _SYMBOLS),
        Measure(
            "first_back",
            Text("gradient at the start, of that one step back", "初始梯度（与回溯 1 步之比）"),
            _STEPS_BACK,
        ),
        Measure(
            "back",
            Text("gradient when trained, of that one step back", "训练后梯度（与回溯 1 步之比）"),
            _STEPS_BACK,
        ),
        Measure(
            "norms",
            Text("norm of the whole gradient before clipping", "裁剪前的总梯度范数"),
            Text("step", "步"),
        ),
        Measure("short_copy", Text("short copies exactly right", "短串复制完全正确的比例")),
        Measure("long_copy", Text("long copies exactly right", "长串复制完全正确的比例")),
        Measure("short_reverse", Text("short reversals exactly right", "短串反转完全正确的比例")),
        Measure("long_reverse", Text("long reversals exactly right", "长串反转完全正确的比例")),
        Measure(
            "highest_norm",
            Text("highest norm at a logged step, before clipping", "记录步中裁剪前的最大梯度范数"),
        ),
        Measure("exact", Text("strings exactly right", "字符串完全正确的比例")),
    ),
    charts=(
        Chart(
            _RATE,
            Text("tokens of a sentence", "句子的词元数"),
            {
                "rate_transformer": Text("Transformer", "Transformer"),
                "rate_recurrent": Text("LSTM", "LSTM"),
                "rate_attentive": Text("LSTM with attention", "带注意力的 LSTM"),
            },
        ),
    ),
    claims=(
        Claim(
            Text(
                "An LSTM with additive attention learns to copy short strings.",
                "带加性注意力的 LSTM 能学会复制短字符串。",
            ),
            Text("Bahdanau et al. 2015; the essay, 1.2", "Bahdanau et al. 2015；原文 1.2"),
            Text(
                "At least 95 % of the copies of up to 5 symbols are exact.",
                "不超过 5 个符号时，至少 95% 的复制完全正确。",
            ),
            _judge_copy,
        ),
        Claim(
            Text(
                "Without attention the whole sentence has to pass through one vector, and long "
                "ones suffer.",
                "没有注意力时，整句话要挤进一个向量，句子越长损失越大。",
            ),
            Text(
                "Bahdanau et al. 2015, section 1; the essay, 1.2",
                "Bahdanau et al. 2015，1 节；原文 1.2",
            ),
            Text(
                "Fewer strings exact than with attention, and fewer long copies than short ones.",
                "完全正确的字符串比有注意力时少，长串复制的正确率低于短串。",
            ),
            _judge_bottleneck,
        ),
        Claim(
            Text(
                "What an LSTM learns from wears off step by step; attention reaches any token.",
                "LSTM 的梯度逐步衰减；注意力可以直接到达任何词元。",
            ),
            Text(
                "Vaswani et al. 2017, section 4; the essay, 1.1",
                "Vaswani et al. 2017，4 节；原文 1.1",
            ),
            Text(
                "Before training, 32 steps back less than 1 % of the gradient one step back is "
                "left in the LSTM, and at least 10 % in the Transformer.",
                "训练前回溯 32 步时，LSTM 剩下的梯度不到回溯 1 步时的 1%，Transformer 至少有 10%。",
            ),
            _judge_wear,
        ),
        Claim(
            Text("The Transformer learns better.", "Transformer 学得更好。"),
            Text("the essay, 1.3 (faster and better at the same time)", "原文 1.3（又快又好）"),
            Text(
                "Within noise after as many steps: on short strings attention is enough.",
                "同样步数后在噪声范围内：对短字符串，有注意力就够了。",
            ),
            partial(judge_gain, _TRANSFORMER, _ATTENTIVE),
            expected=WITHIN_NOISE,
        ),
        Claim(
            Text("A recurrent model needs gradient clipping.", "循环模型需要梯度裁剪。"),
            Text("the essay, 1.1; Pascanu et al. 2013", "原文 1.1；Pascanu et al. 2013"),
            Text(
                "Within noise: gates, Adam and short strings leave little to clip.",
                "在噪声范围内：有门控和 Adam，字符串又短，没有多少需要裁剪。",
            ),
            _judge_clipping,
            expected=WITHIN_NOISE,
        ),
        Claim(
            Text(
                "The Transformer trains faster than recurrence.",
                "Transformer 的训练比循环网络快。",
            ),
            Text(
                "Vaswani et al. 2017, section 4; the essay, 1.3",
                "Vaswani et al. 2017，4 节；原文 1.3",
            ),
            Text(
                "Not on a CPU's few cores: we have measured before that on one the plain LSTM is "
                "ahead at every length. The claim is about sequential operations, which cost "
                "nothing extra where nothing runs in parallel.",
                "在 CPU 的少数核心上不成立：我们此前测得，单核上无注意力的 LSTM 在任何长度都更快。"
                "该论断针对的是串行操作数，而在没有并行的地方，串行并无额外代价。",
            ),
            _judge_rates,
            expected=DOUBTED,
        ),
        Claim(
            Text(
                "A token of recurrence costs the same at any length; one of attention costs more.",
                "循环网络每个词元的代价与长度无关；注意力的代价随长度增长。",
            ),
            Text(
                "Vaswani et al. 2017, table 1; Bahdanau et al. 2015",
                "Vaswani et al. 2017，表 1；Bahdanau et al. 2015",
            ),
            Text(
                "From 16 to 512 tokens the plain LSTM keeps 80 % of its rate or more; with "
                "additive attention less than half is left.",
                "从 16 到 512 个词元，无注意力的 LSTM 至少保持 80% 的速度；"
                "加上加性注意力后不到一半。",
            ),
            _judge_constant,
        ),
    ),
    data=marked_data,
    measure=_measure,
    observe=_observe,
    why=Text(
        "A state has to be known before the next one: n steps one after the other, each a small "
        "product. One after the other costs time only where several could be had at once. On the "
        "way back each step multiplies by the same kind of matrix, so that what arrives shrinks "
        "or grows geometrically; a forget gate near 1 slows that down. Additive attention takes a "
        "tanh of d numbers for each pair of tokens, dot products one multiplication.",
        "必须先得到一个状态，才能算下一个：n 步依次进行，每步只是一个小矩阵乘法。"
        "只有在能够并行的机器上，串行才会浪费时间。反向传播时每一步都乘以同类矩阵，"
        "梯度因此按几何级数缩小或增大；接近 1 的遗忘门能减缓衰减。"
        "加性注意力对每对词元计算 d 个 tanh，点积只需乘加。",
    ),
    formula="dL/dh_t = dL/dh_(t+n) prod_k dh_(k+1)/dh_k;  sequential operations: O(n) against O(1)",
    code=(RecurrentEncoder, RecurrentDecoder, AdditiveAttention, training_loss),
)
