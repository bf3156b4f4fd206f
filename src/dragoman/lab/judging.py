"""The verdicts that several experiments give on a difference. No torch needed."""

from __future__ import annotations

from dragoman.lab.experiment import Results, Text, Verdict, holds, numbers
from dragoman.lab.statistics import Difference, bootstrap_difference

CHANCE = 0.01
"""Share of test sentences that may be right by accident."""
LEAST_BLEU = 5.0
"""Below which hardly a word is right."""


def holds_clearly(seen: Text, *gains: Difference, besides: bool = True) -> Verdict:
    """Returns the verdict on the claim that all differences are above 0, and so much besides.

    One that is clearly below refutes it, however unclear the others are.
    """
    if any(each.clear and each.mean <= 0 for each in gains):
        return Verdict("not confirmed", seen)
    if all(each.clear for each in gains):
        return holds(besides, seen)
    return Verdict("within noise", seen)


def decide(gain: Difference, seen: Text) -> Verdict:
    """Returns the verdict on the claim that a difference is above 0."""
    return holds_clearly(seen, gain)


def judge_gain(higher: str, lower: str, results: Results) -> Verdict:
    """Returns the verdict on `higher has more exact translations than lower`, two variants."""
    gain, seen = _compare(higher, lower, results)
    return if_learnt(_best(results, higher, lower) > CHANCE, decide(gain, seen))


def judge_equal(first: str, second: str, margin: float, results: Results) -> Verdict:
    """Returns the verdict on `first has as many exact translations as second`, but for a margin.

    There is none unless one of them has ten times as many: what knows nothing is alike.
    """
    gain, seen = _compare(first, second, results)
    learnt = _best(results, first, second) >= 10 * margin
    return if_learnt(learnt, equal_within(margin, gain, seen))


def _best(results: Results, *variants: str) -> float:
    return max(results.mean(name, "exact") for name in variants)


def judge_nothing(without: str, beside: str, results: Results, most: float = CHANCE) -> Verdict:
    """Returns the verdict on `without learns nothing`, beside a variant that should learn.

    Args:
        without: the variant that the claim is about.
        beside: what it is compared with.
        results: what was found.
        most: share of exact translations up to which nothing has been learnt.
    """
    gain, seen = _compare(beside, without, results)
    alone, whole = (results.mean(name, "exact") for name in (without, beside))
    if alone <= most < whole:
        return decide(gain, seen)
    return holds_beside(whole > most, False, seen)


def _compare(higher: str, lower: str, results: Results) -> tuple[Difference, Text]:
    """Returns how many more exact translations a variant has than another, and that in words."""
    gain = bootstrap_difference(results.items(higher), results.items(lower))
    text = Text(
        f"exactly right: {higher} {{0:.1%}}, {lower} {{1:.1%}}; "
        "difference {2:.1%} [{3:.1%}, {4:.1%}]",
        f"完全正确：{higher} {{0:.1%}}，{lower} {{1:.1%}}；相差 {{2:.1%}} [{{3:.1%}}, {{4:.1%}}]",
    )
    found = (results.mean(name, "exact") for name in (higher, lower))
    return gain, numbers(text, *found, gain.mean, gain.low, gain.high)


def equal_within(margin: float, gain: Difference, seen: Text) -> Verdict:
    """Returns the verdict on the claim that a difference is at most a margin, either way.

    That nothing was told from noise doesn't confirm it: the whole interval must lie inside.
    """
    if -margin <= gain.low and gain.high <= margin:
        return Verdict("confirmed", seen)
    if gain.low > margin or gain.high < -margin:
        return Verdict("not confirmed", seen)
    return Verdict("within noise", seen)


def holds_beside(control: bool, condition: bool, seen: Text) -> Verdict:
    """Returns the verdict on what is so or not, if the run beside which it is seen has learnt."""
    return if_learnt(control, holds(condition, seen))


def if_learnt(learnt: bool, verdict: Verdict) -> Verdict:
    """Returns a verdict; none, if what it compares has learnt nothing."""
    if learnt:
        return verdict
    seen = verdict.seen
    return Verdict(
        "no result",
        Text(f"{seen.en}; too little is learnt to compare", f"{seen.zh}；学到的太少，无法比较"),
    )
