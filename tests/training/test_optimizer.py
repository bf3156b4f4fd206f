from __future__ import annotations

import numpy as np
import torch
from torch import nn

from dragoman.config import TrainingConfig
from dragoman.training.optimizer import build_optimizer, load_optimizer, optimizer_arrays


def test_adam_has_the_papers_constants() -> None:
    group = build_optimizer(nn.Linear(3, 5), TrainingConfig()).param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0)


def test_steps_are_adams_formulas() -> None:
    model = nn.Linear(3, 5).double()
    optimizer = build_optimizer(model, TrainingConfig())
    optimizer.param_groups[0]["lr"] = 0.1
    wanted = model.weight.detach().numpy().copy()
    m = v = np.zeros((5, 3))
    for t in range(1, 5):
        model.weight.grad = torch.randn(5, 3, dtype=torch.float64)
        gradient = model.weight.grad.numpy().copy()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.98**t)
        wanted -= 0.1 * m_hat / (np.sqrt(v_hat) + 1e-9)
        np.testing.assert_allclose(model.weight.detach().numpy(), wanted, rtol=1e-6)


def test_with_its_moments_back_under_their_names_adam_takes_the_same_next_step() -> None:
    models = nn.Linear(3, 5), nn.Linear(3, 5)
    ours, theirs = (build_optimizer(model, TrainingConfig()) for model in models)

    def step(model: nn.Linear, optimizer: torch.optim.Adam) -> None:
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.zero_grad()
        model(torch.ones(7, 3)).pow(2).sum().backward()
        optimizer.step()

    step(models[0], ours)
    models[1].load_state_dict(models[0].state_dict())
    arrays = optimizer_arrays(ours, models[0])
    assert {"weight/exp_avg", "weight/exp_avg_sq", "weight/step", "bias/step"} < arrays.keys()
    load_optimizer(theirs, models[1], arrays)
    for model, optimizer in zip(models, (ours, theirs), strict=True):
        step(model, optimizer)
    assert torch.equal(models[0].weight, models[1].weight)
    assert torch.equal(models[0].bias, models[1].bias)
