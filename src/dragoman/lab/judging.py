"""The verdicts that several experiments give on a difference. No torch needed."""

from __future__ import annotations

from dragoman.lab.experiment import Results, Text, Verdict, holds, numbers
from dragoman.lab.statistics import Difference, bootstrap_difference


def holds_clearly(condition: bool, seen: Text, *differences: Difference) -> Verdict:
    """Returns the verdict on what differences say, as far as all of them are clear."""
    if all(each.clear for each in differences):
        return holds(condition, seen)
    return Verdict("within noise", seen)


def decide(gain: Difference, seen: Text) -> Verdict:
    """Returns the verdict on the claim that a difference is above 0."""
    return holds_clearly(gain.mean > 0, seen, gain)


def judge_gain(higher: str, lower: str, results: Results) -> Verdict:
    """Returns the verdict on `higher has more exact translations than lower`, two variants."""
    gain = bootstrap_difference(results.items(higher), results.items(lower))
    text = Text(
        f"exactly right: {higher} {{0:.1%}}, {lower} {{1:.1%}}; "
        "difference {2:.1%} [{3:.1%}, {4:.1%}]",
        f"完全正确：{higher} {{0:.1%}}，{lower} {{1:.1%}}；相差 {{2:.1%}} [{{3:.1%}}, {{4:.1%}}]",
    )
    found = (results.mean(name, "exact") for name in (higher, lower))
    seen = numbers(text, *found, gain.mean, gain.low, gain.high)
    return decide(gain, seen)


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
    return holds(condition, seen) if control else Verdict("no result", seen)
