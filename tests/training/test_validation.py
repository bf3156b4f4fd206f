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
    warning = suspicion({"accuracy": accuracy, "bleu": bleu, "chrf": 5.0})
    assert (warning is not None) == suspicious
    if warning:
        assert f"{accuracy:.0%}" in warning
        assert f"BLEU {bleu}" in warning


def test_bleu_that_found_no_words_is_told_from_a_model_that_can_not_translate() -> None:
    warning = suspicion({"accuracy": 0.9, "bleu": 0.1, "chrf": 61.0})
    assert warning is not None
    assert "--target-language" in warning
    assert "mask" not in warning
