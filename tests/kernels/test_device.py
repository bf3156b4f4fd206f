from __future__ import annotations

import pytest
import torch

from dragoman.config import InputError
from dragoman.kernels import device, timing
from dragoman.kernels.device import compute_in, resolve_device, resolve_precision

CPU = torch.device("cpu")


def test_cuda_where_there_is_none_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="--device is cuda") as caught:
        resolve_device("cuda")
    assert caught.value.hint == "use --device cpu or auto"
    assert resolve_device("auto") == CPU


def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto").type == "cuda"
    assert resolve_device("cpu") == CPU


@pytest.mark.parametrize(
    ("capabilities", "gain", "precision"),
    [
        ({"avx512_bf16": True}, 2.0, "bfloat16"),
        ({"amx_bf16": True}, 8.0, "bfloat16"),
        ({"avx512_bf16": True}, 0.5, "float32"),
        ({"avx512_bf16": True}, 1.1, "float32"),
        ({"avx2": True}, 2.0, "float32"),
    ],
)
def test_auto_is_bfloat16_on_a_cpu_that_is_found_to_multiply_it_fast(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], gain: float, precision: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(device, "_bfloat16_gain", lambda: gain)
    assert resolve_precision("auto", CPU) == precision
    assert resolve_precision("float32", CPU) == "float32"
    assert resolve_precision("bfloat16", CPU) == "bfloat16"


@pytest.mark.parametrize(("narrow", "gain"), [(1.0, 2.0), (4.0, 0.5)])
def test_the_gain_of_bfloat16_is_the_ratio_of_the_times(
    monkeypatch: pytest.MonkeyPatch, narrow: float, gain: float
) -> None:
    clock, product = [0.0], torch.nn.functional.linear

    def timed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        clock[0] += narrow if x.dtype == torch.bfloat16 else 2.0
        return product(x, weight)

    monkeypatch.setattr(torch.nn.functional, "linear", timed)
    monkeypatch.setattr(timing.time, "thread_time", lambda: clock[0])
    assert device._bfloat16_gain.__wrapped__() == pytest.approx(gain)


def test_products_are_made_in_the_precision_asked_for() -> None:
    x = torch.ones(3, 5)
    with compute_in("bfloat16", CPU):
        assert (x @ x.T).dtype == torch.bfloat16
    with compute_in("float32", CPU):
        assert (x @ x.T).dtype == torch.float32
