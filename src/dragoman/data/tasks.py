"""Makes toy tasks that a sound Transformer learns to the last symbol: copy, reverse, sort."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from dragoman.config import InputError, nearest_hint

Task = Literal["copy", "reverse", "sort"]

_TASKS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy": list,
    "reverse": lambda symbols: symbols[::-1],
    "sort": sorted,
}
TASKS = tuple(_TASKS)
_SYMBOLS = "abcdefghijklmnopqrstuvwxyz"


def make_task(
    name: Task, count: int, min_length: int, max_length: int, alphabet: int, seed: int
) -> list[tuple[str, str]]:
    """Makes distinct pairs of symbol strings, such as 'c a b' and, sorted, 'a b c'.

    Args:
        name: What the target is: the source copied, reversed or sorted.
        count: Pairs wanted.
        min_length: Fewest symbols of a source; each length up to `max_length` is as likely.
        max_length: Most symbols of a source.
        alphabet: Different symbols, at most 26.
        seed: Decides the pairs.

    Raises:
        InputError: for an unknown task, or more pairs than there are.
    """
    if name not in _TASKS:
        raise InputError(
            f"the task is {name!r}, accepted is one of {', '.join(TASKS)}",
            nearest_hint(name, TASKS),
        )
    assert 1 <= alphabet <= len(_SYMBOLS)
    assert 1 <= min_length <= max_length
    available = sum(alphabet**length for length in range(min_length, max_length + 1))
    if count > available // 2:  # drawing the last ones out of all would take for ever
        raise InputError(
            f"{count:,} pairs are wanted, accepted is at most half of the {available:,} there are",
            "take longer sources or a larger alphabet",
        )
    draw = random.Random(seed)
    sources: dict[tuple[str, ...], None] = {}
    while len(sources) < count:
        length = draw.randint(min_length, max_length)
        sources[tuple(draw.choices(_SYMBOLS[:alphabet], k=length))] = None
    answer = _TASKS[name]
    return [(" ".join(source), " ".join(answer(list(source)))) for source in sources]
