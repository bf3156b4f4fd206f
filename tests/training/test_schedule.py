from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import TrainingConfig
from dragoman.presets import preset_settings
from dragoman.training.schedule import learning_rate


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.7469e-7), (4000, 6.9877e-4), (100_000, 1.3975e-4)]
)
def test_the_papers_schedule_has_its_computed_rates(step: int, rate: float) -> None:
    assert learning_rate(step, TrainingConfig(), 512) == pytest.approx(rate, rel=5e-5)


def test_tensor2tensors_schedule_peaks_at_its_computed_rate() -> None:
    config = TrainingConfig(**preset_settings("t2t-base")["training"])
    assert learning_rate(8000, config, 512) == pytest.approx(9.88e-4, rel=5e-4)


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(["noam", "inverse-square-root", "constant"]),
    st.integers(1, 10_007),
    st.integers(1, 10_007),
)
def test_every_schedule_rises_to_its_peak_exactly_at_the_warm_up_and_never_after(
    schedule: Any, warmup: int, distance: int
) -> None:
    config = TrainingConfig(schedule=schedule, warmup_steps=warmup, peak_learning_rate=0.37)
    peak = learning_rate(warmup, config, 512)
    after = learning_rate(warmup + distance, config, 512)
    assert after == peak if schedule == "constant" else 0 < after < peak
    if distance < warmup:
        before = learning_rate(warmup - distance, config, 512)
        assert before == pytest.approx(peak * (warmup - distance) / warmup)
    if schedule != "noam":
        assert peak == 0.37


def test_inverse_square_root_with_noams_peak_is_noam() -> None:
    noam = TrainingConfig(warmup_steps=401)
    peak = learning_rate(401, noam, 128)
    named = TrainingConfig(
        schedule="inverse-square-root", warmup_steps=401, peak_learning_rate=peak
    )
    for step in (1, 2, 400, 401, 402, 9973):
        assert learning_rate(step, named, 0) == pytest.approx(learning_rate(step, noam, 128))


@pytest.mark.parametrize("schedule", ["inverse-square-root", "constant"])
def test_without_a_warm_up_the_first_step_has_the_peak(schedule: Any) -> None:
    config = TrainingConfig(schedule=schedule, warmup_steps=0, peak_learning_rate=0.37)
    assert learning_rate(1, config, 512) == 0.37
