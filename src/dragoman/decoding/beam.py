"""Beam search: the most promising hypotheses side by side.

At every step the best extensions of the live hypotheses by log-probability live on. An extension by
EOS that no pruned one is better than goes to the sentence's pool of finished hypotheses, which
keeps the best by score. A sentence is done when no live hypothesis can get among the `n_best` of
its pool any more. So nothing is lost by stopping: a beam as wide as the tree, which prunes nothing,
finds what exhaustive search finds, for every length penalty. Hypotheses of one length compete by
their log-probability; length and coverage count where they end.

Why an end needs a place: half a sentence and EOS are improbable, but where the whole is hard to
translate not as improbable as all of its words. See docs/decisions/0010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad

from dragoman.config import EOS, PAD, DecodingConfig
from dragoman.decoding.constraints import NEVER, extend, output_limits
from dragoman.decoding.engine import CUT, Hypothesis
from dragoman.decoding.penalties import length_penalty
from dragoman.decoding.stepper import AttentiveStepper, State, Stepper, pad_ids

_BLOCK = 128
"""Values that are compared by their maximum before one is looked at."""


@dataclass(frozen=True)
class BeamState:
    """All hypotheses of a batch of sentences, both kinds with the best first."""

    sentences: list[int]
    """Which source each line of the batch belongs to; done ones have left."""
    limits: Int[Tensor, " batch"]
    """The longest output of each sentence, EOS included."""
    limit_penalties: Float[Tensor, " batch"]
    """The length penalty of that longest output."""
    prefixes: Int[Tensor, "batch prefix"]
    """What the outputs must begin with, then PAD."""
    tokens: Int[Tensor, "batch beam length"]
    """The live hypotheses, none with EOS."""
    log_probs: Float[Tensor, "batch beam"]
    """Of the live hypotheses; minus infinity where there are fewer than the beam is wide."""
    coverage: Float[Tensor, "batch beam source"]
    """The attention that each source token got so far; no tokens where that doesn't matter."""
    finished_tokens: Int[Tensor, "batch pool finished_length"]
    """The pool: outputs with EOS, then PAD."""
    finished_log_probs: Float[Tensor, "batch pool"]
    finished_scores: Float[Tensor, "batch pool"]
    """What the pool is ranked by, in float64; minus infinity where it isn't full."""
    finished_cut: Bool[Tensor, "batch pool"]
    """Which of them end for want of room alone."""


def start_state(
    stepper: Stepper[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]],
) -> BeamState:
    """Returns one empty live hypothesis for each sentence and an empty pool."""
    batch, beam, device = len(sources), config.beam_size, stepper.device
    forced = pad_ids(prefixes or [[]] * batch, device)
    limits = output_limits(stepper, sources, config, forced)
    penalties = [_penalty(limit, config) for limit in limits]
    # Padding counts as covered.
    attended = (pad_ids(sources, device) == PAD).double()[:, None]
    return BeamState(
        sentences=list(range(batch)),
        limits=torch.tensor(limits, device=device),
        limit_penalties=torch.tensor(penalties, dtype=torch.float64, device=device),
        prefixes=forced,
        tokens=torch.empty(batch, 1, 0, dtype=torch.int64, device=device),
        log_probs=torch.zeros(batch, 1, device=device),
        coverage=attended if config.coverage_penalty else attended[..., :0],
        finished_tokens=torch.empty(batch, beam, 0, dtype=torch.int64, device=device),
        finished_log_probs=torch.full((batch, beam), NEVER, device=device),
        finished_scores=torch.full((batch, beam), NEVER, dtype=torch.float64, device=device),
        finished_cut=torch.zeros(batch, beam, dtype=torch.bool, device=device),
    )


def finish(
    state: BeamState,
    eos_log_probs: Float[Tensor, "batch beam"],
    pruned: Float[Tensor, "batch most"],
    config: DecodingConfig,
) -> BeamState:
    """Returns the state with the pool updated by the live hypotheses that may end here.

    Those may whose end has a place: it is as good as every extension that doesn't live on. At the
    longest length all may, for none can live on; without a place, such an end is a cut. Of equal
    scores the one that was in the pool first stays, so that the short one wins.

    Args:
        state: the state whose live hypotheses may end.
        eos_log_probs: of these, ended.
        pruned: of the best extension that doesn't live on; minus infinity or nothing where all do.
        config: how to search.
    """
    displaced = (eos_log_probs[..., None] < pruned[:, None]).any(dim=2)
    cut = displaced & (state.limits <= state.tokens.shape[2] + 1)[:, None]
    eos_log_probs = eos_log_probs.masked_fill(displaced & ~cut, NEVER)
    scores = _scores(eos_log_probs, state.tokens.shape[2] + 1, state.coverage, config)
    scores, picks = take_best(torch.cat([state.finished_scores, scores], dim=1), config.beam_size)
    log_probs = torch.cat([state.finished_log_probs, eos_log_probs], dim=1)
    longer_pool = pad(state.finished_tokens, (0, 1), value=PAD)
    tokens = torch.cat([longer_pool, pad(state.tokens, (0, 1), value=EOS)], dim=1)
    return replace(
        state,
        finished_tokens=_pick(tokens, picks),
        finished_log_probs=log_probs.gather(1, picks),
        finished_scores=scores,
        finished_cut=torch.cat([state.finished_cut, cut], dim=1).gather(1, picks),
    )


def prune(
    state: BeamState,
    log_probs: Float[Tensor, "batch next"],
    places: Int[Tensor, "batch next"],
    vocab: int,
) -> tuple[BeamState, Int[Tensor, "batch next"]]:
    """Returns the state with the best extensions alive, and the hypotheses that they extend.

    Args:
        state: the state whose live hypotheses were extended.
        log_probs: of the best extensions.
        places: of these among all, (beam x vocab).
        vocab: tokens that each hypothesis was extended by.
    """
    parents = places // vocab
    tokens = torch.cat([_pick(state.tokens, parents), (places % vocab)[..., None]], dim=2)
    coverage = _pick(state.coverage, parents)
    return replace(state, tokens=tokens, log_probs=log_probs, coverage=coverage), parents


def done(state: BeamState, config: DecodingConfig) -> Bool[Tensor, " batch"]:
    """Returns for which sentences no live hypothesis can change the `n_best` best any more."""
    length = state.tokens.shape[2]
    bounds = attainable_scores(
        state.log_probs.double(), _penalty(length + 1, config), state.limit_penalties
    )
    worst = state.finished_scores[:, config.n_best - 1]
    return (state.limits <= length) | (bounds.amax(dim=1) <= worst)


def attainable_scores(
    log_probs: Float[Tensor, "batch beam"],
    next_penalty: float,
    limit_penalties: Float[Tensor, " batch"],
) -> Float[Tensor, "batch beam"]:
    """Returns a bound on the scores that unfinished hypotheses can still reach.

    A log-probability only falls, and the penalty is monotone in the length; so the best case is
    that no further token costs anything and the hypothesis ends either at its next token or at the
    longest length allowed, whatever the sign of alpha. Coverage can only cost.

    Args:
        log_probs: of the hypotheses so far.
        next_penalty: the length penalty of one token more.
        limit_penalties: the length penalty of each sentence's longest output.
    """
    return (log_probs / next_penalty).maximum(log_probs / limit_penalties[:, None])


def keep(state: BeamState, lines: list[int]) -> BeamState:
    """Returns the state of these sentences of the batch alone."""
    rows = torch.tensor(lines, dtype=torch.int64, device=state.tokens.device)
    tensors = {name: value[rows] for name, value in vars(state).items() if name != "sentences"}
    return BeamState(sentences=[state.sentences[line] for line in lines], **tensors)


def outputs(state: BeamState, line: int, config: DecodingConfig) -> list[Hypothesis]:
    """Returns a sentence's pool; where nothing could end, what is alive, flagged `cut`."""
    pool = _hypotheses(
        state.finished_tokens[line],
        state.finished_log_probs[line],
        state.finished_scores[line],
        state.finished_cut[line],
    )
    if pool:
        return pool
    scores = _scores(state.log_probs, max(1, state.tokens.shape[2]), state.coverage, config)
    everywhere = torch.ones_like(scores[line], dtype=torch.bool)
    alive = _hypotheses(state.tokens[line], state.log_probs[line], scores[line], everywhere)
    return sorted(alive, key=lambda each: -each.score)


def beam_search(
    stepper: Stepper[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Returns the `n_best` best hypotheses of each source (ids with EOS), the best first.

    The search itself always follows `beam_size` hypotheses, so that the best one is the same for
    every `n_best`. Ties go to the hypothesis that was ahead, then to the lower token.

    Args:
        stepper: the model; with a coverage penalty one that shows its attention.
        sources: ids with EOS.
        config: how to search.
        prefixes: what each output must begin with, if anything.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    cache = stepper.start(sources)
    state = start_state(stepper, sources, config, prefixes)
    inputs = torch.full((len(sources), 1), stepper.start_token, device=stepper.device)
    while state.sentences:
        next_log_probs = stepper.step(cache, inputs)
        if config.coverage_penalty:
            assert isinstance(stepper, AttentiveStepper)
            state = replace(state, coverage=state.coverage + stepper.attention)
        extended = extend(
            state.log_probs,
            state.tokens,
            next_log_probs,
            config.no_repeat_ngram,
            config.repetition_penalty,
            state.prefixes,
        )
        ends = extended[..., EOS].clone()
        extended[..., EOS] = NEVER
        beam = config.beam_size
        log_probs, places = take_best(extended.flatten(1), beam + 1)
        state = finish(state, ends, log_probs[:, beam:], config)
        grown, parents = prune(state, log_probs[:, :beam], places[:, :beam], extended.shape[2])
        running = []
        for line, is_done in enumerate(done(grown, config).tolist()):
            if is_done:
                best = outputs(grown, line, config) or outputs(state, line, config)
                found[state.sentences[line]] = best[: config.n_best]
            else:
                running.append(line)
        first_rows = torch.arange(parents.shape[0], device=stepper.device) * state.tokens.shape[1]
        rows = first_rows[:, None] + parents
        state = grown
        if len(running) < len(rows):
            state, rows = keep(grown, running), rows[running]
        if running:
            stepper.select(cache, rows)
            inputs = state.tokens[..., -1]
    return found


def take_best(
    values: Float[Tensor, "batch candidates"], count: int
) -> tuple[Float[Tensor, "batch best"], Int[Tensor, "batch best"]]:
    """Returns the largest values and their places, of equal values the first places."""
    count = min(count, values.shape[1])
    blocks = values.shape[1] // _BLOCK
    if blocks > count:
        # They all stand in the `count` blocks with the largest maxima, of equal ones the first, or
        # behind the last block: what stands elsewhere has `count` others before it.
        end = blocks * _BLOCK
        maxima = values[:, :end].unflatten(1, (blocks, _BLOCK)).amax(dim=2)
        within = torch.arange(values.shape[1], device=values.device)
        chosen = _best_places(maxima, count)[..., None] * _BLOCK + within[:_BLOCK]
        candidates = torch.cat([chosen.flatten(1), within[end:].expand(len(values), -1)], dim=1)
        places = candidates.gather(1, _best_places(values.gather(1, candidates), count))
    else:
        places = _best_places(values, count)
    best, order = values.gather(1, places).sort(dim=1, descending=True, stable=True)
    return best, places.gather(1, order)


def _best_places(
    values: Float[Tensor, "batch candidates"], count: int
) -> Int[Tensor, "batch {count}"]:
    """Returns the places of the largest values in their own order, of equal values the first.

    `topk` says how large they are, but of equal ones it takes any; bfloat16 logits often are equal.
    """
    values = values.nan_to_num(float("inf"), float("inf"), float("-inf"))  # NaN first, as in a sort
    least = values.topk(count, dim=1).values[:, -1:]
    above, level = values > least, values == least
    room = count - above.sum(dim=1, keepdim=True)
    return (above | (level & (level.cumsum(dim=1) <= room))).nonzero()[:, 1].view(-1, count)


def _penalty(length: int, config: DecodingConfig) -> float:
    return length_penalty(length, config.length_penalty, config.length_penalty_form)


def _scores(
    log_probs: Float[Tensor, "batch beam"],
    length: int,
    coverage: Float[Tensor, "batch beam source"],
    config: DecodingConfig,
) -> Float[Tensor, "batch beam"]:
    """Returns what hypotheses of this length are ranked by, in float64."""
    scores = log_probs.double() / _penalty(length, config)
    if config.coverage_penalty:
        lowest = torch.finfo(torch.float32).tiny  # so that no score is minus infinity
        scores += config.coverage_penalty * coverage.clamp(lowest, 1.0).log().sum(dim=2)
    return scores


def _hypotheses(
    tokens: Int[Tensor, "hypotheses length"],
    log_probs: Float[Tensor, " hypotheses"],
    scores: Float[Tensor, " hypotheses"],
    cut: Bool[Tensor, " hypotheses"],
) -> list[Hypothesis]:
    """Returns those that are possible; what stands behind EOS is padding."""
    columns = (column.tolist() for column in (tokens, log_probs, scores, cut))
    return [
        Hypothesis(
            ids[: ids.index(EOS) + 1] if EOS in ids else ids,
            log_prob,
            score,
            (CUT,) if is_cut else (),
        )
        for ids, log_prob, score, is_cut in zip(*columns, strict=True)
        if log_prob != NEVER
    ]


def _pick(
    values: Shaped[Tensor, "batch from width"], picks: Int[Tensor, "batch to"]
) -> Shaped[Tensor, "batch to width"]:
    """Returns the hypotheses at these places of each sentence."""
    return values.gather(1, picks[..., None].expand(-1, -1, values.shape[2]))
