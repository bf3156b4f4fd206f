from __future__ import annotations

import pytest
import torch

from dragoman.config import InputError
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
    ("capabilities", "precision"),
    [
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({"avx2": True}, "float32"),
    ],
)
def test_auto_is_bfloat16_on_a_cpu_that_multiplies_it_fast(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], precision: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert resolve_precision("auto", CPU) == precision
    assert resolve_precision("float32", CPU) == "float32"
    assert resolve_precision("bfloat16", CPU) == "bfloat16"


def test_products_are_made_in_the_precision_asked_for() -> None:
    x = torch.ones(3, 5)
    with compute_in("bfloat16", CPU):
        assert (x @ x.T).dtype == torch.bfloat16
    with compute_in("float32", CPU):
        assert (x @ x.T).dtype == torch.float32
