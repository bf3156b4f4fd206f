"""Seeing and replacing any named quantity of a readable model.

A name is a module's path. The output of every module can be had, such as
`encoder.layers.0.feed_forward`, and inside attention its queries, scores, weights and context, such
as `decoder.layers.3.cross_attention.weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from dragoman.config import InputError, nearest_hint
from dragoman.model.attention import FusedMultiHeadAttention
from dragoman.model.seq2seq import Seq2Seq


def _find(model: Seq2Seq, name: str) -> nn.Module:
    if any(isinstance(module, FusedMultiHeadAttention) for module in model.modules()):
        raise InputError(
            f"{name} can't be seen in the fast model", "attach hooks to model.readable()"
        )
    modules = dict(model.named_modules())
    if name not in modules or not name:
        raise InputError(f"{name!r} is not a quantity of this model", nearest_hint(name, modules))
    return modules[name]


@contextmanager
def replace(model: Seq2Seq, name: str, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Puts function(quantity) in the place of a quantity at every call, until the block ends.

    Raises:
        InputError: if the model is not a readable one or has no such quantity.
    """
    handle = _find(model, name).register_forward_hook(lambda _, __, output: function(output))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def record(model: Seq2Seq, names: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Yields a dictionary that holds each named quantity as of the latest call.

    Raises:
        InputError: as `replace`.
    """
    seen: dict[str, Tensor] = {}
    handles = []
    try:
        for name in names:
            module = _find(model, name)
            handles.append(
                module.register_forward_hook(
                    lambda _, __, output, name=name: seen.__setitem__(name, output.detach())
                )
            )
        yield seen
    finally:
        for handle in handles:
            handle.remove()
