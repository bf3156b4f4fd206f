"""The report: one HTML file that needs no network, in English and in Simplified Chinese."""

from __future__ import annotations

import html
import inspect
import math
import textwrap
from collections.abc import Mapping
from typing import Any

from dragoman.lab.chart import Points, bilingual, draw_curves
from dragoman.lab.experiment import Claim, Experiment, Measure, Results, Text
from dragoman.lab.statistics import Band, curve_band

_OUTCOMES = {
    "confirmed": Text("confirmed", "已证实"),
    "not confirmed": Text("not confirmed", "未证实"),
    "within noise": Text("within noise", "在噪声范围内"),
    "no result": Text("no result", "无结果"),
}
_STEPS, _NLL = Text("step", "步"), Text("training loss (nats per token)", "训练损失（nat/词元）")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
  color: #1a1a1a; background: #fff }
:root:lang(en) [lang=zh-Hans], :root:lang(zh-Hans) [lang=en] { display: none }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem;
  border-bottom: 1px solid #ccc }
.wide { overflow-x: auto }
svg { width: 100%; max-width: 40rem; font-size: 12px }
.grid { stroke: #ddd }
pre { background: #f4f4f4; padding: 0.8rem; overflow-x: auto; font-size: 0.8rem }
.confirmed { color: #00664a } .not-confirmed { color: #a33b00 } .within-noise, .no-result
{ color: #555 }
p code { overflow-wrap: anywhere }
button { float: right; font: inherit; padding: 0.3rem 0.8rem }
"""
_SCRIPT = """
const page = document.documentElement;
document.querySelector("button").addEventListener("click", () => {
  page.lang = page.lang === "en" ? "zh-Hans" : "en";
});
if (navigator.language.startsWith("zh")) page.lang = "zh-Hans";
"""


def write_report(found: Mapping[str, tuple[Experiment, Results]]) -> str:
    """Returns the page of all experiments that were run, by name; at least one."""
    title = Text("Dragoman's laboratory", "Dragoman 实验室")
    sections = [_section(experiment, results) for experiment, results in found.values()]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title.en}</title><style>{_STYLE}</style></head><body>",
            f'<button type="button">{bilingual(Text("中文", "English"))}</button>',
            f"<h1>{bilingual(title)}</h1>",
            _overview(found),
            *sections,
            f"<script>{_SCRIPT}</script></body></html>\n",
        ]
    )


def _row(cells: list[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _table(rows: list[str]) -> str:
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _overview(found: Mapping[str, tuple[Experiment, Results]]) -> str:
    heads = [Text("experiment", "实验"), Text("claim", "论断"), Text("verdict", "结论")]
    rows = [_row([bilingual(head) for head in heads], "th")]
    for name, (experiment, results) in found.items():
        link = f'<a href="#{name}">{experiment.number} {html.escape(name)}</a>'
        for claim in experiment.claims:
            rows.append(_row([link, bilingual(claim.statement), _mark(experiment, claim, results)]))
    return _table(rows)


def _mark(experiment: Experiment, claim: Claim, results: Results) -> str:
    outcome = experiment.judge(claim, results).outcome
    return f'<b class="{outcome.replace(" ", "-")}">{bilingual(_OUTCOMES[outcome])}</b>'


def _section(experiment: Experiment, results: Results) -> str:
    charts = [_NLL, *(measure.label for measure in experiment.measures if measure.x)]
    drawn = [_curves(experiment, results), *_series(experiment, results)]
    return "\n".join(
        [
            f'<section id="{experiment.name}">',
            f"<h2>{experiment.number} {bilingual(experiment.title)}</h2>",
            f"<p>{bilingual(experiment.question)}</p>",
            f"<p>{bilingual(_extent(results))}</p>",
            _claims(experiment, results),
            f"<h3>{bilingual(Text('Variants', '变体'))}</h3>",
            _variants(experiment, results),
            *(
                f"<h3>{bilingual(label)}</h3>{picture}"
                for label, picture in zip(charts, drawn, strict=True)
            ),
            f"<h3>{bilingual(Text('Why', '为什么'))}</h3>",
            f"<p>{bilingual(experiment.why)}</p><pre>{html.escape(experiment.formula)}</pre>",
            f"<h3>{bilingual(Text('The code', '代码'))}</h3>",
            *(_code(each) for each in experiment.code),
            "</section>",
        ]
    )


def _extent(results: Results) -> Text:
    seeds = len({trial.seed for trial in results.trials})
    steps = max((trial.curve[-1][0] for trial in results.trials if trial.curve), default=0)
    alone = Text(" One seed: intervals hold for it alone.", "只有一个种子：区间仅对它成立。")
    return Text(
        f"Seeds: {seeds}, {steps:,} steps each.{alone.en if seeds == 1 else ''}",
        f"种子数：{seeds}，每次 {steps:,} 步。{alone.zh if seeds == 1 else ''}",
    )


def _claims(experiment: Experiment, results: Results) -> str:
    parts = []
    for claim in experiment.claims:
        seen = experiment.judge(claim, results).seen
        heads = Text("Predicted: ", "预测："), Text("Seen: ", "结果：")
        lines = [
            f"<b>{bilingual(claim.statement)}</b> ({html.escape(claim.source)})",
            f"{bilingual(heads[0])}{bilingual(claim.prediction)}",
            f"{bilingual(heads[1])}{bilingual(seen)} {_mark(experiment, claim, results)}",
        ]
        parts.append(f"<p>{'<br>'.join(lines)}</p>")
    return "".join(parts)


def _variants(experiment: Experiment, results: Results) -> str:
    single = [measure for measure in experiment.measures if measure.x is None]
    heads = [Text("variant", "变体"), Text("what it changes", "改动"), *(m.label for m in single)]
    rows = [_row([bilingual(head) for head in heads], "th")]
    for variant in experiment.variants:
        change = html.escape(experiment.difference(variant)) or bilingual(Text("the base", "基准"))
        if variant.of:
            origin = Text(f"from {variant.of}", f"基于 {variant.of}")
            change += f"<br>{bilingual(origin)}"
        values = [_number(results, variant.name, measure) for measure in single]
        rows.append(_row([html.escape(variant.name), f"<code>{change}</code>", *values]))
    return _table(rows)


def _number(results: Results, variant: str, measure: Measure) -> str:
    trials = [trial for trial in results.of(variant) if measure.name in trial.measures]
    if not trials:
        return "-"
    band = Band.of([float(trial.measures[measure.name]) for trial in trials])  # type: ignore[arg-type]
    spread = f"<br>{band.low:.3g} - {band.high:.3g}" if len(trials) > 1 else ""
    return f"{band.mean:.3g}{spread}"


def _curves(experiment: Experiment, results: Results) -> str:
    series: dict[str, Points] = {}
    for variant in experiment.variants:
        finite = [
            [(step, value) for step, value in trial.curve if math.isfinite(value)]
            for trial in results.of(variant.name)
        ]
        series[variant.name] = [(float(step), band) for step, band in curve_band(finite)]
    return draw_curves(series, _STEPS, _NLL)


def _series(experiment: Experiment, results: Results) -> list[str]:
    """Draws the measures that depend on something."""
    pictures = []
    for measure in experiment.measures:
        if measure.x is None:
            continue
        series: dict[str, Points] = {}
        for variant in experiment.variants:
            curves = [
                [(int(x), float(y)) for x, y in found.items()]
                for trial in results.of(variant.name)
                if isinstance(found := trial.measures.get(measure.name), dict)
            ]
            series[variant.name] = [(float(x), band) for x, band in curve_band(curves)]
        pictures.append(draw_curves(series, measure.x, measure.label))
    return pictures


def _code(thing: Any) -> str:
    """Shows the source as it is now, so that it can't go stale."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    source = textwrap.dedent(inspect.getsource(thing))
    return f"<p><code>{html.escape(name)}</code></p><pre>{html.escape(source)}</pre>"
