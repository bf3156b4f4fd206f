"""What every test shares."""

from __future__ import annotations

import torch

# Toy models gain nothing from a second thread, and one thread adds up in the same order each time.
torch.set_num_threads(1)
