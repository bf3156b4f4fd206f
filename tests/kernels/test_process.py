from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dragoman.kernels import process, timing
from dragoman.kernels.process import product_route


@pytest.fixture(autouse=True)
def as_before() -> object:
    """Puts the process's route back."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


def scripted(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], error: float) -> None:
    """Lets the products of each route take so long, and those of `bf16` be so far off."""
    clock = [0.0]
    product = process._product

    def timed(x: torch.Tensor, weight: torch.Tensor, route: str) -> torch.Tensor:
        clock[0] += seconds[route]
        return product(x, weight, route) * (1 + error * (route == "bf16"))

    monkeypatch.setattr(process, "_product", timed)
    monkeypatch.setattr(timing.time, "thread_time", lambda: clock[0])


@pytest.mark.parametrize(
    ("seconds", "error", "route"),
    [
        ({"none": 2.0, "bf16": 1.0}, 0.0, "onednn"),
        ({"none": 1.0, "bf16": 1.0}, 0.0, "default"),
        ({"none": 1.1, "bf16": 1.0}, 0.0, "default"),
        ({"none": 2.0, "bf16": 1.0}, 2e-3, "default"),
    ],
)
def test_onednn_makes_products_where_it_is_faster_and_as_exact(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], error: float, route: str
) -> None:
    scripted(monkeypatch, seconds, error)
    process._route_products()
    assert product_route() == route


def test_with_one_thread_there_are_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with process.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_importing_dragoman_sets_nothing() -> None:
    program = (
        "import torch; before = torch.backends.mkldnn.matmul.fp32_precision\n"
        "import dragoman, dragoman.training.loop, dragoman.cli.runtime\n"
        "assert torch.backends.mkldnn.matmul.fp32_precision == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_tuned_process_computes_the_same() -> None:
    program = (
        "import torch; from dragoman.kernels.process import tune_process\n"
        "x, y = torch.randn(2, 509, 509)\n"
        "before = x @ y; tune_process(); after = x @ y\n"
        "assert (after - before).abs().max() < 1e-3"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_s_own_route_is_taken_where_it_is_known_to_be_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_exact_routes", {"default": "none"})
    process.use_product_route("default")
    process.use_product_route("onednn")
    assert product_route() == "default"
    monkeypatch.setattr(process, "_exact_routes", {"default": "none", "onednn": "bf16"})
    process.use_product_route("onednn")
    assert product_route() == "onednn"
