"""What the experiments on heads, residuals, feed-forward, norms and the transpose measure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dragoman.config import PAD
from dragoman.lab.experiment import Experiment, Measured, Outcome, Results, Trial
from dragoman.lab.experiments import (
    feed_forward,
    heads,
    norm_kind,
    residual,
    transpose,
)
from dragoman.lab.experiments.feed_forward import superposition_error
from dragoman.lab.experiments.heads import (
    attentions,
    distances,
    exact_share,
    head_distance,
    knock_out,
)
from dragoman.lab.experiments.norm_kind import in_training, neighbour_effect
from dragoman.lab.experiments.residual import spread, through_layers
from dragoman.lab.experiments.transpose import (
    heard,
    influence,
    length_effect,
    reread_exact,
)
from dragoman.lab.leaks import future_effect
from dragoman.lab.scores import predict
from dragoman.lab.trained import Trained, end_and_pad
from dragoman.model.architecture import build_model
from dragoman.model.fast_decoder import FastDecoder
from dragoman.model.surgery import without
from dragoman.model.transformer import Transformer
from dragoman.settings import build_config

Untrained = Callable[..., Trained]
_MODULES = (heads, residual, feed_forward, norm_kind, transpose)


def sides(trained: Trained) -> tuple[Tensor, Tensor]:
    source, target = (end_and_pad(side) for side in trained.ids)
    return source, target


def judged(module: Any, number: int, results: Results) -> Outcome:
    experiment: Experiment = module.EXPERIMENT
    return experiment.judge(experiment.claims[number], results).outcome


def trial(variant: str, right: int = 0, measures: dict[str, Any] | None = None) -> Trial:
    items = [1.0] * right + [0.0] * (20 - right)
    curve = [(1, 0.5)]
    return Trial(variant, 1, curve, {"exact": right / 20, **(measures or {})}, items)


def found(*trials: Trial, **observed: Measured) -> Results:
    return Results(observed, list(trials))


@pytest.mark.parametrize("module", _MODULES)
def test_a_model_of_each_variant_gives_logits(module: Any) -> None:
    vocabularies = {"source_vocab_size": 19, "target_vocab_size": 19}
    ids = torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]])
    for variant in module.EXPERIMENT.variants:
        layers = module.EXPERIMENT.layers(variant)
        model = build_model(build_config(*layers, {"model": vocabularies}).model).eval()
        assert model(ids, model.decoder_input(ids)).isfinite().all()


def test_heads_that_look_elsewhere_are_1_apart_and_those_that_look_alike_0() -> None:
    same = torch.tensor([0.25, 0.75, 0.0])
    elsewhere = torch.tensor([0.0, 0.0, 1.0])
    assert head_distance(torch.stack([same, same])).item() == pytest.approx(0.0, abs=1e-9)
    assert head_distance(torch.stack([same, elsewhere])).item() == pytest.approx(1.0)
    assert head_distance(torch.stack([same, same, elsewhere])).item() == pytest.approx(2 / 3)


def test_the_distance_of_heads_is_the_root_of_the_divergence_in_bits() -> None:
    p, q = [0.5, 0.5], [0.9, 0.1]
    mean = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    divergence = sum(
        0.5 * value * math.log2(value / middle)
        for row in (p, q)
        for value, middle in zip(row, mean, strict=True)
    )
    expected = math.sqrt(divergence)
    assert head_distance(torch.tensor([p, q])).item() == pytest.approx(expected, rel=1e-6)


def test_padding_has_no_part_in_the_distance_of_heads(untrained: Untrained) -> None:
    model = untrained().model
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[7, 8, 9, 3]])
    wide = (torch.nn.functional.pad(side, (0, 3)) for side in (source, target))
    assert distances(model, *wide) == pytest.approx(distances(model, source, target), abs=1e-5)


def test_greedy_search_finds_what_is_right_token_by_token(untrained: Untrained) -> None:
    trained = untrained()
    source, _ = sides(trained)
    target = source.clone()
    for position in range(target.shape[1]):  # now greedy search gives these, as far as they go
        logits = trained.model(source, trained.model.decoder_input(target))
        target[:, position] = logits[:, position].argmax(-1)
    assert exact_share(trained.model, source, target) == 1.0
    target[0, 0] = 5 if target[0, 0] != 5 else 6
    assert exact_share(trained.model, source, target) == 1.0 - 1 / len(target)


def test_a_head_that_is_set_to_zero_is_one_that_surgery_takes_away(untrained: Untrained) -> None:
    trained = untrained()
    assert isinstance(trained.model, Transformer)
    source, _ = sides(trained)
    target = torch.randint(4, 8, source.shape, generator=torch.Generator().manual_seed(1))
    target[: len(target) // 2] = trained.model(source, trained.model.decoder_input(target)).argmax(
        -1
    )[: len(target) // 2]
    zero, mean = knock_out(trained.model, source, target)
    whole = exact_share(trained.model, source, target)
    places = attentions(trained.model)
    assert [len(row) for row in zero] == [len(row) for row in mean] == [4] * len(places)
    for place, row in zip(places, zero, strict=True):
        for head, lost in enumerate(row):
            cut = without(trained.model, [f"{place}.head.{head}"])
            assert exact_share(cut, source, target) == pytest.approx(whole - lost)


def test_the_spread_of_positions_is_0_where_all_are_alike_and_1_where_none_is() -> None:
    assert spread(torch.ones(2, 5, 7)) == pytest.approx(0.0)
    assert spread(torch.eye(5)[None]) == pytest.approx(1.0)
    padded = torch.cat([torch.eye(5), torch.ones(3, 5)])[None]
    assert spread(padded, [5]) == pytest.approx(1.0)


def test_the_last_layer_s_gradient_is_what_the_others_are_measured_by() -> None:
    spreads, gradients = through_layers(residual=True, seed=1)
    assert len(spreads) == len(gradients) == 13
    assert gradients[-1] == 1.0
    assert all(0.0 <= value <= 2.0 for value in spreads)


def test_an_encoder_without_feed_forward_is_no_linear_map() -> None:
    assert superposition_error("none") > 1e-3


def test_the_losses_of_sentences_are_those_of_the_tokens(untrained: Untrained) -> None:
    trained = untrained()
    source, target = sides(trained)
    log_probs = trained.model(source, trained.model.decoder_input(target)).log_softmax(-1)
    found = predict(trained.model, trained, trained.data.test)
    for row, loss in enumerate(found.sentence_means(found.nll).values()):
        length = int((target[row] != PAD).sum())
        tokens = [-log_probs[row, at, target[row, at]].item() for at in range(length)]
        assert loss == pytest.approx(sum(tokens) / length, rel=1e-4)


@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
def test_batch_norm_alone_hears_neighbours_and_the_future_and_only_in_training(
    untrained: Untrained, norm: str
) -> None:
    trained = untrained(norm=norm)
    source, target = (side[0] for side in trained.ids)
    for model, hears in ((trained.in_float64(), False), (in_training(trained.in_float64()), True)):
        effects = neighbour_effect(model, *trained.ids), future_effect(model, source, target)
        for effect in effects:
            assert (effect > 1e-3) if hears and norm == "batch" else (effect < 1e-9)


def test_a_position_hears_every_other_unless_no_way_is_transposed() -> None:
    assert heard("both") == heard("merge") == 1.0
    assert heard("none") == 0.25  # 4 heads, and the length is a multiple of it


def test_an_untransposed_head_hears_its_stretch_of_the_sentence(untrained: Untrained) -> None:
    model = untrained(head_transpose="none").in_float64()
    connected = influence(model, 8) > 0  # 4 heads: two positions each
    stretch = torch.arange(8) // 2
    assert torch.equal(connected, stretch[:, None] == stretch)


@pytest.mark.parametrize(
    ("head_transpose", "leaks", "measures"),
    [("both", False, False), ("merge", True, True), ("none", False, True)],
)
def test_the_mask_leaks_if_one_transpose_is_missing_and_the_length_is_felt_if_any_is(
    untrained: Untrained, head_transpose: str, leaks: bool, measures: bool
) -> None:
    model = untrained(head_transpose=head_transpose).in_float64()
    source, target = [5, 6, 7, 5], [7, 6, 5, 7, 6, 5]
    for effect, expected in (
        (future_effect(model, source, target), leaks),
        (length_effect(model, source, target), measures),
    ):
        assert (effect > 1e-3) if expected else (effect < 1e-9)


@pytest.mark.parametrize("head_transpose", ["merge", "none"])
def test_a_model_without_a_transpose_takes_no_fast_path_that_knows_nothing_of_it(
    untrained: Untrained, head_transpose: str
) -> None:
    trained = untrained(head_transpose=head_transpose)
    source, target = sides(trained)
    assert isinstance(trained.model, Transformer)
    assert not FastDecoder.supports(trained.model)
    target_input, real = trained.model.decoder_input(target), target != PAD
    whole = trained.model.hidden(source, target_input)
    assert torch.equal(trained.model.hidden_of_real(source, target_input, real), whole[real])
    readable = trained.model.readable().hidden(source, target_input)
    assert torch.allclose(readable[real], whole[real], atol=1e-3)


def test_decoding_without_a_cache_finds_the_same(untrained: Untrained) -> None:
    trained = untrained()
    assert reread_exact(trained) == trained.exact(trained.data.test)


@pytest.mark.parametrize(
    ("module", "number", "better", "worse"),
    [
        (heads, 2, "4 heads", "1 head"),
        (heads, 3, "4 heads", "16 heads"),
        (residual, 2, "residual", "no residual"),
        (feed_forward, 0, "ReLU", "none"),
        (feed_forward, 2, "ReLU", "a quarter"),
        (norm_kind, 3, "layer", "batch"),
        (transpose, 3, "transposed", "never transposed"),
    ],
)
def test_more_exact_translations_confirm_fewer_do_not_and_as_many_say_nothing(
    module: Any, number: int, better: str, worse: str
) -> None:
    for first, second, outcome in (
        (18, 3, "confirmed"),
        (3, 18, "not confirmed"),
        (9, 9, "within noise"),
    ):
        assert judged(module, number, found(trial(better, first), trial(worse, second))) == outcome


def test_rms_norm_is_as_good_where_the_whole_interval_is_within_3_percent() -> None:
    for right, outcome in ((2, "not confirmed"), (17, "within noise"), (19, "confirmed")):
        assert judged(norm_kind, 4, found(trial("layer", 19), trial("RMS", right))) == outcome
    slightly = Trial("RMS", 1, [], {"exact": 0.98}, [0.0] * 20 + [1.0] * 980)
    layer = Trial("layer", 1, [], {"exact": 1.0}, [1.0] * 1000)
    assert judged(norm_kind, 4, Results({}, [layer, slightly])) == "confirmed"


def base_heads(**measures: Measured) -> Trial:
    return trial("4 heads", 10, measures)


@pytest.mark.parametrize(("soon", "outcome"), [(0.5, "confirmed"), (0.45, "not confirmed")])
def test_heads_differ_soon_if_they_are_farther_apart_than_at_their_start_on_average(
    soon: float, outcome: str
) -> None:
    seeds = [base_heads(distance={"0": 0.3, "100": end}) for end in (soon, 0.32)]
    assert judged(heads, 0, found(*seeds)) == outcome


def test_heads_differ_strongly_from_half_way_on() -> None:
    for distance, outcome in ((0.5, "confirmed"), (0.49, "not confirmed")):
        assert judged(heads, 1, found(base_heads(distance_at_end=distance))) == outcome


def test_most_heads_are_spare_above_a_half() -> None:
    for share, outcome in ((0.51, "confirmed"), (0.5, "not confirmed")):
        assert judged(heads, 4, found(base_heads(spare=share))) == outcome
    assert judged(heads, 4, found(trial("4 heads", 1, {"spare": 1.0}))) == "no result"


def test_zero_and_mean_ablation_are_compared_head_by_head() -> None:
    low, high = [[0.1, 0.2], [0.0, 0.1]], [[0.3, 0.4], [0.2, 0.4]]
    for zero, mean, outcome in (
        (high, low, "confirmed"),
        (low, high, "not confirmed"),
        (low, low, "within noise"),
    ):
        assert judged(heads, 5, found(base_heads(lost_zero=zero, lost_mean=mean))) == outcome


@pytest.mark.parametrize(("number", "what"), [(0, "gradient"), (1, "spread")])
def test_a_tenth_of_what_residuals_keep_is_the_limit(number: int, what: str) -> None:
    for value, outcome in ((0.09, "confirmed"), (0.11, "not confirmed")):
        observed: dict[str, Measured] = {
            f"{what}_{name}": {"0": kept, "12": kept}
            for name, kept in (("with", 1.0), ("without", value))
        }
        assert judged(residual, number, Results(observed, [])) == outcome


def test_a_deep_model_that_learns_nothing_anyway_can_not_answer() -> None:
    for kept, lost, outcome in (
        (10, 0, "confirmed"),
        (10, 1, "not confirmed"),
        (1, 0, "within noise"),
        (0, 0, "no result"),
    ):
        names = "6 encoder layers", "6 encoder layers, no residual"
        results = found(*(trial(name, n) for name, n in zip(names, (kept, lost), strict=True)))
        assert judged(residual, 3, results) == outcome


def test_a_map_is_nearly_linear_within_a_tenth() -> None:
    for error, outcome in ((0.1, "confirmed"), (0.2, "not confirmed")):
        observed = found(superposition_relu=1.0, superposition_none=error)
        assert judged(feed_forward, 1, observed) == outcome


def test_a_gate_is_better_if_sentences_lose_less() -> None:
    low, high = ({str(n): loss + n / 100 for n in range(20)} for loss in (0.5, 0.9))
    for relu, gated, outcome in (
        (high, low, "confirmed"),
        (low, high, "not confirmed"),
        (low, low, "within noise"),
    ):
        results = found(
            trial("ReLU", measures={"losses": relu, "nll": 0.0}),
            trial("SwiGLU, as many weights", measures={"losses": gated, "nll": 0.0}),
        )
        assert judged(feed_forward, 3, results) == outcome


def test_norms_are_judged_by_what_their_neighbours_and_their_future_do() -> None:
    still, moved = 1e-12, 0.5
    for number, name in ((1, "neighbours"), (2, "future")):
        for training, evaluated, outcome in (
            (moved, still, "confirmed"),
            (moved, moved, "not confirmed"),
            (still, still, "not confirmed"),
        ):
            batch = trial("batch", 0, {f"{name}_training": training, name: evaluated})
            rest = (trial(kind, 0, {f"{name}_training": still}) for kind in ("layer", "RMS"))
            assert judged(norm_kind, number, found(batch, *rest)) == outcome
    for effect, outcome in ((still, "confirmed"), (moved, "not confirmed")):
        results = found(
            *(
                trial(kind, 0, {"neighbours": still, "neighbours_training": effect})
                for kind in ("layer", "RMS")
            )
        )
        assert judged(norm_kind, 0, results) == outcome


def test_pairs_that_one_layer_connects_are_all_or_at_most_half() -> None:
    for both, none, outcome in ((1.0, 0.4, "confirmed"), (1.0, 0.6, "not confirmed")):
        observed = found(heard_both=both, heard_merge=0.3, heard_none=none)
        assert judged(transpose, 0, observed) == outcome


@pytest.mark.parametrize(("number", "measure", "none"), [(1, "future", 0.0), (2, "length", 0.7)])
def test_the_sound_model_neither_looks_ahead_nor_feels_the_length(
    number: int, measure: str, none: float
) -> None:
    for both, outcome in ((0.0, "confirmed"), (0.7, "not confirmed")):
        names = {"transposed": both, "transposed back only": 0.7, "never transposed": none}
        results = found(*(trial(name, 0, {measure: value}) for name, value in names.items()))
        assert judged(transpose, number, results) == outcome


def test_a_curve_that_looks_sound_has_right_tokens_and_wrong_translations() -> None:
    for forced, right, outcome in (
        (0.95, 2, "confirmed"),
        (0.85, 2, "not confirmed"),
        (0.95, 15, "not confirmed"),
    ):
        leaking = trial("transposed back only", right, {"forced": forced, "reread": 0.0})
        assert judged(transpose, 4, found(trial("transposed", 18), leaking)) == outcome
        assert judged(transpose, 4, found(trial("transposed", 0), leaking)) == "no result"
