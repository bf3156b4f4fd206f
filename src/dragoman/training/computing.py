"""How a run's numbers are computed. What was measured to be faster stays: later it may not be."""

from __future__ import annotations

import torch

from dragoman.kernels.device import offers_bfloat16, resolve_precision
from dragoman.kernels.process import product_route, use_product_route
from dragoman.training.distributed import Ranks

_ROUTE = ", products by "


def choose_precision(asked: str, device: torch.device, before: str) -> str:
    """Returns the precision as asked for; if that is `auto`, the one that the run began with.

    Args:
        asked: `training.precision`.
        device: to train on.
        before: what `settle_computing` returned when the run began; empty for a new one.
    """
    kept, _, where = before.partition(",")[0].partition(" on ")
    possible = kept == "float32" or (kept == "bfloat16" and offers_bfloat16(device))
    if asked == "auto" and where == device.type and possible:
        return kept
    return resolve_precision(asked, device)


def settle_computing(precision: str, ranks: Ranks, before: str) -> tuple[str, bool]:
    """Makes float32 products the way the run began with, the same in all ranks.

    Also those of a bfloat16 run, which validates in float32.

    Returns:
        How this run computes now, such as `float32 on cpu, products by onednn`, and whether that
        is another way than before.
    """
    before, _, kept = before.partition(_ROUTE)
    now, route = f"{precision} on {ranks.device.type}", ""
    if ranks.device.type == "cpu" and precision != "float64":
        use_product_route(ranks.agree(kept or product_route()))
        route = product_route()
    changed = before not in ("", now) or kept not in ("", route)
    return now + (f"{_ROUTE}{route}" if route else ""), changed
