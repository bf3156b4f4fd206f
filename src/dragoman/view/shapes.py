"""The shapes that a batch goes through in multi-head attention, as torch sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dragoman.model.transformer import Transformer
from dragoman.view.figure import save_figure

ATTENTION = "encoder.layers.0.self_attention"
"""The one that is traced: queries go through it, keys and values come in as heads already."""

_STEPS = {
    ("linear", 3): "project",
    ("unflatten", 3): "reshape",
    ("transpose", 4): "transpose",
    ("matmul", 4): "attend",
    ("softmax", 4): "attend",
    ("flatten", 4): "reshape",
}
"""By the name of torch's function and the dimensions of its first tensor: the step that it is.

Rotary positions reshape too, but tensors of other dimensions.
"""


@dataclass(frozen=True)
class Step:
    """One operation on tensors."""

    step: str
    """project, reshape, transpose or attend."""
    operation: str
    """The name of torch's function."""
    inputs: list[tuple[int, ...]]
    """The shapes of the tensors that went in, weights among them."""
    output: tuple[int, ...]


class _Recorder(TorchFunctionMode):
    """Notes the operations that change shapes or attend, while it is switched on."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.on = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").strip("_")
        turns_keys = name == "transpose" and args[1:] == (-2, -1)  # K^T: part of attending
        if self.on and not turns_keys:
            inputs = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
            step = _STEPS.get((name, len(inputs[0]))) if inputs else None
            if step is not None:
                self.steps.append(Step(step, name, inputs, tuple(result.shape)))
        return result


def trace_shapes(model: Transformer, source: Tensor) -> list[Step]:
    """Runs a model's encoder on a batch and notes what its first attention does to the queries.

    Args:
        model: stays as it is.
        source: ids (batch, source), with EOS, padded on the right.

    Returns:
        project, reshape, transpose, attend (scores, softmax, context), transpose, reshape, project.
    """
    twin = model.readable().eval()
    recorder = _Recorder()
    attention = twin.get_submodule(ATTENTION)
    handles = [
        attention.register_forward_pre_hook(lambda *_: setattr(recorder, "on", True)),
        attention.register_forward_hook(lambda *_: setattr(recorder, "on", False)),
    ]
    try:
        with torch.inference_mode(), recorder:
            twin.encode(source)
    finally:
        for handle in handles:
            handle.remove()
    return recorder.steps


def draw_shapes(steps: list[Step], sizes: Mapping[str, int], path: Path) -> None:
    """Draws the chain of steps, as a PNG.

    Args:
        steps: from `trace_shapes`.
        sizes: what the numbers are, such as {"batch": 2, "d_model": 512}.
        path: the file to write, whole or not at all.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.75 * len(steps) + 1.2))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(steps) + 0.2, -1.2)
    axes.text(0.02, -0.9, f"a batch in {ATTENTION}", fontsize=12, weight="bold")
    legend = ", ".join(f"{name} {size}" for name, size in sizes.items())
    axes.text(0.02, -0.5, f"numbers of entries: {legend}", fontsize=9)
    box = {"boxstyle": "round", "facecolor": "#eaf1fa", "edgecolor": "#145aaa"}
    for place, step in enumerate(steps):
        axes.text(0.02, place + 0.2, step.step, fontsize=11, weight="bold", va="center")
        axes.text(0.17, place + 0.2, step.operation, fontsize=10, va="center", color="#555555")
        inputs = "  and  ".join(map(str, step.inputs))
        axes.text(0.30, place + 0.2, inputs, fontsize=10, va="center", bbox=box)
        axes.text(0.72, place + 0.2, "→", fontsize=12, va="center")
        axes.text(0.76, place + 0.2, str(step.output), fontsize=10, va="center", bbox=box)
    save_figure(figure, path)
