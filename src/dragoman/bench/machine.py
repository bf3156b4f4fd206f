"""What the machine could do: its rate of matrix products, and how many a batch needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from dragoman.bench.sentences import Ids, Workload
from dragoman.bench.setting import Run, Setting, config_of_size
from dragoman.config import ModelConfig
from dragoman.kernels.process import tune_process
from dragoman.training.budget import operations_of_pair, products_per_second

_SHAPES = {
    "cpu": ((1024, 512, 2048), (2048, 512, 512), (4096, 256, 1024), (1024, 1024, 1024)),
    "cuda": ((8192, 8192, 8192), (16384, 4096, 4096)),
}
"""Rows, inputs and outputs of the layers that are tried."""
_SECONDS = 0.1


def useful_operations(config: ModelConfig, pairs: Sequence[tuple[Ids, Ids]]) -> int:
    """Counts the operations that training on pairs needs, each by itself: no padding is in it."""
    return sum(operations_of_pair(config, len(source), len(target)) for source, target in pairs)


class MatrixProducts:
    """`F.linear` at the sizes of such models, in float32 and in bfloat16."""

    def __init__(self, setting: Setting) -> None:
        tune_process()  # the better of the routes that float32 can take
        config = config_of_size(setting.size).model
        operations = useful_operations(config, Workload.load(setting.sentences).pairs)
        self.facts: dict[str, Any] = {"operations": operations}
        self._layers = {
            (str(dtype).removeprefix("torch."), shape): _layer(shape, dtype, setting.device)
            for dtype in (torch.float32, torch.bfloat16)
            for shape in _SHAPES[setting.device]
        }

    def warm_up(self) -> None:
        """Makes each product once."""
        for x, weight in self._layers.values():
            F.linear(x, weight)

    def run(self) -> Run:
        """Measures the best rate of each type, in operations a second."""
        best: dict[str, float] = {}
        for (dtype, shape), (x, weight) in self._layers.items():
            best[dtype] = max(
                best.get(dtype, 0.0), _rate(x, weight, 2 * shape[0] * shape[1] * shape[2])
            )
        return Run(0, {"rates": best})


def _layer(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, inputs, outputs = shape
    return (
        torch.randn(rows, inputs, dtype=dtype, device=device),
        torch.randn(outputs, inputs, dtype=dtype, device=device),
    )


def _rate(x: torch.Tensor, weight: torch.Tensor, operations: int) -> float:
    with torch.inference_mode():
        return operations * products_per_second(lambda: F.linear(x, weight), _SECONDS)
