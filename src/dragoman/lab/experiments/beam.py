"""Beam size and length penalty (section 6.1): one model, searched in many ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from dragoman.decoding.beam import done, finish, prune
from dragoman.decoding.penalties import length_penalty
from dragoman.decoding.translator import Translation
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
    holds,
    numbers,
)
from dragoman.lab.judging import LEAST_BLEU, decide, if_learnt
from dragoman.lab.scores import bleu, bleu_parts, translate
from dragoman.lab.statistics import bootstrap_difference
from dragoman.lab.trained import Trained

_BASE = "base"
_BEAMS = (1, 2, 4, 8, 16, 32, 64)
_PENALTIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
_BEAM, _PENALTY = 4, 0.6
"""The paper's."""
_WIDEST = _BEAMS[-1]
_FORMS = ("gnmt", "power")
_BATCH_TOKENS = 512
"""Source tokens searched for at once: the widest beam multiplies them by 64."""

Found = Sequence[Translation]


def count_shortened(by_penalty: Sequence[Found]) -> int:
    """Returns how often a sentence's output gets shorter from one penalty to the next."""
    return sum(
        len(after.tokens) < len(before.tokens)
        for lower, higher in pairwise(by_penalty)
        for before, after in zip(lower, higher, strict=True)
    )


def length_ratio(trained: Trained, found: Found) -> float:
    """Returns the tokens of some outputs for each token of the references."""
    return sum(len(each.tokens) for each in found) / sum(map(len, trained.ids[1]))


def empty_share(found: Found) -> float:
    """Returns the share of outputs without any text."""
    return sum(not each.text for each in found) / len(found)


def _mean_log_probability(found: Found) -> float:
    return sum(each.log_probability for each in found) / len(found)


def _lengths(found: Found) -> dict[str, float]:
    return {str(line): float(len(each.tokens)) for line, each in enumerate(found)}


def _measure(trained: Trained) -> dict[str, Measured]:
    bleu_of, ratio_of = partial(bleu, trained), partial(length_ratio, trained)
    search = partial(translate, trained.model, trained, batch_tokens=_BATCH_TOKENS)
    plain, paper = (
        {beam: search(beam_size=beam, length_penalty=penalty) for beam in _BEAMS}
        for penalty in (0.0, _PENALTY)
    )
    # In float64, so that rounding doesn't choose between two hypotheses.
    precise = partial(translate, trained.in_float64(), trained, beam_size=_BEAM)
    by_form = {
        form: {
            penalty: precise(length_penalty=penalty, length_penalty_form=form)
            for penalty in _PENALTIES
        }
        for form in _FORMS
    }
    measures: dict[str, Measured] = {
        "bleu_by_beam": _each(plain, bleu_of),
        "paper_bleu_by_beam": _each(paper, bleu_of),
        "ratio_by_beam": _each(plain, ratio_of),
        "paper_ratio_by_beam": _each(paper, ratio_of),
        "empty_by_beam": _each(plain, empty_share),
        "paper_empty_by_beam": _each(paper, empty_share),
        "log_probability_by_beam": _each(plain, _mean_log_probability),
        "shortened": float(sum(count_shortened([*found.values()]) for found in by_form.values())),
        "parts_greedy": bleu_parts(trained, plain[1]),
        "parts_paper": bleu_parts(trained, paper[_BEAM]),
        "parts_plain": bleu_parts(trained, plain[_BEAM]),
        "parts_widest": bleu_parts(trained, plain[_WIDEST]),
        "lengths_plain": _lengths(plain[_BEAM]),
        "lengths_widest": _lengths(plain[_WIDEST]),
    }
    for form, found in by_form.items():
        measures[f"bleu_by_{form}"] = _each(found, bleu_of)
        measures[f"ratio_by_{form}"] = _each(found, ratio_of)
        measures[f"empty_by_{form}"] = _each(found, empty_share)
    return measures


def _each(
    searches: Mapping[int, Found] | Mapping[float, Found], score: Callable[[Found], float]
) -> dict[str, float]:
    return {f"{x:g}": score(found) for x, found in searches.items()}


def _at(results: Results, measure: str, x: float) -> float:
    """Returns the mean over the seeds of one point of a series."""
    values = results.values_at(_BASE, measure, f"{x:g}")
    return sum(values) / len(values)


def _judge_bleu(higher: str, lower: str, results: Results) -> Verdict:
    gain = bootstrap_difference(results.parts(_BASE, higher), results.parts(_BASE, lower))
    text = Text(
        "BLEU: greedy {0:.1f}; beam 4 {1:.1f} without a penalty, {2:.1f} with 0.6; beam 64 "
        "{3:.1f} without, {4:.1f} with; difference over parts of the test text {5:.2f} "
        "[{6:.2f}, {7:.2f}]",
        "BLEU：贪心 {0:.1f}；束宽 4 无惩罚 {1:.1f}，惩罚 0.6 时 {2:.1f}；"
        "束宽 64 无惩罚 {3:.1f}，有惩罚 {4:.1f}；按测试集分块计相差 {5:.2f} [{6:.2f}, {7:.2f}]",
    )
    found = [
        _at(results, measure, beam)
        for measure, beam in (
            ("bleu_by_beam", 1),
            ("bleu_by_beam", _BEAM),
            ("paper_bleu_by_beam", _BEAM),
            ("bleu_by_beam", _WIDEST),
            ("paper_bleu_by_beam", _WIDEST),
        )
    ]
    seen = numbers(text, *found, gain.mean, gain.low, gain.high)
    return if_learnt(max(found) >= LEAST_BLEU, decide(gain, seen))


def _judge_shorter(results: Results) -> Verdict:
    lost = bootstrap_difference(
        results.parts(_BASE, "lengths_plain"), results.parts(_BASE, "lengths_widest")
    )
    text = Text(
        "length ratio {0:.3f} with beam 4, {1:.3f} with 64; {2:.1%} and {3:.1%} of the outputs "
        "are empty; {4:.3f} tokens per output are lost [{5:.3f}, {6:.3f}]",
        "长度比：束宽 4 时 {0:.3f}，64 时 {1:.3f}；空译文分别占 {2:.1%} 和 {3:.1%}；"
        "每条译文缩短 {4:.3f} 个词元 [{5:.3f}, {6:.3f}]",
    )
    found = [
        _at(results, measure, beam)
        for measure in ("ratio_by_beam", "empty_by_beam")
        for beam in (_BEAM, _WIDEST)
    ]
    return decide(lost, numbers(text, *found, lost.mean, lost.low, lost.high))


def _judge_longer(results: Results) -> Verdict:
    shortened = sum(results.values(_BASE, "shortened"))
    text = Text(
        "{0:.0f} outputs get shorter as the penalty grows; from 0 to 2 the length ratio goes from "
        "{1:.3f} to {2:.3f} (gnmt), {3:.3f} to {4:.3f} (power)",
        "惩罚增大时，有 {0:.0f} 条译文变短；惩罚从 0 到 2，长度比从 {1:.3f} 变为 {2:.3f}（gnmt），"
        "从 {3:.3f} 变为 {4:.3f}（power）",
    )
    ends = [
        _at(results, f"ratio_by_{form}", penalty)
        for form in _FORMS
        for penalty in (_PENALTIES[0], _PENALTIES[-1])
    ]
    return holds(shortened == 0, numbers(text, shortened, *ends))


_BY_BEAM = Text("beam size", "束宽")
_BY_PENALTY = Text("length penalty", "长度惩罚")

EXPERIMENT = Experiment(
    name="beam",
    number=19,
    version=4,
    title=Text("Beam size and length penalty", "束宽与长度惩罚"),
    question=Text(
        "How wide should a search be, and what does it do to the length?",
        "搜索应该多宽？它怎样影响译文长度？",
    ),
    settings=SMALL,
    steps=1200,
    quick_steps=800,
    variants=(Variant(_BASE, zh="基准"),),
    measures=(
        Measure("bleu_by_beam", Text("BLEU, no length penalty", "BLEU（无长度惩罚）"), _BY_BEAM),
        Measure(
            "paper_bleu_by_beam", Text("BLEU, length penalty 0.6", "BLEU（长度惩罚 0.6）"), _BY_BEAM
        ),
        Measure(
            "ratio_by_beam",
            Text("tokens per reference token, no penalty", "与参考译文的长度比（无惩罚）"),
            _BY_BEAM,
        ),
        Measure(
            "paper_ratio_by_beam",
            Text("tokens per reference token, penalty 0.6", "与参考译文的长度比（惩罚 0.6）"),
            _BY_BEAM,
        ),
        Measure(
            "empty_by_beam", Text("empty outputs, no penalty", "空译文的比例（无惩罚）"), _BY_BEAM
        ),
        Measure(
            "paper_empty_by_beam",
            Text("empty outputs, penalty 0.6", "空译文的比例（惩罚 0.6）"),
            _BY_BEAM,
        ),
        Measure(
            "log_probability_by_beam",
            Text("log-probability of an output, no penalty (nats)", "译文对数概率（无惩罚，nat）"),
            _BY_BEAM,
        ),
        Measure("bleu_by_gnmt", Text("BLEU, gnmt, beam 4", "BLEU（gnmt，束宽 4）"), _BY_PENALTY),
        Measure("bleu_by_power", Text("BLEU, power, beam 4", "BLEU（power，束宽 4）"), _BY_PENALTY),
        Measure(
            "ratio_by_gnmt",
            Text("tokens per reference token, gnmt, beam 4", "与参考译文的长度比（gnmt，束宽 4）"),
            _BY_PENALTY,
        ),
        Measure(
            "ratio_by_power",
            Text(
                "tokens per reference token, power, beam 4", "与参考译文的长度比（power，束宽 4）"
            ),
            _BY_PENALTY,
        ),
        Measure(
            "empty_by_gnmt",
            Text("empty outputs, gnmt, beam 4", "空译文的比例（gnmt，束宽 4）"),
            _BY_PENALTY,
        ),
        Measure(
            "empty_by_power",
            Text("empty outputs, power, beam 4", "空译文的比例（power，束宽 4）"),
            _BY_PENALTY,
        ),
        Measure("exact", Text("greedy, exactly right", "贪心解码完全正确的比例")),
    ),
    claims=(
        Claim(
            Text(
                "Beam 4 with length penalty 0.6 is better than greedy search.",
                "束宽 4、长度惩罚 0.6 优于贪心搜索。",
            ),
            Text(
                "Vaswani et al. 2017, section 6.1 (chosen on the development set)",
                "Vaswani et al. 2017，6.1 节（在开发集上选定）",
            ),
            Text(
                "A higher BLEU. Phrases leave little to choose, so that it may be within noise.",
                "BLEU 更高。但短语的选择余地很小，差别可能在噪声之内。",
            ),
            partial(_judge_bleu, "parts_paper", "parts_greedy"),
            expected=("confirmed", "within noise"),
        ),
        Claim(
            Text(
                "With the same beam, the length penalty of 0.6 is better than none.",
                "束宽相同时，长度惩罚 0.6 优于无惩罚。",
            ),
            Text("Wu et al. 2016, section 7", "Wu et al. 2016，7 节"),
            Text("A higher BLEU with it, at beam 4.", "束宽 4 时，有惩罚的 BLEU 更高。"),
            partial(_judge_bleu, "parts_paper", "parts_plain"),
        ),
        Claim(
            Text(
                "Without a length penalty, a very wide beam makes worse translations.",
                "没有长度惩罚时，过宽的束会使译文变差。",
            ),
            Text("Koehn and Knowles 2017, section 3.6", "Koehn and Knowles 2017，3.6 节"),
            Text(
                "A lower BLEU at beam 64 than at beam 4. We doubt it for phrases: what goes wrong "
                "with wide beams is said of long and uncertain sentences.",
                "束宽 64 的 BLEU 低于束宽 4。对短语我们存疑：宽束的问题多见于又长又不确定的句子。",
            ),
            partial(_judge_bleu, "parts_plain", "parts_widest"),
            expected=DOUBTED,
        ),
        Claim(
            Text(
                "Without a length penalty, a very wide beam makes shorter translations.",
                "没有长度惩罚时，过宽的束会使译文变短。",
            ),
            Text(
                "Murray and Chiang 2018; Stahlberg and Byrne 2019",
                "Murray and Chiang 2018；Stahlberg and Byrne 2019",
            ),
            Text(
                "Fewer tokens at beam 64 than at beam 4.",
                "束宽 64 的词元数少于束宽 4。",
            ),
            _judge_shorter,
        ),
        Claim(
            Text(
                "A higher length penalty makes no output shorter.",
                "提高长度惩罚不会使任何译文变短。",
            ),
            Text(
                "follows from the definition, for a search that prunes by log-probability alone",
                "由定义推出，前提是搜索只按对数概率剪枝",
            ),
            Text(
                "None gets shorter from one penalty to the next, in either form.",
                "从一个惩罚值到下一个，两种形式下都没有译文变短。",
            ),
            _judge_longer,
        ),
    ),
    data=partial(cldr_data, "de"),
    measure=_measure,
    why=Text(
        "A log-probability falls with every token, so that of two hypotheses the short one has a "
        "start. A narrow beam often never meets the short one; a wide beam does, and an output "
        "without text is the shortest. Dividing by a power of the length takes the start back. "
        "Here live hypotheses of one length compete by log-probability, and the penalty counts "
        "where they end: for every penalty the search meets the same hypotheses. If the longer of "
        "two wins with one penalty, then it wins with every higher one.",
        "每多一个词元，对数概率都会下降，所以两个假设中短的天然占优。"
        "窄束常常遇不到短的假设，宽束则会遇到，而空译文是最短的。"
        "除以长度的幂可以抵消这种优势。"
        "在本实现中，同长度的假设按对数概率竞争，惩罚只在结束时计入："
        "无论惩罚是多少，搜索遇到的假设都相同。"
        "如果较长者在某个惩罚下获胜，那么在更高的惩罚下也会获胜。",
    ),
    formula="score = log p / ((5 + L) / 6)^alpha (gnmt), log p / L^alpha (power)",
    code=(length_penalty, finish, prune, done),
)
