"""Want of memory, by whatever name it comes. No torch needed."""

from __future__ import annotations

_SIGNS = ("out of memory", "can't allocate memory")


def is_want_of_memory(error: BaseException) -> bool:
    """Says whether an error means that there was not enough memory."""
    # torch has an exception for a GPU's memory only: on a CPU its text is all there is
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _SIGNS)
