"""An experiment that takes a second, and a model that has learnt nothing yet."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dragoman.data.tokenizer import Tokenizers, learn_tokenizer
from dragoman.lab.base import SMALL
from dragoman.lab.data import task_data
from dragoman.lab.experiment import (
    Change,
    Claim,
    Experiment,
    Measure,
    Text,
    Variant,
    holds,
)
from dragoman.lab.statistics import Band
from dragoman.lab.trained import Trained
from dragoman.model.architecture import build_model
from dragoman.settings import build_config

DATA = partial(task_data, "reverse", (2, 4), alphabet=7, count=101, held_out=11)


def text(words: str) -> Text:
    return Text(words, f"{words}（中文）")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What can be sent to other processes: they are given this process's path."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("lab_tasks")


@pytest.fixture
def toy() -> Experiment:
    """Two variants, three steps each."""
    tiny = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 12, "d_ff": 13}
    settings: dict[str, dict[str, Any]] = {
        **SMALL,
        "model": {**SMALL["model"], **tiny, "num_heads": 3},
    }
    return Experiment(
        name="toy",
        number=1,
        version=1,
        title=text("Toy"),
        question=text("Does it run?"),
        settings=settings,
        steps=5,
        quick_steps=3,
        variants=(Variant("base"), Variant("changed", Change("model.residual", False), zh="改过")),
        measures=(
            Measure("half", text("half")),
            Measure("line", text("line <of> numbers"), text("length")),
        ),
        claims=(
            Claim(
                text("One <half> & more"),
                text("nobody"),
                text("It holds"),
                lambda results: holds(results.mean("base", "half") == 0.5, text("0.5")),
            ),
        ),
        data=DATA,
        measure=lambda trained: {"half": 0.5, "line": {"2": 0.25, "11": 0.75}},
        why=text("Because"),
        formula="a < b",
        code=(Band.of,),
        observe=lambda: {"two": 2.0},
    )


@pytest.fixture
def untrained() -> Callable[..., Trained]:
    """Returns a function that makes what an experiment measures: untrained(causal_mask=False)."""

    def make(**model: Any) -> Trained:
        data = DATA()
        tokenizer = learn_tokenizer((side for pair in data.train for side in pair), 300)
        sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), len(tokenizer))
        config = build_config(SMALL, {"model": {**model, **sizes}})
        torch.manual_seed(1)
        fresh = build_model(config.model).eval()
        return Trained(Path(), fresh, config, Tokenizers(tokenizer, tokenizer), data)

    return make
