from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dragoman.decoding.translator import Translator
from dragoman.model.transformer import Transformer
from dragoman.view.reading import model_of
from dragoman.view.shapes import draw_shapes, trace_shapes

SOURCE = torch.tensor([[5, 7, 11, 13, 17, 19, 3], [17, 3, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_a_batch_goes_through_the_steps_of_multi_head_attention(
    make_translator: Callable[..., Translator], positions: str
) -> None:
    model = model_of(make_translator(positions=positions))
    assert isinstance(model, Transformer)
    found = [(step.step, step.output) for step in trace_shapes(model, SOURCE)]
    assert found == [  # 2 sentences, 7 tokens, 5 heads, d_k 2, d_v 3, d_model 11
        ("project", (2, 7, 10)),
        ("reshape", (2, 7, 5, 2)),
        ("transpose", (2, 5, 7, 2)),
        ("attend", (2, 5, 7, 7)),
        ("attend", (2, 5, 7, 7)),
        ("attend", (2, 5, 7, 3)),
        ("transpose", (2, 7, 5, 3)),
        ("reshape", (2, 7, 15)),
        ("project", (2, 7, 11)),
    ]


def test_each_step_begins_where_the_one_before_ended(
    translator: Translator, tmp_path: Path
) -> None:
    model = model_of(translator)
    assert isinstance(model, Transformer)
    steps = trace_shapes(model, SOURCE)
    for step, following in itertools.pairwise(steps):
        assert following.inputs[0] == step.output
    draw_shapes(steps, {"batch": 2}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
