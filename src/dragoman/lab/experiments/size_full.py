"""The same question as `size`, of the models that people use, on a text of the user's own."""

from __future__ import annotations

import dataclasses

from dragoman.lab.experiment import Change, Experiment, Text, Variant
from dragoman.lab.experiments import size
from dragoman.presets import PRESETS
from dragoman.settings import build_config

_SIZES = ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads")
_TINY, _SMALL, _BASE = "tiny", "small", "paper-base"


def _sizes(preset: str) -> dict[str, int]:
    model = build_config(PRESETS[preset].settings).model
    return {name: getattr(model, name) for name in _SIZES}


def _resize(preset: str) -> Change:
    """Returns how a preset's sizes differ from those of small."""
    before = _sizes(_SMALL)
    changed = [(f"model.{n}", size) for n, size in _sizes(preset).items() if size != before[n]]
    return Change(*changed[0], tuple(changed[1:]))


EXPERIMENT: Experiment = dataclasses.replace(
    size.EXPERIMENT,
    name="size-full",
    number=25,
    version=1,
    title=Text("Size against text, in full size", "模型大小与数据大小（原尺寸）"),
    question=Text(
        "How large a model can your own text fill: tiny, small or the paper's base?",
        "你自己的数据能撑起多大的模型：tiny、small 还是论文的 base？",
    ),
    settings={
        "model": {
            **_sizes(_SMALL),
            **{"norm_place": "pre", "dropout": 0.3, "embedding_dropout": 0.3},
        },
        "data": PRESETS[_SMALL].settings["data"],
        "training": PRESETS[_SMALL].settings["training"],
    },
    steps=8000,
    quick_steps=2000,
    variants=(
        Variant(_SMALL),
        *(Variant(name, _resize(name)) for name in (_TINY, _BASE)),
    ),
    claims=size.claims_about((Text(_TINY, _TINY), Text(_SMALL, _SMALL), Text(_BASE, _BASE))),
    data=None,
    why=Text(
        "These are the sizes of three presets, all else alike: pre-norm, for the smallest learns "
        "badly without, the dropout that little text asks for, 8,000 subwords and steps. A larger "
        "model can tell more things apart, if there is text to learn them from. Where there is "
        "none it learns its sentences by heart. All have the same number of steps, so that the "
        "smaller text is read ten times as often.",
        "三个预设的尺寸，其余都相同：前归一化（否则最小的模型学不好）、适合小数据的 dropout、"
        "8000 个子词、8000 步。"
        "更大的模型能区分更多的东西，前提是有数据可学；没有足够数据时，它只会背下那些句子。"
        "所有模型的步数相同，因此较小的数据会被重复读十倍的次数。",
    ),
    formula="parameters ~ d (V + N (12 d + 4 d_ff)), N layers on each side",
)
