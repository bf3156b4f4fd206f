"""What a device can do, asked once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache, partial

import torch
import torch.nn.functional as F

from dragoman.config import InputError
from dragoman.kernels.process import one_thread
from dragoman.kernels.timing import least_cpu_seconds

_GAIN = 1.2
"""How many times faster than in float32 products in bfloat16 must be to be worth their rounding."""
_ROUNDS = 5


def resolve_device(name: str) -> torch.device:
    """Returns the device that `auto`, `cpu` or `cuda` means on this machine.

    Raises:
        InputError: for `cuda` where there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "--device is cuda, but torch finds no CUDA device here", "use --device cpu or auto"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def resolve_precision(precision: str, device: torch.device) -> str:
    """Returns `float32` or `bfloat16`: what `auto` means on a device.

    bfloat16 on a GPU from Ampere on, and on a CPU that has instructions for it and is faster with
    them: some halve the time of float32, some double it.
    """
    if precision != "auto":
        return precision
    fast = offers_bfloat16(device) and (device.type == "cuda" or _bfloat16_gain() > _GAIN)
    return "bfloat16" if fast else "float32"


def offers_bfloat16(device: torch.device) -> bool:
    """Returns whether a device multiplies in bfloat16 by itself, and not in float32 instead."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@cache
def _bfloat16_gain() -> float:
    """Returns how many times faster this CPU multiplies in bfloat16 than in float32, as it is set.

    The flag of a CPU doesn't tell. torch 2.13, one core each: 437 GFLOP/s and 203 with an AMD
    Zen 5, 84 and 165 with an Intel Xeon (family 6, model 207) whose AMX is hidden.
    """
    x, weight = torch.ones(512, 512), torch.ones(1024, 512)
    works = {
        str(dtype): partial(F.linear, x.to(dtype), weight.to(dtype))
        for dtype in (torch.float32, torch.bfloat16)
    }
    with one_thread():  # on a busy machine several wait for one another
        wide, narrow = least_cpu_seconds(works, _ROUNDS).values()
    return wide / narrow


def compute_in(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16 with float32 weights, or everything in the weights' own type."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
