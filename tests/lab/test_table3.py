from __future__ import annotations

import pytest

from dragoman.lab.experiment import Results, Trial, flatten
from dragoman.lab.experiments import table3
from dragoman.settings import build_config

EXPERIMENT = table3.EXPERIMENT


def results(base: float, others: float) -> Results:
    """All rows but the base have one score."""
    return Results(
        {},
        [
            Trial(
                variant.name,
                1,
                [],
                {
                    "bleu": (score := others if variant.change else base),
                    "perplexity": 2.0,
                    "bleu_parts": {str(part): score + part for part in range(9)},
                },
            )
            for variant in EXPERIMENT.variants
        ],
    )


def test_the_base_is_the_papers_with_its_widths_divided_by_eight() -> None:
    ours = flatten(build_config(*EXPERIMENT.layers(EXPERIMENT.base)))
    paper = flatten(build_config({}))
    for name in ("d_model", "d_ff", "d_k", "d_v"):
        assert ours[f"model.{name}"] * 8 == paper[f"model.{name}"]
    for name in ("num_heads", "num_encoder_layers", "dropout", "norm_place", "positions"):
        assert ours[f"model.{name}"] == paper[f"model.{name}"]
    assert ours["training.label_smoothing"] == paper["training.label_smoothing"]


def test_every_row_has_the_papers_numbers_and_its_score_falls_with_its_perplexity() -> None:
    rows = [variant.published for variant in EXPERIMENT.variants]
    assert all(row.keys() == {"perplexity", "bleu", "parameters"} for row in rows)
    assert rows[0] == {"perplexity": 4.92, "bleu": 25.8, "parameters": 65}
    assert max(rows, key=lambda row: row["bleu"]) == rows[-1]
    assert min(rows, key=lambda row: row["perplexity"]) == rows[-1]


@pytest.mark.parametrize(
    ("base", "others", "outcome"),
    [(30.0, 20.0, "confirmed"), (20.0, 30.0, "not confirmed"), (0.3, 0.1, "no result")],
)
def test_the_first_row_is_judged_beside_a_base_that_has_learnt(
    base: float, others: float, outcome: str
) -> None:
    found = results(base, others)
    assert EXPERIMENT.judge(EXPERIMENT.claims[0], found).outcome == outcome


def test_equal_rows_are_equal() -> None:
    [claim] = [each for each in EXPERIMENT.claims if "as good as" in each.statement.en]
    assert EXPERIMENT.judge(claim, results(20.0, 20.0)).outcome == "confirmed"
    assert EXPERIMENT.judge(claim, results(0.0, 0.0)).outcome == "no result"
