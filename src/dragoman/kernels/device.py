"""What a device can do, asked once."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from dragoman.config import InputError


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

    bfloat16 where products in it are fast: a CPU with avx512_bf16 or AMX, a GPU from Ampere on.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    capabilities = torch.cpu.get_capabilities()
    fast = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return "bfloat16" if fast else "float32"


def compute_in(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16 with float32 weights, or everything in the weights' own type."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
