"""What memory this process has had. No torch needed; nothing is known but on Linux."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_SLACK = 1.5
"""How many times what the work takes a process may hold before it gives back what is free."""
_MEMORY = Path("/proc/meminfo")
_CONTAINERS = Path("/sys/fs/cgroup")
_LIMITS = (  # of Linux's control groups, version 2 and 1: limit, use, prefix of what can be freed
    ("memory.max", "memory.current", ""),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_"),
)
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes() -> int | None:
    """Returns the memory that this process has now."""
    return _read("VmRSS")


def peak_bytes() -> int | None:
    """Returns the most that it had since its start, or since `reset_peak`.

    Not what getrusage says: a child has its parent's peak there.
    """
    return _read("VmHWM")


def _read(field: str) -> int | None:
    if not _STATUS.exists():
        return None
    [line] = [line for line in _STATUS.read_text("utf-8").splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """Forgets the peak, where the system lets one: what comes before the work doesn't count."""
    with contextlib.suppress(OSError):
        if _RESET.exists():
            _RESET.write_text("5", "utf-8")


def peak_above(work: Callable[[], object]) -> int | None:
    """Returns how much memory a piece of work takes at its peak, above what there was."""
    give_back_memory()
    reset_peak()
    before = resident_bytes()
    work()
    after = peak_bytes()
    return None if before is None or after is None else after - before


def limit_memory(most: int) -> None:
    """Makes a larger allocation fail here, instead of pushing others out of memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@contextlib.contextmanager
def limited_to_what_is_there() -> Iterator[None]:
    """Makes an allocation fail, meanwhile, that would have the system kill this process."""
    available, held = available_bytes(), _read("VmData")
    if available is None or held is None:
        yield
        return
    import resource

    before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([held + available, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def available_bytes() -> int | None:
    """Returns the memory that the machine, or this process's container, could still give."""
    if not _MEMORY.exists():
        return None
    [line] = [line for line in _MEMORY.read_text("utf-8").splitlines() if "MemAvailable" in line]
    left = [int(line.split()[1]) * 1024]
    for limit, use, prefix in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no limit is the word max
            most, now = (int((_CONTAINERS / name).read_text("utf-8")) for name in (limit, use))
            left.append(most - now + _cached_bytes((_CONTAINERS / use).parent, prefix))
    return min(left)


def _cached_bytes(container: Path, prefix: str) -> int:
    """Returns what a container's use holds of files: it makes room for whoever asks."""
    try:
        lines = (container / "memory.stat").read_text("utf-8").splitlines()
        fields = dict(line.split() for line in lines)
        return sum(int(fields[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
    except (OSError, ValueError, KeyError):  # nobody says
        return 0


def give_back_memory() -> None:
    """Gives freed memory back to the system, for the others have their turn; with glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


class ResidentLimit:
    """Keeps a long run near the memory that it takes as this is made.

    Freed memory is best kept for the next tensors, but tensors of ever other sizes leave holes
    between what stays, and without a limit these have grown to four times the memory in use.
    """

    def __init__(self) -> None:
        self._most = self._with_slack()

    def enforce(self) -> None:
        """Gives freed memory back if this process holds more than the limit."""
        if (resident_bytes() or 0) > self._most:
            give_back_memory()
            self._most = max(self._most, self._with_slack())  # what is in use can't be given back

    @staticmethod
    def _with_slack() -> float:
        return _SLACK * (resident_bytes() or 0)
