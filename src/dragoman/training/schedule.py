"""The learning rate of each step (section 5.3)."""

from __future__ import annotations

import math

from dragoman.config import TrainingConfig


def learning_rate(step: int, config: TrainingConfig, d_model: int) -> float:
    """Returns the learning rate of a step; steps count from 1.

    noam: factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (equation 3).
    inverse-square-root: the same curve, named by its peak, which it reaches at the warm-up's end.
    constant: a linear warm-up to the peak, then the peak.
    """
    assert step >= 1
    warmup = config.warmup_steps
    if config.schedule == "noam":
        slope = min(1 / math.sqrt(step), step / warmup / math.sqrt(warmup))
        return config.noam_factor * slope / math.sqrt(d_model)
    if step < warmup:
        return config.peak_learning_rate * step / warmup
    if config.schedule == "constant":
        return config.peak_learning_rate
    return config.peak_learning_rate * math.sqrt(max(warmup, 1) / step)
