from __future__ import annotations

import pytest

from dragoman.lab.experiment import Results, Trial, Variant, flatten
from dragoman.lab.experiments import size, table3
from dragoman.presets import preset_settings
from dragoman.settings import build_config

EXPERIMENT = table3.EXPERIMENT


def results(base: float, others: float, **measures: float) -> Results:
    """All rows but the base have one BLEU, and the losses of both may be given."""

    def score(variant: Variant, measure: str, usual: float) -> float:
        return measures.get(f"{measure}_{'others' if variant.change else 'base'}", usual)

    return Results(
        {},
        [
            Trial(
                variant.name,
                1,
                [],
                {
                    "bleu": (bleu := others if variant.change else base),
                    "perplexity": 2.0,
                    "bleu_parts": {str(part): bleu + part for part in range(9)},
                    "nll_shares": {str(n): score(variant, "nll", 0.7) + n for n in range(9)},
                },
            )
            for variant in EXPERIMENT.variants
        ],
    )


def outcomes(found: Results) -> dict[str, str]:
    """The verdicts by the statements."""
    return {
        claim.statement.en: EXPERIMENT.judge(claim, found).outcome for claim in EXPERIMENT.claims
    }


def test_the_base_is_the_papers_with_its_widths_divided_by_eight() -> None:
    ours = flatten(build_config(*EXPERIMENT.layers(EXPERIMENT.base)))
    paper = flatten(build_config({}))
    for name in ("d_model", "d_ff", "d_k", "d_v"):
        assert ours[f"model.{name}"] * 8 == paper[f"model.{name}"]
    for name in ("num_heads", "num_encoder_layers", "dropout", "norm_place", "positions"):
        assert ours[f"model.{name}"] == paper[f"model.{name}"]
    assert ours["training.label_smoothing"] == paper["training.label_smoothing"]


def test_in_full_size_the_rows_are_the_papers_own() -> None:
    full = table3.FULL_SIZE
    assert flatten(build_config(*full.layers(full.base))) == flatten(
        build_config(preset_settings("paper-base"))
    )
    assert [each.name for each in full.variants] == [each.name for each in EXPERIMENT.variants]
    for variant, narrow in zip(full.variants[1:], EXPERIMENT.variants[1:], strict=True):
        assert variant.change is not None
        assert narrow.change is not None
        for name, value in variant.change.all.items():
            is_width = name in ("model.d_model", "model.d_ff", "model.d_k")
            assert value == narrow.change.all[name] * (8 if is_width else 1)
        assert variant.published == narrow.published
    model, paper = full.layers(full.variant("big")), preset_settings("paper-big")["model"]
    assert paper == {
        name.removeprefix("model."): value
        for name, value in flatten(build_config(*model)).items()
        if name.removeprefix("model.") in paper
    }


def test_the_sizes_in_full_are_those_of_the_presets() -> None:
    full = size.FULL_SIZE
    for variant in full.variants:
        ours, preset = (
            flatten(build_config(*layers))
            for layers in (full.layers(variant), [preset_settings(variant.name)])
        )
        for name in ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads"):
            assert ours[f"model.{name}"] == preset[f"model.{name}"]
        assert ours["model.norm_place"] == "pre"  # decision 4: what tiny needs


def test_a_base_is_told_from_the_papers_but_for_its_text_and_its_budget() -> None:
    full = table3.FULL_SIZE
    assert full.difference(full.base) == ""
    told = EXPERIMENT.difference(EXPERIMENT.base)
    assert "model.d_model = 64 (was 512)" in told
    assert "training.batch_tokens = 512 (was 25000)" in told
    assert "data." not in told
    assert "max_steps" not in told


def test_every_row_has_the_papers_numbers_and_its_score_falls_with_its_perplexity() -> None:
    rows = [variant.published for variant in EXPERIMENT.variants]
    assert all(row.keys() == {"perplexity", "bleu", "parameters"} for row in rows)
    assert rows[0] == {"perplexity": 4.92, "bleu": 25.8, "parameters": 65}
    assert max(rows, key=lambda row: row["bleu"]) == rows[-1]
    assert min(rows, key=lambda row: row["perplexity"]) == rows[-1]


_BY_BLEU = ("Without dropout", "Without label smoothing", "The big model")


def test_nothing_is_judged_beside_a_base_that_has_not_learnt() -> None:
    assert set(outcomes(results(29.0, 60.0)).values()) == {"no result"}
    assert "no result" not in outcomes(results(31.0, 60.0)).values()


def test_dropout_smoothing_and_the_big_model_are_judged_by_bleu_and_the_rest_by_loss() -> None:
    lower = outcomes(results(60.0, 40.0))
    for statement, outcome in lower.items():
        assert (outcome in ("confirmed", "not confirmed")) == (
            statement.startswith(_BY_BLEU) or "as good as" in statement
        )
    higher = outcomes(results(60.0, 60.0, nll_base=0.5, nll_others=0.7))
    for statement, outcome in higher.items():
        assert (outcome == "within noise") == statement.startswith(_BY_BLEU)


def test_a_base_of_lower_loss_is_better_and_wider_rows_are_to_beat_it() -> None:
    found = outcomes(results(60.0, 60.0, nll_base=0.5, nll_others=0.7))
    assert found["One head is worse than eight."] == "confirmed"
    assert found["A wider model is better."] == "not confirmed"


@pytest.mark.parametrize(
    ("others", "outcome"), [(0.71, "confirmed"), (0.73, "not confirmed"), (0.67, "not confirmed")]
)
def test_equal_rows_have_perplexities_within_2_percent(others: float, outcome: str) -> None:
    found = outcomes(results(60.0, 60.0, nll_base=0.7, nll_others=others))
    assert found["Learned positions are as good as sinusoids."] == outcome


def test_a_claim_s_source_has_the_papers_numbers() -> None:
    sources = [claim.source.en for claim in EXPERIMENT.claims]
    assert sources[0].endswith("A, 1 head: perplexity 5.29, base 4.92")
    assert sources[-1].endswith("big: BLEU 26.4, base 25.8")
