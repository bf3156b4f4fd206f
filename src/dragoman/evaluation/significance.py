"""Whether one system's translations are better than another's, or chance may have made it look so.

sacreBLEU (Post 2018) does both tests: paired bootstrap resampling (Koehn 2004) asks how the
difference would vary over other test sets like this one, approximate randomisation (Riezler and
Maxwell 2005) how often swapping the two systems' lines at random makes a difference as large.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dragoman.config import InputError
from dragoman.evaluation.bleu import Measure, Score, check_lines, choose_measures

BOOTSTRAP_SAMPLES, RANDOMIZATION_TRIALS, SEED = 1_000, 10_000, 12345
"""sacreBLEU's own defaults."""
MOST_SAMPLES = 10_000
"""sacreBLEU holds the statistics of all samples in memory: 2 GB of 3,000 lines with chrF."""
LEVEL = 0.05
"""A difference counts as shown where both p-values are below."""

_SEED_VARIABLE = "SACREBLEU_SEED"


@dataclass(frozen=True)
class Significance:
    """What two paired tests say about a difference."""

    p_bootstrap: float
    p_randomization: float
    interval_a: tuple[float, float]
    """95 % of the bootstrap samples of the test set score A within these."""
    interval_b: tuple[float, float]
    bootstrap_samples: int
    randomization_trials: int
    seed: int

    @property
    def p(self) -> float:
        """The larger p-value.

        sacreBLEU's randomisation counts only differences that are larger than the real one, not
        equal ones: two systems that differ in a single line would pass it, and only it.
        """
        return max(self.p_bootstrap, self.p_randomization)


@dataclass(frozen=True)
class Difference:
    """A metric's values for two systems, and what may be concluded from them."""

    name: str
    signature: str
    a: float
    b: float
    significance: Significance | None
    """None where only the scores are known, not the lines."""

    @property
    def difference(self) -> float:
        """How much higher B's value is."""
        return self.b - self.a

    @property
    def conclusion(self) -> str:
        """A sentence that says what the difference means."""
        if self.difference == 0:
            return "the scores are equal"
        if self.significance is None:
            return "not tested: a significance test needs the lines themselves"
        p = self.significance.p
        if p >= LEVEL:
            return f"no difference shown (p = {p:.4f})"
        lower_is_better = self.name == "ter"
        better = "A" if (self.difference < 0) != lower_is_better else "B"
        return f"{better} is better (p = {p:.4f})"


def compare(
    a: list[str],
    b: list[str],
    references: list[list[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    target_language: str = "",
    tokenize: str | None = None,
    samples: int | None = None,
    seed: int = SEED,
) -> Iterator[Difference]:
    """Tests whether two systems' translations differ, metric by metric, each as it is done.

    Args:
        a: One system's translations, a line each.
        b: The other's, of the same lines.
        references: As `evaluate` takes them, and so are the next three.
        metrics: Names out of `METRICS`.
        target_language: Such as `de`.
        tokenize: sacreBLEU's tokeniser for `bleu`.
        samples: How many bootstrap samples and random trials, at most `MOST_SAMPLES`; None takes
            sacreBLEU's defaults.
        seed: Of the random numbers, 1 or more; sacreBLEU would take 0 for none.

    Raises:
        InputError: As `evaluate` does, before anything is tested, and for too many samples.
    """
    assert seed >= 1
    if samples is not None and not 1 <= samples <= MOST_SAMPLES:
        raise InputError(f"samples is {samples}, accepted is 1 to {MOST_SAMPLES:,}")
    for hypotheses in (a, b):
        check_lines(hypotheses, references)
    return (
        _test(
            measure,
            measure.prepare(a),
            measure.prepare(b),
            [measure.prepare(reference) for reference in references],
            samples,
            seed,
        )
        for measure in choose_measures(metrics, target_language, tokenize)
    )


def compare_scores(a: Sequence[Score], b: Sequence[Score]) -> list[Difference]:
    """Compares scores that were computed before, if they may be compared.

    Raises:
        InputError: if they aren't of the same metrics, signatures and, as far as one sees,
            references.
    """
    ours, theirs = ({score.name: score for score in scores} for scores in (a, b))
    if ours.keys() != theirs.keys():
        raise InputError(
            f"A has the metrics {', '.join(ours)} and B {', '.join(theirs)}, "
            f"accepted is the same in both"
        )
    for name, score in ours.items():
        if score.signature != theirs[name].signature:
            raise InputError(
                f"the signatures of {name} differ, {score.signature} (A) and "
                f"{theirs[name].signature} (B): such scores can't be compared"
            )
        lengths = [each.details.get("reference_length") for each in (score, theirs[name])]
        # of several references the length nearest to the translation's counts, so it may differ
        if lengths[0] != lengths[1] and "nrefs:1|" in score.signature:
            raise InputError(
                f"the references of {name} differ, they have {lengths[0]} tokens (A) and "
                f"{lengths[1]} (B): such scores can't be compared"
            )
    return [
        Difference(name, score.signature, score.value, theirs[name].value, None)
        for name, score in ours.items()
    ]


def _test(
    measure: Measure,
    a: list[str],
    b: list[str],
    references: list[list[str]],
    samples: int | None,
    seed: int,
) -> Difference:
    from sacrebleu.significance import PairedTest

    def run(kind: str, count: int) -> tuple[Any, Any]:
        systems: list[tuple[str, Sequence[str]]] = [("A", a), ("B", b)]
        with _sacrebleu_seed(seed):
            _, table = PairedTest(
                systems, {measure.name: measure.metric}, references, kind, count
            )()
        _names, (result_a, result_b) = table.values()
        return result_a, result_b

    samples, trials = samples or BOOTSTRAP_SAMPLES, samples or RANDOMIZATION_TRIALS
    _, randomized = run("ar", trials)
    result_a, result_b = run("bs", samples)
    significance = Significance(
        p_bootstrap=result_b.p_value,
        p_randomization=randomized.p_value,
        interval_a=_interval(result_a),
        interval_b=_interval(result_b),
        bootstrap_samples=samples,
        randomization_trials=trials,
        seed=seed,
    )
    signature = measure.signature
    return Difference(measure.name, signature, result_a.score, result_b.score, significance)


def _interval(result: Any) -> tuple[float, float]:
    return float(result.mean - result.ci), float(result.mean + result.ci)


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Lets sacreBLEU, which takes its seed from the environment alone, find this one there."""
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED_VARIABLE]
        else:
            os.environ[_SEED_VARIABLE] = before
