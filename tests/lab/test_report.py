from __future__ import annotations

import inspect
import re
from html.parser import HTMLParser

import pytest

from dragoman.lab.chart import draw_curves
from dragoman.lab.experiment import Experiment, Results, Text, Trial
from dragoman.lab.experiments import EXPERIMENTS
from dragoman.lab.report import write_report
from dragoman.lab.statistics import Band

_VOID = ("meta", "br")


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


@pytest.fixture
def page(toy: Experiment) -> str:
    trials = [
        Trial(variant.name, seed, [(1, 3.0), (2, 1.0 + seed)], {"half": 0.5, "line": {"2": 0.25}})
        for variant in toy.variants
        for seed in (1, 2, 3)
    ]
    return write_report({"toy": (toy, Results({}, trials))})


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
    assert '<b class="confirmed">' in page
    assert inspect.getsource(Band.of).splitlines()[-1].strip() in page


def test_a_trial_that_broke_off_has_a_curve_and_no_numbers(toy: Experiment) -> None:
    trials = [
        Trial(variant.name, 1, [(1, 3.0), (2, float("nan"))], failed="diverged")
        for variant in toy.variants
    ]
    page = write_report({"toy": (toy, Results({}, trials))})
    assert '<b class="no-result">' in page
    assert "nan" not in page


def test_a_legend_names_each_series_and_a_dot_tells_its_numbers() -> None:
    points = {"a & b": [(1.0, Band(2.0, 1.0, 3.0)), (5.0, Band(7.0, 7.0, 7.0))]}
    drawn = draw_curves(points, Text("x", "横"), Text("y", "纵"))
    assert "a &amp; b" in drawn
    assert "<title>1: 2 (1 - 3)</title>" in drawn
    assert drawn.count("<circle") == 2


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_the_code_of_every_experiment_can_be_shown(experiment: Experiment) -> None:
    for each in experiment.code:
        assert inspect.getsource(each)
