from __future__ import annotations

import pytest
import torch

from dragoman.config import InputError
from dragoman.model.transformer import Transformer
from dragoman.presets import PRESETS, preset_settings
from dragoman.settings import build_config


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_and_names_its_source(name: str) -> None:
    config = build_config(preset_settings(name))
    with torch.device("meta"):
        Transformer(config.model)
    assert len(PRESETS[name].source) > 20


def test_papers_and_tensor2tensors_models_differ_in_what_the_authors_changed() -> None:
    paper, t2t = (build_config(preset_settings(name)) for name in ("paper-base", "t2t-base"))
    assert (paper.model.norm_place, t2t.model.norm_place) == ("post", "pre")
    assert (paper.training.adam_beta2, t2t.training.adam_beta2) == (0.98, 0.997)
    assert (paper.training.warmup_steps, t2t.training.warmup_steps) == (4000, 8000)
    assert (paper.model.attention_dropout, t2t.model.attention_dropout) == (0.0, 0.1)
    assert (t2t.model.sinusoid_layout, t2t.model.sinusoid_denominator) == ("halves", "d/2-1")


def test_big_is_the_papers() -> None:
    config = build_config(preset_settings("paper-big"))
    assert (config.model.d_model, config.model.d_ff, config.model.num_heads) == (1024, 4096, 16)
    assert (config.model.dropout, config.model.d_k) == (0.3, 64)
    assert (config.training.max_steps, config.training.average_last) == (300_000, 20)


def test_a_misspelt_preset_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(InputError, match="paper-bas") as caught:
        preset_settings("paper-bas")
    assert caught.value.hint == "did you mean paper-base?"
