"""What an experiment is: a question, claims with predictions, variants, measures. No torch needed.

Predictions are written before a run, and verdicts are computed from its numbers. Every text is in
English and in Simplified Chinese.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dragoman.config import Config
from dragoman.presets import PRESETS
from dragoman.settings import Settings, build_config

if TYPE_CHECKING:
    from dragoman.lab.data import LabData
    from dragoman.lab.trained import Trained

Outcome = Literal["confirmed", "not confirmed", "within noise", "no result"]
"""`no result`: a run that it takes broke off, the data can't answer, or nothing has been learnt."""
WITHIN_NOISE: tuple[Outcome, ...] = ("within noise",)
DOUBTED: tuple[Outcome, ...] = ("not confirmed", "within noise")
Measured = float | dict[str, float] | list[list[float]]
"""A number; numbers by what they depend on, such as a length; or a grid, row by row."""


class BrokenOff(Exception):
    """A training run broke off, so that what was asked for can't be had; the message says why."""


@dataclass(frozen=True)
class Text:
    """The same in two languages."""

    en: str
    zh: str


@dataclass(frozen=True)
class Change:
    """One setting that a variant changes."""

    setting: str
    """`section.field`."""
    value: Any
    more: tuple[tuple[str, Any], ...] = ()
    """Settings that change with it, where one choice of a paper's is several of ours."""

    @property
    def all(self) -> dict[str, Any]:
        """The new values by setting."""
        return {self.setting: self.value, **dict(self.more)}

    def to_settings(self) -> dict[str, dict[str, Any]]:
        """Returns it as a layer for `build_config`."""
        layer: dict[str, dict[str, Any]] = {}
        for setting, value in self.all.items():
            section, _, name = setting.partition(".")
            layer.setdefault(section, {})[name] = value
        return layer


@dataclass(frozen=True)
class Variant:
    """A configuration that differs in one setting from another one."""

    name: str
    change: Change | None = None
    """None for the base itself."""
    of: str = ""
    """The variant that is changed; the base if empty."""
    published: Mapping[str, float] = field(default_factory=dict)
    """What the claims' source has measured, by the name of a measure."""
    zh: str = ""
    """Its name in Chinese, where that is another."""

    @property
    def label(self) -> Text:
        """Its name, to be read."""
        return Text(self.name, self.zh or self.name)


@dataclass(frozen=True)
class Measure:
    """Something that is measured on each trained model."""

    name: str
    label: Text
    """With the unit."""
    x: Text | None = None
    """What it depends on, with the unit, where it is not a single number; a grid's columns."""
    y: Text | None = None
    """A grid's rows."""


@dataclass(frozen=True)
class Chart:
    """Curves of what was observed without training."""

    label: Text
    """With the unit."""
    x: Text
    """What they depend on, with the unit."""
    curves: Mapping[str, Text]
    """The names of the observations, and what the legend calls each."""


@dataclass(frozen=True)
class Trial:
    """One variant trained with one seed."""

    variant: str
    seed: int
    curve: list[tuple[int, float]]
    """Steps and the training text's negative log-likelihood, nats per token."""
    measures: dict[str, Measured] = field(default_factory=dict)
    items: list[float] = field(default_factory=list)
    """1 for each test sentence that is translated exactly, else 0."""
    failed: str = ""
    """Why there are no measures, if there are none."""

    @property
    def ended(self) -> bool:
        """Whether it has run to its end or broken off."""
        return bool(self.measures or self.failed)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Trial:
        """Makes a trial of what `dataclasses.asdict` has become on its way through JSON."""
        return cls(**{**kept, "curve": [(step, value) for step, value in kept["curve"]]})


@dataclass(frozen=True)
class Corpus:
    """The text that the trials of a run had."""

    name: Text
    train: int
    """Pairs to learn from."""
    test: int
    """Pairs to test with."""

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Corpus:
        """Makes a corpus of what `dataclasses.asdict` has become on its way through JSON."""
        return cls(**{**kept, "name": Text(**kept["name"])})


@dataclass(frozen=True)
class Results:
    """All that a run of an experiment has found."""

    observed: dict[str, Measured]
    """What needs no training."""
    trials: list[Trial]
    corpus: Corpus | None = None
    """None where nothing is trained."""

    def of(self, variant: str) -> list[Trial]:
        """Returns the trials of a variant, seed by seed; also those that broke off."""
        found = [trial for trial in self.trials if trial.variant == variant]
        return sorted(found, key=lambda trial: trial.seed)

    def whole(self, variant: str) -> list[Trial]:
        """Returns the trials of a variant, seed by seed, all with their measures.

        Raises:
            BrokenOff: naming those that broke off, if any did. So do all that ask for measures.
        """
        trials = self.of(variant)
        if failed := [f"{t.variant}, seed {t.seed}: {t.failed}" for t in trials if t.failed]:
            raise BrokenOff("; ".join(failed))
        return trials

    def number(self, name: str) -> float:
        """Returns a single number of those that were observed without training."""
        return float(self.observed[name])  # type: ignore[arg-type]

    def values(self, variant: str, measure: str) -> list[float]:
        """Returns a single-number measure of a variant, seed by seed."""
        return [float(trial.measures[measure]) for trial in self.whole(variant)]  # type: ignore[arg-type]

    def mean(self, variant: str, measure: str) -> float:
        """Returns a measure's mean over the seeds."""
        found = self.values(variant, measure)
        return sum(found) / len(found)

    def values_at(self, variant: str, measure: str, x: str) -> list[float]:
        """Returns one point of a measure that depends on something, seed by seed."""
        found = [trial.measures[measure] for trial in self.whole(variant)]
        return [series[x] for series in found if isinstance(series, dict)]

    def has(self, variant: str, measure: str) -> bool:
        """Says whether a measure was taken of a variant: some can't be on every text."""
        return all(measure in trial.measures for trial in self.whole(variant))

    def items(self, variant: str) -> list[list[float]]:
        """Returns the score of each test sentence, seed by seed."""
        return [trial.items for trial in self.whole(variant)]

    def parts(self, variant: str, measure: str) -> list[list[float]]:
        """Returns a measure's values, of one test sentence or part each, seed by seed."""
        found = [trial.measures[measure] for trial in self.whole(variant)]
        return [list(values.values()) for values in found if isinstance(values, dict)]


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    outcome: Outcome
    seen: Text
    """The numbers that decided."""


@dataclass(frozen=True)
class Claim:
    """A statement that can turn out false."""

    statement: Text
    source: Text
    """Who says so, and where."""
    prediction: Text
    """Written before the run."""
    judge: Callable[[Results], Verdict]
    """Computes the verdict; it may expect every measure of every trial that came to its end."""
    expected: tuple[Outcome, ...] = ("confirmed",)
    """The verdicts that the prediction foretells: one may also doubt a claim."""

    def foretold(self, verdict: Verdict) -> bool | None:
        """Says whether a verdict is as predicted; None where there is no result."""
        return None if verdict.outcome == "no result" else verdict.outcome in self.expected

    def compare(self, verdict: Verdict) -> Text:
        """Says the same in words; in none where there is no result."""
        return _FORETOLD[self.foretold(verdict)]


@dataclass(frozen=True)
class Experiment:
    """A design choice, and what happens without it."""

    name: str
    number: int
    version: int
    """Goes up when what is measured changes: older results are then measured again."""
    title: Text
    question: Text
    settings: Settings
    """Of the base."""
    claims: tuple[Claim, ...]
    why: Text
    formula: str
    code: tuple[Any, ...]
    """The classes and functions that implement the choice."""
    steps: int = 0
    quick_steps: int = 0
    checkpoint_every: int = 0
    """Steps between the weights that `Trained.at` can go back to; 0 keeps the last ones alone."""
    variants: tuple[Variant, ...] = ()
    """The first one is the base; none where nothing is trained."""
    data: Callable[[], LabData] | None = None
    """Makes the text, where none is given; None where one has to be, or nothing is trained."""
    thin_out: int = 1
    """Of the training text, the user's or not, one pair in so many is used."""
    measure: Callable[[Trained], Mapping[str, Measured]] = lambda _: {}
    """Measures each trained model. `exact`, the share of test sentences that are translated to the
    letter, is measured of all."""
    measures: tuple[Measure, ...] = ()
    """What the report shows of it."""
    observe: Callable[[], Mapping[str, Measured]] = dict
    """Finds what needs no training: what follows from the mathematics, or what a model takes."""
    charts: tuple[Chart, ...] = ()
    """What the report draws of it."""

    @property
    def needs_text(self) -> bool:
        """Whether it brings no text itself."""
        return bool(self.variants) and self.data is None

    @property
    def base(self) -> Variant:
        """What the others are changed from."""
        return self.variants[0]

    def variant(self, name: str) -> Variant:
        """Returns a variant by its name; the base if it is empty."""
        return next(each for each in self.variants if each.name == (name or self.base.name))

    def layers(self, variant: Variant) -> list[Settings]:
        """Returns the settings of a variant, from the weakest to the strongest."""
        if variant.change is None:
            return [self.settings]
        return [*self.layers(self.variant(variant.of)), variant.change.to_settings()]

    def difference(self, variant: Variant) -> str:
        """Returns in one line what a variant changes, such as `model.d_k = 16 (was 64)`.

        The base is told from the paper's, but for its text and for how long it is trained.
        """
        after = flatten(build_config(*self.layers(variant)))
        if variant.change is None:
            before = flatten(build_config(PRESETS["paper-base"].settings))
            changed = [n for n in after if after[n] != before[n] and _LEARNING.fullmatch(n)]
        else:
            before = flatten(build_config(*self.layers(self.variant(variant.of))))
            changed = list(variant.change.all)
        return ", ".join(
            f"{name} = {_write(after[name])} (was {_write(before[name])})" for name in changed
        )

    def judge(self, claim: Claim, results: Results) -> Verdict:
        """Returns the verdict on a claim; there is none if it takes a run that broke off."""
        try:
            return claim.judge(results)
        except BrokenOff as error:
            return Verdict("no result", Text(f"broke off: {error}", f"中断：{error}"))


_LEARNING = re.compile(
    r"model\.(?!(source|target)_vocab_size).*"
    r"|training\.(batch_tokens|schedule|peak_learning_rate|noam_factor|warmup_steps|adam_.*"
    r"|label_smoothing|clip_norm)"
)
"""Settings that a model learns by, whatever its text is and however long it is trained."""
_FORETOLD = {
    True: Text("as predicted", "与预测一致"),
    False: Text("not as predicted", "与预测不符"),
    None: Text("", ""),
}


def flatten(config: Config) -> dict[str, Any]:
    """Returns every setting under its full name."""
    sections: Mapping[str, Mapping[str, Any]] = dataclasses.asdict(config)
    return {
        f"{s}.{name}": value for s, values in sections.items() for name, value in values.items()
    }


def _write(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def holds(condition: bool, seen: Text) -> Verdict:
    """Returns the verdict on what is either so or not."""
    return Verdict("confirmed" if condition else "not confirmed", seen)


def numbers(template: Text, *values: float | Sequence[float]) -> Text:
    """Fills the same numbers into a text in both languages, as `str.format` does."""
    return Text(template.en.format(*values), template.zh.format(*values))
