from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.kernels import resources
from dragoman.kernels.resources import ResidentLimit


class Process:
    """Memory in use and free memory of a made-up process, in bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, in_use: int, free: int = 0) -> None:
        self.in_use, self.free, self.times_given_back = in_use, free, 0
        monkeypatch.setattr(resources, "resident_bytes", lambda: self.in_use + self.free)
        monkeypatch.setattr(resources, "give_back_memory", self.give_back)

    def give_back(self) -> None:
        self.free = 0
        self.times_given_back += 1


def test_free_memory_is_kept_up_to_half_as_much_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch, in_use=1000)
    limit = ResidentLimit()
    process.free = 500
    limit.enforce()
    assert (process.free, process.times_given_back) == (500, 0)
    process.free = 501
    limit.enforce()
    assert (process.free, process.times_given_back) == (0, 1)


def test_what_is_in_use_is_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch, in_use=1000)
    limit = ResidentLimit()
    process.in_use = 2000
    for _ in range(7):
        process.free = 900
        limit.enforce()
    assert process.times_given_back == 1


def test_without_a_known_size_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "resident_bytes", lambda: None)
    ResidentLimit().enforce()


@pytest.mark.skipif(resources.resident_bytes() is None, reason="the size is known on Linux only")
def test_holes_between_blocks_are_given_back() -> None:
    program = """
import torch
from dragoman.kernels.process import tune_process
from dragoman.kernels.resources import ResidentLimit, resident_bytes

tune_process()
limit = ResidentLimit()
before = resident_bytes()
blocks = [torch.ones(size) for _ in range(251) for size in (500_000, 300)]
del blocks[::2]
assert resident_bytes() > before + 450_000_000
limit.enforce()
assert resident_bytes() < before + 100_000_000
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_the_machine_has_not_is_refused_and_only_meanwhile() -> None:
    program = (
        "import numpy as np\n"
        "from dragoman.kernels import resources\n"
        "resources.available_bytes = lambda: 64 << 20\n"
        "with resources.limited_to_what_is_there():\n"
        "    np.ones(32 << 20, np.uint8)\n"
        "    try: np.ones(256 << 20, np.uint8)\n"
        "    except MemoryError: print('refused')\n"
        "np.ones(256 << 20, np.uint8)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("refused\n", "")


@pytest.mark.parametrize(
    ("most", "files", "available"),
    [("max", 0, 7 << 30), ("1000000", 0, 600_000), ("1000000", 70_000, 740_000)],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_container_may_have_less_than_the_machine(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: int,
    most: str,
    files: int,
    available: int,
) -> None:
    folder, limit, use, prefix = (
        (tmp_path, "memory.max", "memory.current", "")
        if version == 2
        else (tmp_path / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
    )
    folder.mkdir(exist_ok=True)
    if version == 1 and most == "max":
        most = "9223372036854771712"
    (folder / limit).write_text(most)
    (folder / use).write_text("400000")
    cached = f"{prefix}inactive_file {files}\n{prefix}active_file {files}\n"
    (folder / "memory.stat").write_text(f"anon 5\n{cached}")
    monkeypatch.setattr(resources, "_CONTAINERS", tmp_path)
    monkeypatch.setattr(resources, "_MEMORY", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {7 << 20} kB\n")
    assert resources.available_bytes() == available


def test_without_a_container_the_machine_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resources, "_CONTAINERS", tmp_path)
    monkeypatch.setattr(resources, "_MEMORY", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {7 << 20} kB\n")
    assert resources.available_bytes() == 7 << 30
