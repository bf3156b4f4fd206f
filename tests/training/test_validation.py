from __future__ import annotations

import pytest

from dragoman.training.validation import suspicion


@pytest.mark.parametrize(
    ("accuracy", "bleu", "suspicious"),
    [(0.95, 0.3, True), (0.95, 31.0, False), (0.31, 0.3, False), (0.71, 1.9, True)],
)
def test_high_accuracy_with_hardly_any_bleu_is_a_warning(
    accuracy: float, bleu: float, suspicious: bool
) -> None:
    warning = suspicion({"accuracy": accuracy, "bleu": bleu})
    assert (warning is not None) == suspicious
    if warning:
        assert f"{accuracy:.0%}" in warning
        assert f"BLEU {bleu}" in warning
