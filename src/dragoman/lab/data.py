"""The text of an experiment: toy tasks, or the user's own. No torch needed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dragoman.config import InputError
from dragoman.data.atomic import replacing
from dragoman.data.cldr import make_pairs
from dragoman.data.corpus import read_pairs
from dragoman.data.tasks import Task, make_task
from dragoman.lab.experiment import Text
from dragoman.settings import Settings

Pairs = Sequence[tuple[str, str]]

_SOURCE = "en"
_TRAIN, _VALID = "train.jsonl", "valid.jsonl"
_LEAST = 100
_HELD_OUT = 200
"""Pairs to test with, at most."""
_PHRASES = 10_000
_MOST_BYTES = 1000
"""Of a line to test with: no model takes more tokens than that, whatever its positions are."""
_LEAST_ENTRIES = 2000
"""Of the vocabulary of a user's text."""


@dataclass(frozen=True)
class LabData:
    """Pairs to learn from and pairs to test with, none of them in both."""

    train: Pairs
    test: Pairs
    beyond: Pairs = ()
    """More to test with, each source longer than any that is trained on."""
    settings: Settings = field(default_factory=dict)
    """What the text asks for, over an experiment's own settings."""
    name: Text = field(default_factory=lambda: Text("the experiment's own", "实验自带"))
    """What it is."""

    @cached_property
    def digest(self) -> str:
        """Says whether two texts are the same."""
        text = json.dumps([self.train, self.test, self.beyond])
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def thin_out(self, every: int) -> LabData:
        """Returns a text of which only one training pair in `every` is left."""
        return dataclasses.replace(self, train=self.train[::every])

    def write(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Writes what a training run reads, unless it is there; returns the settings for it."""
        place = folder / self.digest
        if not place.exists():
            with replacing(place) as partial:
                partial.mkdir()
                for name, pairs in ((_TRAIN, self.train), (_VALID, self.test)):
                    lines = (json.dumps({"source": s, "target": t}) + "\n" for s, t in pairs)
                    (partial / name).write_text("".join(lines), encoding="utf-8")
        return {"data": {"pairs": str(place / _TRAIN), "valid_pairs": str(place / _VALID)}}


def task_data(
    task: Task,
    lengths: tuple[int, int],
    longest: int = 0,
    alphabet: int = 10,
    count: int = 3000,
    held_out: int = _HELD_OUT,
) -> LabData:
    """Makes strings of a toy task.

    Args:
        task: what the target is.
        lengths: fewest and most symbols of a source that is trained on.
        longest: most symbols of those beyond it; none are made if 0.
        alphabet: different symbols.
        count: strings to train on.
        held_out: strings to test with, of each kind.
    """
    pairs = make_task(task, count + held_out, *lengths, alphabet, seed=1)
    beyond = make_task(task, held_out, lengths[1] + 1, longest, alphabet, 2) if longest else []
    fewest, most = lengths
    name = Text(
        f"strings of {fewest} to {most} out of {alphabet} symbols, task {task}",
        f"由 {alphabet} 种符号组成、长 {fewest} 到 {most} 的字符串，任务为 {task}",
    )
    return LabData(pairs[:count], pairs[count:], beyond, name=name)


def cldr_data(language: str) -> LabData:
    """Makes phrases of the Unicode CLDR, from English into another language.

    Raises:
        InputError: for an unknown language.
    """
    if language == _SOURCE:
        raise InputError(f"--language is {language}, accepted is another one than the source's")
    made = make_pairs(_SOURCE, language, _PHRASES, seed=1)
    return LabData(
        [(source, target) for _, source, target in made.train],
        [(source, target) for _, source, target in made.test[:: len(made.test) // _HELD_OUT + 1]],
        settings={"data": {"vocab_size": 1500, "target_language": language}},
        name=Text(
            f"phrases of the Unicode CLDR, {_SOURCE} to {language}",
            f"Unicode CLDR 的短语（{_SOURCE} → {language}）",
        ),
    )


def user_data(
    source: Sequence[str], target: Sequence[str], pairs: Sequence[str], language: str = ""
) -> LabData:
    """Reads a user's files; every tenth distinct pair that isn't long, 200 at most, is tested with.

    Args:
        source: files of one side.
        target: files of the other.
        pairs: files of both.
        language: of the target, which decides how BLEU cuts words.

    Raises:
        InputError: if a file can't be read, or there are too few pairs.
    """
    found = list(dict.fromkeys(read_pairs(source, target, pairs)))
    names = ", ".join([*source, *target, *pairs])
    if len(found) < _LEAST:
        raise InputError(
            f"{names}: {len(found)} distinct pairs, accepted is {_LEAST} or more",
            "without files the laboratory makes text of its own",
        )
    short = [pair for pair in found if max(len(side.encode()) for side in pair) <= _MOST_BYTES]
    test = short[::10][:_HELD_OUT]
    held_out = set(test)
    train = [pair for pair in found if pair not in held_out]
    characters = len({character for pair in found for side in pair for character in side})
    size = max(_LEAST_ENTRIES, 2 * characters)  # for Chinese, each character is an entry at least
    return LabData(
        train,
        test,
        settings={"data": {"vocab_size": size, "target_language": language}},
        name=Text(names, names),
    )
