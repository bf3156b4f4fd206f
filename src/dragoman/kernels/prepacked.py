"""Linear layers whose weights are converted once, for a model that only computes.

Plain definition: `torch.nn.functional.linear`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")
"""What torch's compiler uses for weights that stay as they are."""

_LARGE = 1 << 19
"""Elements from which on a float32 weight is packed where only AVX2 is: below, MKL is as fast."""


def packs(weight: Tensor) -> bool:
    """Says whether products with a weight get faster by oneDNN's own order of its elements.

    oneDNN brings a bfloat16 weight into that order at every call, if it isn't in it. In float32,
    MKL is slow for few rows of a large weight, and on some CPUs makes no use of AVX-512.
    """
    operations = torch.ops.mkldnn
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(operations, name) for name in _OPERATIONS):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(operations._is_mkldnn_bf16_supported())
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return weight.dtype == torch.float32 and (has_avx512 or weight.numel() >= _LARGE)


class PrepackedLinear:
    """Computes x W^T + b with a copy of W and b in the type and order that suit the device."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """Converts a weight.

        Args:
            weight: (out, in).
            bias: (out,), if there is one.
            dtype: of the products and of the result.
        """
        weight = weight.detach().to(dtype)
        self._bias = None if bias is None else bias.detach().to(dtype)
        self._dtype = dtype
        self._packed = packs(weight)
        if self._packed:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        self._weight = weight

    @classmethod
    def of(cls, layers: Sequence[nn.Linear], dtype: torch.dtype) -> PrepackedLinear:
        """Returns layers of the same input as one, whose result is theirs side by side."""
        biases = [layer.bias for layer in layers if layer.bias is not None]
        weight = torch.cat([layer.weight.detach() for layer in layers])
        return cls(weight, torch.cat([each.detach() for each in biases]) if biases else None, dtype)

    def __call__(self, x: Float[Tensor, "rows in"]) -> Float[Tensor, "rows out"]:
        """Maps (rows, in) of any type to (rows, out)."""
        x = x.to(self._dtype)
        if self._packed:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._weight, self._bias, "none", [], ""
            )
            return product
        return F.linear(x, self._weight, self._bias)
