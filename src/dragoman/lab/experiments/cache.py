"""The cache of keys and values switched off: each token reads the whole text again."""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from dragoman.config import EOS, UNK, DecodingConfig, ModelConfig
from dragoman.decoding.beam import beam_search
from dragoman.decoding.greedy import greedy_search
from dragoman.decoding.stepper import ModelStepper, Stepper, log_softmax, pad_ids
from dragoman.kernels.timing import take_turns
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.experiment import (
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
from dragoman.lab.trained import Trained
from dragoman.model.cache import DecoderCache, LayerCache, SharedCache
from dragoman.model.seq2seq import Seq2Seq
from dragoman.model.transformer import Transformer

_BASE = "Transformer"
_POSITIONS = (16, 32, 64, 128, 192, 256)
_AROUND = 4
"""Tokens before a position and from it on that belong to its time."""
_SENTENCES, _SOURCE_LENGTH = 4, 5
"""A short source, so that the encoder, which runs each time without a cache, hardly matters."""
_ROUNDS = 9
_SEARCHES = {"greedy": greedy_search, "beam": beam_search}
_BEAM = 4


@dataclass
class WholeText:
    """All that is kept without a cache: the tokens."""

    sources: Int[Tensor, "rows source"]
    tokens: Int[Tensor, "rows length"]

    def select(self, rows: Int[Tensor, "kept_batch kept_width"]) -> None:
        """Keeps and reorders hypotheses, as `dragoman.model.seq2seq.Cache` has it."""
        self.sources, self.tokens = self.sources[rows.flatten()], self.tokens[rows.flatten()]


class UncachedStepper:
    """A model as a search sees it that reads the whole text for each token; a `Stepper`."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.start_token: int = model.start_token
        self.max_length: int | None = model.max_length
        self.device = model.output_weight.device

    def start(self, sources: Sequence[Sequence[int]]) -> WholeText:
        """Keeps the sources."""
        ids = pad_ids(sources, self.device)
        return WholeText(ids, ids[:, :0])

    @torch.inference_mode()
    def step(
        self, state: WholeText, tokens: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam vocab"]:
        """Runs the whole model and throws all but its last position away."""
        state.tokens = torch.cat([state.tokens, tokens.reshape(-1, 1)], dim=1)
        hidden = self.model.hidden(state.sources, state.tokens)[:, -1]
        return log_softmax(F.linear(hidden, self.model.output_weight)).view(*tokens.shape, -1)

    def select(self, state: WholeText, rows: Int[Tensor, "kept_batch kept_beam"]) -> None:
        """Reorders the texts."""
        state.select(rows)


def _model() -> Transformer:
    """Makes the model that is timed: what it has learnt doesn't matter."""
    torch.manual_seed(1)
    sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), SMALL["data"]["vocab_size"])
    return Transformer(ModelConfig(**SMALL["model"], **sizes)).eval()


@torch.inference_mode()
def token_seconds(stepper: Stepper[Any], state: Any, tokens: Int[Tensor, "batch some"]) -> float:
    """Returns how long a token takes, for all sentences, as the mean of some that come next."""
    own = copy.deepcopy(state)
    started = time.perf_counter()
    for column in tokens.split(1, dim=1):
        stepper.step(own, column)
    return (time.perf_counter() - started) / tokens.shape[1]


@torch.inference_mode()
def _measures() -> dict[str, Callable[[], float]]:
    """Prepares both ways at each position of the same text: what is timed is to go on from there.

    So all can be timed in turn, and no slow moment of the machine falls on one position alone.
    """
    model = _model()
    length = _POSITIONS[-1] + _AROUND
    text = torch.randint(EOS + 1, model.config.target_vocab_size, (_SENTENCES, length))
    sources = [[*[UNK] * (_SOURCE_LENGTH - 1), EOS]] * _SENTENCES
    cached, uncached = ModelStepper(model), UncachedStepper(model)
    whole, kept, read = uncached.start(sources), cached.start(sources), 0
    measures: dict[str, Callable[[], float]] = {}
    for position in _POSITIONS:
        first, last = position - _AROUND, position + _AROUND
        for column in text[:, read:first].split(1, dim=1):
            cached.step(kept, column)
        read = first
        so_far = WholeText(whole.sources, text[:, :first])
        for name, stepper, state in (
            ("cached", cached, copy.deepcopy(kept)),
            ("uncached", uncached, so_far),
        ):
            measures[f"{name} {position}"] = partial(
                token_seconds, stepper, state, text[:, first:last]
            )
    return measures


def _seconds() -> dict[str, Measured]:
    found: dict[str, dict[str, float]] = {"ms_cached": {}, "ms_uncached": {}}
    for key, taken in take_turns(_measures(), _ROUNDS).items():
        name, position = key.split()
        found[f"ms_{name}"][position] = 1000 * statistics.median(taken)
    return dict(found)


@torch.no_grad()
def operations(model: Transformer, length: int) -> tuple[list[int], list[int]]:
    """Counts multiplications and additions of the matrix products that each token takes.

    Returns:
        For each token of one sentence, with the cache and without.
    """
    source = torch.tensor([[*[UNK] * (_SOURCE_LENGTH - 1), EOS]])
    cache = model.start(source)
    cached, uncached = [], []
    for position in range(1, length + 1):
        with FlopCounterMode(display=False) as counter:
            model.step(torch.tensor([[UNK]]), cache)
        cached.append(counter.get_total_flops())
        with FlopCounterMode(display=False) as counter:
            hidden = model.hidden(source, torch.full((1, position), UNK))
            F.linear(hidden[:, -1], model.output_weight)
        uncached.append(counter.get_total_flops())
    return cached, uncached


def _observe() -> dict[str, Measured]:
    cached, uncached = operations(_model(), _POSITIONS[-1])
    counted: dict[str, Measured] = {
        f"operations_{name}": {str(n): float(of_tokens[n - 1]) for n in _POSITIONS}
        for name, of_tokens in (("cached", cached), ("uncached", uncached))
    }
    more = [after - before for before, after in itertools.pairwise(cached)]
    bounds: dict[str, Measured] = {
        "least_more": float(min(more)),
        "most_more": float(max(more)),
    }
    return {**counted, **bounds, **_seconds()}


def same_texts(trained: Trained, search: str) -> float:
    """Returns the share of test sentences that are translated the same with cache and without.

    In float64, so that rounding can't tip a choice.
    """
    model = trained.in_float64()
    config = DecodingConfig(beam_size=1 if search == "greedy" else _BEAM)
    sources = [[*ids, EOS] for ids in trained.ids[0]]
    steppers: list[Stepper[Any]] = [ModelStepper(model), UncachedStepper(model)]
    cached, uncached = (_SEARCHES[search](each, sources, config) for each in steppers)
    same = [a[0].tokens == b[0].tokens for a, b in zip(cached, uncached, strict=True)]
    return sum(same) / len(same)


def _measure(trained: Trained) -> dict[str, Measured]:
    return {f"same_{search}": same_texts(trained, search) for search in _SEARCHES}


def _judge_same(results: Results) -> Verdict:
    greedy, beam = (min(results.values(_BASE, f"same_{search}")) for search in _SEARCHES)
    text = Text(
        "the same: {0:.1%} of the texts by greedy search, {1:.1%} with a beam of 4",
        "相同的译文：贪心搜索 {0:.1%}，束宽 4 时 {1:.1%}",
    )
    return holds(greedy == beam == 1.0, numbers(text, greedy, beam))


def _ends(results: Results, name: str) -> tuple[float, float]:
    found = results.observed[name]
    assert isinstance(found, dict)
    first, last = _POSITIONS[0], _POSITIONS[-1]
    return found[str(first)], found[str(last)]


def _judge_times(results: Results) -> Verdict:
    (first, last), (first_without, last_without) = (
        _ends(results, f"ms_{name}") for name in ("cached", "uncached")
    )
    text = Text(
        "token 256 over token 16: {0:.1f} times the time without, {1:.2f} with the cache, which "
        "there is {2:.1f} times faster",
        "第 256 个词元与第 16 个的时间之比：无缓存 {0:.1f}，有缓存 {1:.2f}；"
        "在第 256 个词元处，有缓存快 {2:.1f} 倍",
    )
    seen = numbers(text, last_without / first_without, last / first, last_without / last)
    return holds(last_without >= 4 * first_without and last <= 1.5 * first, seen)


def _judge_quadratic(results: Results) -> Verdict:
    least, most = results.number("least_more"), results.number("most_more")
    first, last = _ends(results, "operations_cached")
    text = Text(
        "with the cache each token takes {0:,.0f} to {1:,.0f} operations more than the one before; "
        "token 256 takes {2:.2f} times those of token 16",
        "有缓存时，每个词元比前一个多 {0:,.0f} 至 {1:,.0f} 次运算；"
        "第 256 个词元的运算量是第 16 个的 {2:.2f} 倍",
    )
    return holds(0 < least == most, numbers(text, least, most, last / first))


_POSITION = Text("position of the token", "词元位置")
_CURVES = {"cached": Text("with the cache", "有缓存"), "uncached": Text("without", "无缓存")}

EXPERIMENT = Experiment(
    name="cache",
    number=18,
    version=2,
    title=Text("Keys and values cached, or not", "键值缓存的有无"),
    question=Text(
        "What does a generated token cost, and does the cache change the text?",
        "生成一个词元的代价是多少？缓存会改变译文吗？",
    ),
    settings=SMALL,
    steps=500,
    quick_steps=300,
    variants=(Variant(_BASE),),
    measures=(
        Measure("same_greedy", Text("same texts, greedy search", "贪心搜索译文相同的比例")),
        Measure("same_beam", Text("same texts, beam of 4", "束宽 4 时译文相同的比例")),
        Measure("exact", Text("translations exactly right", "译文完全正确的比例")),
    ),
    charts=(
        Chart(
            Text("time of a token, 4 sentences (ms)", "每个词元的时间，4 句（毫秒）"),
            _POSITION,
            {f"ms_{name}": label for name, label in _CURVES.items()},
        ),
        Chart(
            Text("operations of a token, one sentence", "每个词元的运算次数，1 句"),
            _POSITION,
            {f"operations_{name}": label for name, label in _CURVES.items()},
        ),
    ),
    claims=(
        Claim(
            Text(
                "The cache changes no text: keys and values of past tokens don't change.",
                "缓存不改变译文：已生成词元的键和值不再变化。",
            ),
            Text("follows from the causal mask; the essay, 6.4", "由因果掩码推出；原文 6.4"),
            Text(
                "All texts the same, by greedy search and with a beam of 4.",
                "贪心搜索和束宽 4 时，所有译文都相同。",
            ),
            _judge_same,
        ),
        Claim(
            Text(
                "With the cache a step costs only the new token; without it, all before it too.",
                "有缓存时，一步只需计算新词元；没有缓存时，还要重算之前的全部词元。",
            ),
            Text("the essay, 6.4", "原文 6.4"),
            Text(
                "Without it token 256 takes at least 4 times the time of token 16; with it at "
                "most 1.5 times.",
                "无缓存时，第 256 个词元的时间至少是第 16 个的 4 倍；有缓存时至多 1.5 倍。",
            ),
            _judge_times,
        ),
        Claim(
            Text(
                "Even with the cache the whole text is quadratic in its length.",
                "即使有缓存，整段文本的代价仍是长度的平方。",
            ),
            Text("the essay, 6.4", "原文 6.4"),
            Text(
                "So it is in operations: each token takes as many more as the one before did. At "
                "256 tokens it hardly shows in the time, where a step's fixed cost is most of it.",
                "运算次数确实如此：每个词元都比前一个多出同样多的运算。"
                "但在 256 个词元内几乎看不出来，时间主要是每步的固定开销。",
            ),
            _judge_quadratic,
        ),
    ),
    data=partial(task_data, "reverse", (3, 6)),
    measure=_measure,
    observe=_observe,
    why=Text(
        "Under the causal mask a token sees none behind it, so that what a layer makes of it stays "
        "the same when more come. Kept are its keys and values; the newest token's query looks at "
        "all of them: one row of scores, which is longer by one each time.",
        "在因果掩码下，词元看不到后面的词元，因此新词元到来时，各层对它的计算结果不变。"
        "保留下来的是键和值；最新词元的查询与它们逐一比较：只有一行得分，每步长出一个。",
    ),
    formula="sum_t (a + b t) = O(n^2) with the cache, sum_t (a t + b t^2) = O(n^3) without",
    code=(LayerCache.extend, DecoderCache.select, SharedCache, Transformer.step, UncachedStepper),
)
