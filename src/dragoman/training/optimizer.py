"""Adam (section 5.3), and its moments by the parameters' names."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from dragoman.checkpoint import Arrays
from dragoman.config import TrainingConfig

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Adam:
    """Makes Adam; the learning rate is set at each step."""
    return torch.optim.Adam(
        model.parameters(),
        lr=0.0,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )


def reserve_moments(optimizer: torch.optim.Adam) -> None:
    """Makes the moments that Adam would make at its first step, so that their memory is taken."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in optimizer.state:
                optimizer.state[parameter] = {
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                    "step": torch.zeros((), device=parameter.device),
                }


def optimizer_arrays(optimizer: torch.optim.Adam, model: nn.Module) -> Arrays:
    """Returns the moments and step counts as `name/moment`; a copy."""
    return {
        f"{name}/{moment}": optimizer.state[parameter][moment].detach().cpu().numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in _MOMENTS
    }


def load_optimizer(optimizer: torch.optim.Adam, model: nn.Module, arrays: Arrays) -> None:
    """Puts moments and step counts back.

    Raises:
        KeyError: if one is missing.
        ValueError: if one has another shape than its parameter.
    """
    for name, parameter in model.named_parameters():
        kept = {moment: np.array(arrays[f"{name}/{moment}"]) for moment in _MOMENTS}
        for moment, array in kept.items():
            shape = () if moment == "step" else tuple(parameter.shape)
            if array.shape != shape:
                raise ValueError(f"{name}/{moment} has the shape {array.shape}, not {shape}")
        optimizer.state[parameter] = {
            moment: torch.from_numpy(array).to(parameter.device) for moment, array in kept.items()
        }
