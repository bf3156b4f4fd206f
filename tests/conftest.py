"""What every test shares."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

# Toy models gain nothing from a second thread, and one thread adds up in the same order each time.
torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Checks shapes where parts are tested; whole runs would take four times as long."""
    whole_runs = item.path.parent.name in ("training", "cli", "lab")
    jaxtyping.config.update("jaxtyping_disable", whole_runs)
