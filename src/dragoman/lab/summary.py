"""All results and verdicts as JSON, for programs. No torch needed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from dragoman.lab.experiment import Claim, Experiment, Results


def summarize(found: Mapping[str, tuple[Experiment, Results]]) -> dict[str, Any]:
    """Returns experiments with their claims, verdicts and numbers; see docs/laboratory.md."""
    return {
        name: {
            "number": experiment.number,
            "version": experiment.version,
            "title": dataclasses.asdict(experiment.title),
            "question": dataclasses.asdict(experiment.question),
            "claims": [_claim(experiment, claim, results) for claim in experiment.claims],
            "variants": [
                {
                    "name": variant.name,
                    "of": variant.of,
                    "difference": experiment.difference(variant),
                    "published": dict(variant.published),
                }
                for variant in experiment.variants
            ],
            **_finite(dataclasses.asdict(results)),
        }
        for name, (experiment, results) in found.items()
    }


def _claim(experiment: Experiment, claim: Claim, results: Results) -> dict[str, Any]:
    verdict = experiment.judge(claim, results)
    return {
        "statement": dataclasses.asdict(claim.statement),
        "source": dataclasses.asdict(claim.source),
        "prediction": dataclasses.asdict(claim.prediction),
        "outcome": verdict.outcome,
        "foretold": claim.foretold(verdict),
        "seen": dataclasses.asdict(verdict.seen),
    }


def _finite(value: Any) -> Any:
    """Returns the same with None for what isn't finite: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
