"""Several processes that train one model, as `torchrun` starts them; one process is the plain case.

Each rank takes its share of the sentences of every step. What they do together is a sum over ranks,
so that as many processes as there are learn what one would learn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DistributedDataParallel, it would hold the group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dragoman.config import InputError, RunError
from dragoman.kernels.device import resolve_device

_PATIENCE = timedelta(days=1)
"""How long the ranks wait for the first one to read the data or to validate."""

Shared = TypeVar("Shared")


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    device: torch.device
    rank: int = 0
    count: int = 1
    _wrapped: list[nn.Module] = field(default_factory=list, repr=False, compare=False)

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0

    def share(self, items: Any) -> Any:
        """Returns this rank's part of a sequence: every count-th."""
        return items[self.rank :: self.count]

    def total(self, *numbers: float) -> list[float]:
        """Sums numbers over the ranks, each in float64."""
        if self.count == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def agree(self, value: Shared) -> Shared:
        """Returns the first rank's value on every rank."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, device=self.device)
        return box[0]

    def gather(self, value: Shared) -> list[Shared]:
        """Returns the values of all ranks, on every rank."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def wrap(self, module: nn.Module) -> nn.Module:
        """Makes the gradients of a module, whose forward is the loss, the mean over the ranks."""
        if self.count == 1:
            return module
        # A search for unused parameters keeps the first layout of the buckets. Without it they are
        # laid out anew after the first step, also of a resumed run, which then adds up the shares
        # of three ranks or more in another order than the run that it goes on with.
        wrapper = DistributedDataParallel(module, find_unused_parameters=True)
        self._wrapped.append(wrapper)
        return wrapper

    def leave(self) -> None:
        """Leaves the other ranks; the group's threads have ended then.

        They take Python's lock to give back a tensor. An interpreter that ends before them makes
        them abort it, and a wrapper that is the last to hold the group waits for them with the lock
        in its hand, for ever: so it is emptied first, whoever still holds it.
        """
        for wrapper in self._wrapped:
            wrapper.__dict__.clear()
        dist.destroy_process_group()


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Joins the processes that torchrun started, if it did, and leaves them at the end.

    What `wrap` made is of no use then.

    Args:
        device: `auto`, `cpu` or `cuda`; of several GPUs each process takes one.

    Raises:
        RunError: in place of what torch says where another process has gone.
    """
    place = resolve_device(device)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(place)
        return
    if "LOCAL_RANK" not in os.environ:
        raise InputError(f"WORLD_SIZE is {count}, but LOCAL_RANK is not set", "start with torchrun")
    local = int(os.environ["LOCAL_RANK"])
    if place.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(
                f"--nproc-per-node is above the {torch.cuda.device_count()} GPUs of this machine",
                "start as many processes as there are GPUs",
            )
        place = torch.device("cuda", local)
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_PATIENCE)
    ranks = Ranks(place, dist.get_rank(), count)
    try:
        yield ranks
    except RuntimeError as error:
        if not _names_a_lost_process(str(error)):
            raise
        raise RunError(
            "another process of this run has ended", "its own message says why"
        ) from None
    finally:
        ranks.leave()


def _names_a_lost_process(message: str) -> bool:
    return any(sign in message for sign in ("closed by peer", "Connection reset", "gloo", "NCCL"))
