"""The report: one HTML file that needs no network, in English and in Simplified Chinese.

Its style and its script stand beside this file, as report.css and report.js. No torch needed.
"""

from __future__ import annotations

import html
import inspect
import math
import textwrap
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from dragoman.lab.chart import bilingual, draw
from dragoman.lab.experiment import (
    Claim,
    Experiment,
    Measure,
    Outcome,
    Results,
    Text,
    Variant,
    Verdict,
)
from dragoman.lab.picture import pictures_of
from dragoman.lab.statistics import Band

Found = Mapping[str, tuple[Experiment, Results]]

_OUTCOMES: dict[Outcome, tuple[str, Text]] = {
    "confirmed": ("✓", Text("confirmed", "已证实")),
    "not confirmed": ("✗", Text("not confirmed", "未证实")),
    "within noise": ("~", Text("within noise", "在噪声范围内")),
    "no result": ("–", Text("no result", "无结果")),
}
_ABOUT = (
    Text(
        "Each experiment takes one design choice away or changes it. All variants of an experiment "
        "have the same seeds, data order and steps. Predictions were written before the runs that "
        "are shown here, most of them after a short pilot with one seed; rules that are part of "
        'the experiments made the verdicts of the numbers. "The essay" is the Chinese article '
        "that Dragoman follows.",
        "每个实验去掉或改变一项设计选择。同一实验的各个变体，种子、数据顺序和步数都相同。"
        "预测写于此处所示的运行之前，其中多数写于单种子的简短试跑之后；"
        "结论由实验自带的规则根据数字得出。“原文”指 Dragoman 所依据的中文文章。",
    ),
    Text(
        "A claim is confirmed or not by its rule; within noise, if a difference can't be told from "
        "chance; without result, if a run broke off, the text can't answer or too little is learnt "
        "to compare. [a, b] is an interval that holds a difference in 95 of 100 cases: of so many "
        "claims a few will come out by chance. Bands and a - b reach from the lowest to the "
        "highest seed; heat maps show the first seed.",
        "按规则，论断被证实或未被证实；差异无法与偶然区分时，为“在噪声范围内”；"
        "训练中断、文本无法回答或学到的太少而无法比较时，为“无结果”。"
        "[a, b] 是 100 次中有 95 次包含真值的区间：论断这么多，总有几个出于偶然。"
        "色带和“a - b”从最低的种子到最高的种子；热图为第一个种子。",
    ),
)
_TITLE = Text("Dragoman's laboratory", "Dragoman 实验室")
_OVERVIEW = "overview"


def write_report(found: Found) -> str:
    """Returns the page of all experiments that were run, by name; at least one."""
    pages = [_overview(found)]
    names = list(found)
    for number, (experiment, results) in enumerate(found.values()):
        turn = _turn(names[:number][-1:], names[number + 1 :][:1])
        pages.append(
            f'<section id="{experiment.name}">{_page(experiment, results)}{turn}</section>'
        )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">",
            f'<title>{_TITLE.en}</title><link rel="icon" href="data:,">',
            f"<style>{_read('report.css')}</style></head><body>",
            f"<header><h1>{bilingual(_TITLE)}</h1>",
            f'<button type="button">{bilingual(Text("中文", "English"))}</button></header>',
            f'<div class="columns">{_navigation(found)}<main>',
            *pages,
            '</main></div><div id="said" role="status" hidden></div>',
            f"<script>{_read('report.js')}</script></body></html>\n",
        ]
    )


def _read(name: str) -> str:
    return files("dragoman.lab").joinpath(name).read_text("utf-8")


def _row(cells: list[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _table(rows: list[str]) -> str:
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _heading(en: str, zh: str) -> str:
    return f"<h3>{bilingual(Text(en, zh))}</h3>"


def _mark(outcome: Outcome, *, word: bool = True) -> str:
    """Returns an outcome's sign in its colour, with its word or without."""
    sign, text = _OUTCOMES[outcome]
    said = f"{sign} {bilingual(text)}" if word else sign
    return f'<b class="{outcome.replace(" ", "-")}">{said}</b>'


def _navigation(found: Found) -> str:
    links = [f'<a href="#{_OVERVIEW}">{bilingual(Text("Overview", "总览"))}</a>']
    for name, (experiment, results) in found.items():
        marks = [
            _mark(experiment.judge(claim, results).outcome, word=False)
            for claim in experiment.claims
        ]
        links.append(
            f'<a href="#{name}"><span class="number">{experiment.number}</span>'
            f'<span>{html.escape(name)}</span><span class="marks">{" ".join(marks)}</span></a>'
        )
    items = "".join(f"<li>{link}</li>" for link in links)
    summary = bilingual(Text("Experiments", "实验"))
    return f"<nav><details open><summary>{summary}</summary><ul>{items}</ul></details></nav>"


def _overview(found: Found) -> str:
    rows, tally, foretold = [], Counter[Outcome](), Counter[bool | None]()
    for name, (experiment, results) in found.items():
        link = f'<a href="#{name}">{experiment.number} {bilingual(experiment.title)}</a>'
        rows.append(f'<tr class="group"><th colspan="2">{link}</th></tr>')
        for claim in experiment.claims:
            verdict = experiment.judge(claim, results)
            tally[verdict.outcome] += 1
            foretold[claim.foretold(verdict)] += 1
            rows.append(_row([bilingual(claim.statement), _said(claim, verdict)]))
    counts = [f"{_mark(outcome)} {tally[outcome]}" for outcome in _OUTCOMES]
    right, judged = foretold[True], foretold[True] + foretold[False]
    as_predicted = Text(
        f"{right} of {judged} verdicts as predicted", f"{judged} 个结论中 {right} 个与预测一致"
    )
    counts.append(bilingual(as_predicted))
    return "\n".join(
        [
            f'<section id="{_OVERVIEW}">',
            f"<h2>{bilingual(Text('Claims and verdicts', '论断与结论'))}</h2>",
            *(f"<p>{bilingual(each)}</p>" for each in _ABOUT),
            f"<p>{' · '.join(counts)}</p>",
            _table(rows),
            "</section>",
        ]
    )


def _page(experiment: Experiment, results: Results) -> str:
    pictures = pictures_of(experiment, results)
    return "\n".join(
        [
            f"<h2>{experiment.number} {bilingual(experiment.title)}</h2>",
            f"<p>{bilingual(experiment.question)}</p>",
            *(_claim(claim, experiment.judge(claim, results)) for claim in experiment.claims),
            *(_training(experiment, results) if experiment.variants else []),
            *([_heading("What was seen", "所见")] if pictures else []),
            f'<div class="pictures">{"".join(map(draw, pictures))}</div>',
            _observed(results),
            _heading("Why", "为什么"),
            f"<p>{bilingual(experiment.why)}</p><pre>{html.escape(experiment.formula)}</pre>",
            _heading("The code", "代码"),
            *(_code(each) for each in experiment.code),
        ]
    )


def _claim(claim: Claim, verdict: Verdict) -> str:
    lines = [
        (Text("source", "出处"), bilingual(claim.source)),
        (Text("predicted", "预测"), bilingual(claim.prediction)),
        (Text("seen", "结果"), bilingual(verdict.seen)),
        (Text("verdict", "结论"), _said(claim, verdict)),
    ]
    items = "".join(f"<dt>{bilingual(name)}</dt><dd>{said}</dd>" for name, said in lines)
    return f'<div class="claim"><p><b>{bilingual(claim.statement)}</b></p><dl>{items}</dl></div>'


def _said(claim: Claim, verdict: Verdict) -> str:
    """Returns an outcome with its word, and whether it was predicted."""
    compared = bilingual(claim.compare(verdict))
    return f'{_mark(verdict.outcome)} <span class="foretold">{compared}</span>'


def _training(experiment: Experiment, results: Results) -> list[str]:
    return [
        _heading("Variants", "变体"),
        f"<p>{bilingual(_extent(results))}</p>",
        _variants(experiment, results),
        *_broken(experiment, results),
    ]


def _extent(results: Results) -> Text:
    seeds = len({trial.seed for trial in results.trials})
    steps = max((trial.curve[-1][0] for trial in results.trials if trial.curve), default=0)
    said = [Text(f"Seeds: {seeds}, {steps:,} steps each.", f"种子数：{seeds}，每次 {steps:,} 步。")]
    if seeds == 1:
        said += [Text("One seed: intervals hold for it alone.", "只有一个种子：区间仅对它成立。")]
    if (corpus := results.corpus) is not None:
        en = f"{corpus.train:,} pairs to learn from, {corpus.test:,} to test with"
        zh = f"{corpus.train:,} 对用于训练，{corpus.test:,} 对用于测试"
        said += [Text(f"Text: {corpus.name.en}; {en}.", f"文本：{corpus.name.zh}；{zh}。")]
    return Text(" ".join(each.en for each in said), "".join(each.zh for each in said))


def _variants(experiment: Experiment, results: Results) -> str:
    single = [measure for measure in experiment.measures if measure.x is None]
    known = [m for m in single if any(m.name in each.published for each in experiment.variants)]
    heads = [Text("variant", "变体"), Text("what it changes", "改动"), *(m.label for m in single)]
    heads += [Text(f"{m.label.en}, published", f"{m.label.zh}（公布值）") for m in known]
    rows = [_row([bilingual(head) for head in heads], "th")]
    for variant in experiment.variants:
        values = [_number(results, variant.name, measure) for measure in single]
        values += [f"{variant.published.get(measure.name, math.nan):g}" for measure in known]
        rows.append(_row([bilingual(variant.label), _change(experiment, variant), *values]))
    return _table(rows)


def _change(experiment: Experiment, variant: Variant) -> str:
    change = f"<code>{html.escape(experiment.difference(variant))}</code>"
    if variant.change is None:
        base = bilingual(Text("the base, beside the paper's", "基准，与论文的不同之处"))
        return f"<details><summary>{base}</summary>{change}</details>"
    if not variant.of:
        return change
    of = experiment.variant(variant.of).label
    return f"{change}<br>{bilingual(Text(f'from {of.en}', f'基于“{of.zh}”'))}"


def _number(results: Results, variant: str, measure: Measure) -> str:
    trials = [trial for trial in results.of(variant) if measure.name in trial.measures]
    if not trials:
        return "-"
    band = Band.of([float(trial.measures[measure.name]) for trial in trials])  # type: ignore[arg-type]
    spread = f"<br>{band.low:.3g} - {band.high:.3g}" if len(trials) > 1 else ""
    return f"{band.mean:.3g}{spread}"


def _broken(experiment: Experiment, results: Results) -> list[str]:
    """Lists the trials that broke off."""
    heads = [Text("variant", "变体"), Text("seed", "种子"), Text("why", "原因")]
    rows = [
        _row([bilingual(variant.label), str(trial.seed), html.escape(trial.failed)])
        for variant in experiment.variants
        for trial in results.of(variant.name)
        if trial.failed
    ]
    if not rows:
        return []
    head = _row([bilingual(head) for head in heads], "th")
    return [_heading("Broke off", "中断"), _table([head, *rows])]


def _observed(results: Results) -> str:
    """Lists single numbers that needed no training; claims tell the chief ones."""
    rows = [
        _row([f"<code>{html.escape(name)}</code>", f"{value:.6g}"])
        for name, value in results.observed.items()
        if isinstance(value, float)
    ]
    if not rows:
        return ""
    summary = bilingual(Text("All numbers found without training", "不经训练得到的全部数字"))
    return f"<details><summary>{summary}</summary>{_table(rows)}</details>"


def _code(thing: Any) -> str:
    """Shows the source as it is now, so that it can't go stale."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    source = textwrap.dedent(inspect.getsource(thing))
    return f"<p><code>{html.escape(name)}</code></p><pre>{html.escape(source)}</pre>"


def _turn(before: list[str], after: list[str]) -> str:
    back = [f'<a href="#{name}">← {html.escape(name)}</a>' for name in before]
    on = [f'<a href="#{name}">{html.escape(name)} →</a>' for name in after]
    return f'<p class="turn"><span>{"".join(back)}</span>{"".join(on)}</p>'
