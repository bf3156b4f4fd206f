from __future__ import annotations

import pytest

from .runs import FinishedRun, run_and_listen, toy_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run of 7 steps with the settings of `runs`; to be read only."""
    folder = tmp_path_factory.mktemp("finished")
    return FinishedRun(folder / "m", run_and_listen(folder / "m", toy_run(folder)))
