"""What the machine could do: its rate of matrix products, and how many a batch needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from dragoman.bench.sentences import Ids, Workload
from dragoman.bench.setting import Run, Setting, config_of_size
from dragoman.config import UNK, ModelConfig
from dragoman.kernels.process import tune_process
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.transformer import Transformer

_SHAPES = {
    "cpu": ((1024, 512, 2048), (2048, 512, 512), (4096, 256, 1024), (1024, 1024, 1024)),
    "cuda": ((8192, 8192, 8192), (16384, 4096, 4096)),
}
"""Rows, inputs and outputs of the layers that are tried."""
_SECONDS = 0.1


def count_operations(config: ModelConfig, source: int, target: int) -> int:
    """Counts the floating-point operations of the matrix products that train on one pair.

    Forward and backward of the readable model; a multiplication and an addition are two.

    Args:
        config: the model.
        source: tokens of the source, EOS included.
        target: tokens of the target.
    """
    model = Transformer(config, attention=MultiHeadAttention).eval()
    ids = [torch.full((1, length), UNK) for length in (source, target)]
    with FlopCounterMode(display=False) as counter:
        model(*ids).sum().backward()
    total: int = counter.get_total_flops()
    return total


def useful_operations(config: ModelConfig, pairs: Sequence[tuple[Ids, Ids]]) -> int:
    """Counts the operations that training on pairs needs, each by itself: no padding is in it.

    The count is a polynomial of both lengths, which those of a few short pairs determine.
    """
    samples = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]
    counts = [count_operations(config, *lengths) for lengths in samples]
    coefficients = np.linalg.lstsq(_powers(samples), np.array(counts, float), rcond=None)[0]
    lengths = [(len(source), len(target)) for source, target in pairs]
    return int((_powers(lengths) @ np.rint(coefficients)).sum())


def _powers(lengths: Sequence[tuple[int, int]]) -> npt.NDArray[np.float64]:
    source, target = np.array(lengths, float).T
    return np.stack([source, target, source * source, target * target, source * target], axis=1)


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
        F.linear(x, weight)
        products, started, seconds = 0, time.perf_counter(), 0.0
        while seconds < _SECONDS:
            F.linear(x, weight)[0, 0].item()  # waits until a GPU has done it
            products += 1
            seconds = time.perf_counter() - started
    return operations * products / seconds
