"""Who takes part in what. No torch needed: a contestant is imported in its own process only."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dragoman.config import InputError, nearest_hint

REFERENCE = "torch"
PACKAGES = {
    REFERENCE: "torch",
    "transformers": "transformers",
    "eole": "eole",
    "ctranslate2": "ctranslate2",
    "x-transformers": "x_transformers",
}
"""The peers, each with the package that it is imported from; torch is always there."""


@dataclass(frozen=True)
class Contestant:
    """One row of a table."""

    name: str
    home: str
    """`module:Class` of its `dragoman.bench.setting.Performance`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: str = REFERENCE
    """Whose code it runs; ours runs on torch."""
    for_bfloat16: bool = False
    """Whether it is only worth a run where products in bfloat16 are fast."""


_OURS, _TORCH = "dragoman.bench.ours:Training", "dragoman.bench.peer_torch:Training"
TRAINING = (
    Contestant("dragoman", _OURS),
    Contestant("dragoman float32", _OURS, {"precision": "float32"}, for_bfloat16=True),
    Contestant("dragoman shuffled", _OURS, {"shuffled": True}),
    Contestant("torch", _TORCH),
    Contestant("torch lean", _TORCH, {"lean": True}),
    Contestant("torch bfloat16", _TORCH, {"precision": "bfloat16"}, for_bfloat16=True),
    Contestant("torch shuffled", _TORCH, {"shuffled": True}),
    Contestant("transformers", "dragoman.bench.peer_transformers:Training", peer="transformers"),
    Contestant("eole", "dragoman.bench.peer_eole:Training", peer="eole"),
    Contestant(
        "x-transformers", "dragoman.bench.peer_x_transformers:Training", peer="x-transformers"
    ),
)
DECODING = (
    Contestant("dragoman", "dragoman.bench.ours:Decoding"),
    Contestant(
        "dragoman float32",
        "dragoman.bench.ours:Decoding",
        {"precision": "float32"},
        for_bfloat16=True,
    ),
    Contestant("transformers", "dragoman.bench.peer_transformers:Decoding", peer="transformers"),
    Contestant(
        "transformers bfloat16",
        "dragoman.bench.peer_transformers:Decoding",
        {"precision": "bfloat16"},
        peer="transformers",
        for_bfloat16=True,
    ),
    Contestant("ctranslate2", "dragoman.bench.peer_ctranslate2:Decoding", peer="ctranslate2"),
    Contestant(
        "ctranslate2 int8",
        "dragoman.bench.peer_ctranslate2:Decoding",
        {"precision": "int8"},
        peer="ctranslate2",
    ),
)


def check_peers(names: Sequence[str]) -> None:
    """Checks the names of peers.

    Raises:
        InputError: for one that isn't known, naming the nearest.
    """
    for name in names:
        if name not in PACKAGES:
            raise InputError(
                f"--peers is {name}, accepted is one of {', '.join(PACKAGES)}",
                nearest_hint(name, PACKAGES),
            )


def choose(
    contestants: Sequence[Contestant], peers: Sequence[str], *, bfloat16: bool
) -> tuple[list[Contestant], dict[str, str]]:
    """Returns those that can take part, and of the others why they can't.

    Args:
        contestants: all of a job.
        peers: those that are wanted; ours and torch always are.
        bfloat16: whether products in it are fast here.
    """
    chosen, absent = [], {}
    for each in contestants:
        if each.peer != REFERENCE and each.peer not in peers:
            continue
        if importlib.util.find_spec(PACKAGES[each.peer]) is None:
            absent[each.name] = "not installed"
        elif each.for_bfloat16 and not bfloat16:
            absent[each.name] = "products in bfloat16 aren't fast here"
        else:
            chosen.append(each)
    return chosen, absent


def versions() -> dict[str, str]:
    """Returns the versions of the peers that are installed."""
    import importlib.metadata  # costs --help too much

    found = {}
    for name, package in PACKAGES.items():
        if importlib.util.find_spec(package) is not None:
            found[name] = importlib.metadata.version(name)
    return found
