"""The events of a run for TensorBoard: the extra `tensorboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragoman.config import InputError
from dragoman.training.metrics import Event


class TensorBoard:
    """Writes the numbers of logs and validations as curves.

    Raises:
        InputError: if the package isn't installed.
    """

    def __init__(self, folder: Path) -> None:
        """Takes the folder to write into; it is made at the first event."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "--tensorboard needs the package tensorboard",
                "install it: pip install 'dragoman[tensorboard]'",
            ) from None
        self._open = SummaryWriter
        self._folder = folder
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Takes an event of a run."""
        if event["event"] == "start":  # what a killed run wrote beyond this step is hidden
            self._writer = self._open(str(self._folder), purge_step=event["step"] + 1)
        if event["event"] in ("log", "validation"):
            group = event.get("weights", "training")
            for name, value in event.items():
                if name != "step" and isinstance(value, int | float):
                    self._writer.add_scalar(f"{group}/{name}", value, event["step"])
            self._writer.flush()
