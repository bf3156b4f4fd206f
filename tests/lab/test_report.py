from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from html.parser import HTMLParser

import pytest

from dragoman.lab.chart import bilingual
from dragoman.lab.experiment import (
    Chart,
    Corpus,
    Experiment,
    Measure,
    Outcome,
    Results,
    Text,
    Trial,
    Verdict,
)
from dragoman.lab.experiments import EXPERIMENTS
from dragoman.lab.report import write_report
from dragoman.lab.statistics import Band
from dragoman.lab.summary import summarize

_VOID = ("meta", "br", "link")


class Balance(HTMLParser):
    """Finds out whether every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def results_of(experiment: Experiment) -> Results:
    """Returns numbers as three seeds would have found them."""
    trials = [
        Trial(
            variant.name,
            seed,
            [(1, 3.0), (2, 1.0 + seed)],
            {"half": 0.5, "line": {"2": 0.25}, "grid": [[0.0, 0.125 * seed], [0.25, -0.5]]},
        )
        for variant in experiment.variants
        for seed in (1, 2, 3)
    ]
    corpus = Corpus(Text("toys", "玩具"), 7, 5)
    return Results({"two": 2.0, "time": {"1": 0.5, "2": 2.5}, "unseen": 0.1875}, trials, corpus)


@pytest.fixture
def charted(toy: Experiment) -> Experiment:
    """The toy with a grid and a chart, too."""
    grid = Measure("grid", Text("grid", "格"), Text("key", "键"), Text("query", "查询"))
    chart = Chart(Text("time (s)", "时间（s）"), Text("n", "数"), {"time": Text("ours", "本工具")})
    return dataclasses.replace(toy, measures=(*toy.measures, grid), charts=(chart,))


@pytest.fixture
def page(charted: Experiment) -> str:
    return write_report({"toy": (charted, results_of(charted))})


def test_every_element_is_closed_and_text_is_text(page: str) -> None:
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert "One <half> & more" in balance.text


def test_the_page_needs_no_network(page: str) -> None:
    assert not re.search(r"https?:|src=|@import|url\(", page)


def test_both_languages_have_the_same_texts(page: str) -> None:
    assert page.count('lang="zh-Hans">') == page.count('lang="en">') - 1  # the page's own


def test_the_page_shows_prediction_difference_verdict_and_code(page: str) -> None:
    assert "It holds" in page
    assert "model.residual = false (was true)" in page
    assert "model.num_heads = 3 (was 8)" in page  # the base beside the paper's
    assert "toys; 7 pairs to learn from, 5 to test with" in page
    assert '<b class="confirmed">' in page
    assert inspect.getsource(Band.of).splitlines()[-1].strip() in page


@pytest.mark.parametrize(
    ("outcome", "expected", "said", "foretold"),
    [
        ("confirmed", ("confirmed",), "as predicted", True),
        ("within noise", ("not confirmed", "within noise"), "as predicted", True),
        ("not confirmed", ("confirmed",), "not as predicted", False),
        ("no result", ("confirmed",), "", None),
    ],
)
def test_a_verdict_is_told_from_the_prediction(
    toy: Experiment,
    outcome: Outcome,
    expected: tuple[Outcome, ...],
    said: str,
    foretold: bool | None,
) -> None:
    verdict = Verdict(outcome, Text("so", "如此"))
    claim = dataclasses.replace(toy.claims[0], judge=lambda _: verdict, expected=expected)
    found = {"toy": (dataclasses.replace(toy, claims=(claim,)), results_of(toy))}
    page, [summary] = write_report(found), summarize(found)["toy"]["claims"]
    for words in ("as predicted", "not as predicted"):
        assert page.count(f'<span lang="en">{words}</span>') == 2 * (words == said)
    assert f"{int(bool(foretold))} of {int(foretold is not None)} verdicts as predicted" in page
    assert summary["foretold"] is foretold


def test_the_page_draws_training_measures_grids_and_observations(page: str) -> None:
    captions = re.findall(r'<figcaption><span lang="en">(.*?)</span>', page)
    assert captions == [
        "training loss (nats per token)",
        "line &lt;of&gt; numbers",
        "grid",
        "time (s)",
    ]
    assert "<title>2: 3 (2 - 4)</title>" in page
    assert page.count("<title>0, 1: 0.125</title>") == 2  # the first seed of both variants
    assert "<title>1, 1: -0.5</title>" in page
    assert "<title>2: 2.5</title>" in page


def test_the_page_lists_what_was_observed(page: str) -> None:
    assert "<code>unseen</code></td><td>0.1875</td>" in page


def test_an_experiment_that_trains_nothing_has_no_variants_and_no_loss(toy: Experiment) -> None:
    still = dataclasses.replace(
        toy, variants=(), measures=(), claims=(), data=None, measure=lambda _: {}
    )
    page = write_report({"toy": (still, Results({"two": 2.0}, []))})
    assert "Variants" not in page
    assert "<figure>" not in page


def test_a_trial_that_broke_off_has_a_curve_of_its_own_a_reason_and_no_numbers(
    toy: Experiment,
) -> None:
    broken = Trial("changed", 1, [(1, 3.0), (2, float("nan"))], failed="it <diverged>")
    trials = [Trial("base", 1, [(1, 3.0), (2, 2.0)], {"half": 0.5}), broken]
    page = write_report({"toy": (toy, Results({}, trials))})
    assert '<b class="no-result">' in page
    assert "changed (broke off)" in page
    named = bilingual(Text("changed", "改过"))
    assert f"<td>{named}</td><td>1</td><td>it &lt;diverged&gt;</td>" in page
    assert "改过（中断）" in page
    assert "nan" not in page


def test_every_experiment_has_a_link_and_its_neighbours(toy: Experiment) -> None:
    found = {
        name: (dataclasses.replace(toy, name=name), results_of(toy)) for name in ("a", "b", "c")
    }
    page = write_report(found)
    navigation, _, rest = page.partition("</nav>")
    for name in found:
        assert f'href="#{name}"' in navigation
        assert f'<section id="{name}">' in rest
    assert '<a href="#a">← a</a></span><a href="#c">c →</a>' in rest


def test_the_json_has_all_numbers_and_verdicts_and_none_that_json_has_not(
    charted: Experiment,
) -> None:
    results = results_of(charted)
    results.trials[0].measures["half"] = math.inf
    found = json.loads(json.dumps(summarize({"toy": (charted, results)}), allow_nan=False))["toy"]
    assert found["claims"][0]["outcome"] == "not confirmed"
    assert found["claims"][0]["prediction"] == {"en": "It holds", "zh": "It holds（中文）"}
    assert found["variants"][1]["difference"] == "model.residual = false (was true)"
    assert found["trials"][0]["measures"]["half"] is None
    assert found["trials"][1]["measures"]["half"] == 0.5
    assert found["trials"][0]["curve"] == [[1, 3.0], [2, 2.0]]
    assert found["observed"] == results.observed


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_the_code_of_every_experiment_can_be_shown(experiment: Experiment) -> None:
    for each in experiment.code:
        assert inspect.getsource(each)
