"""Settings of the whole process, which a program makes at its start and no import does."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.kernels.timing import least_cpu_seconds

_settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # made at run time
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
"""Names of mallopt(3)."""
_LARGE_BLOCK = 4 << 20
_PRIMITIVES = 64
"""Kernels that oneDNN keeps for shapes that may come again; a step's own are enough.

Its 1,024 hold half a gigabyte where every batch has shapes of its own, and lie scattered.
"""
_GAIN = 1.2
"""How many times faster a route must be: where it helps, it nearly doubles the speed."""
_EXACT = 4.0
"""How many times larger an error may be than by default; rounding makes it a thousand times."""
_ROUNDS = 5
_exact_routes = {"default": "none"}
"""The routes that are known to be exact here, and torch's names of them."""


def tune_process(*, frugal: bool = False) -> None:
    """Makes this process fast on a CPU; results change by rounding at most.

    Memory that was freed is kept for the next tensor, and float32 products go through oneDNN where
    it is faster than torch's default and as exact.

    Args:
        frugal: give large blocks back as soon as they are free. That takes half the memory and, for
            the system clears each block, up to half as much time again: for gradient
            checkpointing, whose gain is lost otherwise.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_PRIMITIVES))  # read at first use
    _manage_memory(frugal)
    if torch.backends.mkldnn.is_available() and torch.cpu.get_capabilities().get("avx512_f"):
        _route_products()


def product_route() -> str:
    """Returns what makes float32 products on a CPU: `onednn` or torch's `default`."""
    return "onednn" if _settings.fp32_precision == "bf16" else "default"


def use_product_route(route: str) -> None:
    """Makes float32 products as a run has made them before, if that is as exact on this CPU."""
    if route in _exact_routes:
        _settings.fp32_precision = _exact_routes[route]


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch compute with one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _manage_memory(frugal: bool) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is None:
        return
    if frugal:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
    else:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _route_products() -> None:
    """Chooses between torch's default and oneDNN by what they do with one product.

    torch offers oneDNN in float32 only by the permission to round to bfloat16. A CPU with AVX-512
    and without AMX doesn't make use of it and is still twice as fast as MKL on some makes; another
    may really round, which the error shows. One thread tells, by its CPU time: on a busy machine
    several wait for one another.
    """
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(rows, 512, generator=generator) for rows in (512, 1024))
    exact = F.linear(x.double(), weight.double())
    routes = ("none", "bf16")
    errors = {route: (_product(x, weight, route) - exact).abs().max().item() for route in routes}
    works = {each: partial(_product, x, weight, each) for each in routes}
    with one_thread():
        seconds = least_cpu_seconds(works, _ROUNDS)
    gain = seconds["none"] / seconds["bf16"]
    sound = errors["bf16"] < _EXACT * errors["none"]
    if sound:
        _exact_routes["onednn"] = "bf16"
    _settings.fp32_precision = "bf16" if sound and gain > _GAIN else "none"


def _product(x: Tensor, weight: Tensor, route: str) -> Tensor:
    _settings.fp32_precision = route
    return F.linear(x, weight)
