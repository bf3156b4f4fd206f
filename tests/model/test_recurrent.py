"""The LSTMs: what they compute, with whose neighbours, and that every part of a run takes them."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman import load
from dragoman.checkpoint import ModelFolder
from dragoman.cli import main
from dragoman.config import BOS, EOS, PAD, InputError, ModelConfig
from dragoman.data.tasks import make_task
from dragoman.decoding.loader import load_model
from dragoman.decoding.stepper import ModelStepper, ReadableStepper
from dragoman.kernels.device import compute_in
from dragoman.model import hooks
from dragoman.model.architecture import build_model
from dragoman.model.loss import label_smoothed_cross_entropy, training_loss
from dragoman.model.recurrent import AdditiveAttention, Memory, Recurrent
from dragoman.model.transformer import Transformer
from dragoman.settings import build_config
from dragoman.training import budget
from dragoman.training.budget import BatchShape

from ..peak import Peak
from ..training.runs import PAIRS, FinishedRun, run_and_listen, toy_run
from .toys import toy_config, toy_ids

SIZES: dict[str, Any] = {"architecture": "recurrent", "d_model": 10}
SWITCHES = st.fixed_dictionaries(
    {
        "num_encoder_layers": st.integers(1, 3),
        "num_decoder_layers": st.integers(1, 3),
        "decoder_start": st.sampled_from(["bos", "eos", "pad", "zero"]),
        "embedding_scale": st.booleans(),
        "cross_attention": st.booleans(),
        "tie": st.sampled_from(["source-target-output", "target-output", "none"]),
    }
)
SOURCES = [[4, 7, 5, 11, 6, EOS], [9, EOS], [8, 8, 4, EOS]]


def recurrent(**switches: Any) -> Recurrent:
    """Returns a model in float64 and in evaluation mode whose every parameter is random."""
    torch.manual_seed(7)
    model = Recurrent(toy_config(**{**SIZES, **switches})).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5)
    return model


@settings(max_examples=17, deadline=None)
@given(SWITCHES)
def test_each_token_of_a_target_has_logits_over_the_vocabulary(switches: dict[str, Any]) -> None:
    source, target = toy_ids(7, 3), toy_ids(5, 2)
    model = recurrent(**switches)
    assert model(source, model.decoder_input(target)).shape == (2, 5, 19)


@settings(max_examples=17, deadline=None)
@given(SWITCHES)
def test_steps_with_a_cache_are_the_forward_pass(switches: dict[str, Any]) -> None:
    model, source, target = recurrent(**switches), toy_ids(7, 3), toy_ids(5, 5, seed=11)
    inputs, cache = model.decoder_input(target), model.start(source)
    steps = [model.step(inputs[:, n : n + 1], cache) for n in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), model(source, inputs), rtol=0, atol=1e-10)


def force_selected(model: Recurrent, moves: Sequence[Sequence[Sequence[int]]]) -> None:
    """Steps with reordered hypotheses, and checks each against a forward pass of its own."""
    stepper, generator = ModelStepper(model), torch.Generator().manual_seed(5)
    state, sources = stepper.start(SOURCES), [[ids] for ids in SOURCES]
    texts: list[list[list[int]]] = [[[BOS]] for _ in SOURCES]
    for rows in moves:
        tokens = torch.tensor([[text[-1] for text in each] for each in texts])
        found = stepper.step(state, tokens)
        for sentence, each in enumerate(texts):
            for place, text in enumerate(each):
                source = torch.tensor(sources[sentence][:1])
                alone = model(source, torch.tensor([text]))[0, -1].log_softmax(-1)
                torch.testing.assert_close(found[sentence, place], alone, rtol=0, atol=1e-10)
        width = len(texts[0])
        stepper.select(state, torch.tensor(rows))
        sources = [sources[line[0] // width] for line in rows]
        texts = [[list(texts[row // width][row % width]) for row in line] for line in rows]
        for each in texts:
            for text in each:
                text.append(int(torch.randint(4, 19, (), generator=generator)))


@pytest.mark.parametrize("cross_attention", [True, False])
def test_hypotheses_keep_their_own_state_whoever_leaves(cross_attention: bool) -> None:
    moves = [[[0, 0], [1, 1], [2, 2]], [[1, 0], [2, 2], [5, 4]], [[5, 4], [0, 1]], [[3, 2, 3]]]
    force_selected(recurrent(cross_attention=cross_attention), moves)


@settings(max_examples=17, deadline=None)
@given(SWITCHES, st.integers(1, 5))
def test_neither_neighbours_nor_padding_change_a_sentence(
    switches: dict[str, Any], more: int
) -> None:
    model, source, target = recurrent(**switches), toy_ids(4), toy_ids(3, seed=5)
    alone = model(source, model.decoder_input(target))
    many, theirs = toy_ids(4 + more, 4, 2), toy_ids(3 + more, 3, 1, seed=5)
    many[1, :4], theirs[1, :3] = source[0], target[0]
    among = model(many, model.decoder_input(theirs))[1:2, :3]
    torch.testing.assert_close(among, alone, rtol=0, atol=1e-10)


def test_without_a_padding_mask_the_padding_is_read() -> None:
    model, target = recurrent(padding_mask=False), toy_ids(3, seed=5)
    alone, padded = (model(toy_ids(4, width=width), target) for width in (4, 5))
    assert (alone - padded).abs().max() > 1e-3


def test_a_token_changes_no_prediction_before_it() -> None:
    model, source, target = recurrent(), toy_ids(5), toy_ids(7)
    before, after = model(source, target), model(source, target.index_fill(1, torch.tensor(4), 4))
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4], after[:, 4])


def test_the_encoder_is_two_lstms_that_stop_where_a_sentence_ends() -> None:
    model, length = recurrent(num_encoder_layers=1), 3
    source = toy_ids(length, width=5)
    forwards, backwards = nn.LSTM(10, 5).double(), nn.LSTM(10, 5).double()
    ours = model.encoder.lstm.state_dict()
    for lstm, suffix in ((forwards, ""), (backwards, "_reverse")):
        lstm.load_state_dict({name: ours[name + suffix] for name in lstm.state_dict()})
    x = model.source_embedding(source)[0, :length]
    ahead, (ahead_last, _) = forwards(x)
    back, (back_last, _) = backwards(x.flip(0))
    memory, (outputs, _) = model.encode(source)
    torch.testing.assert_close(memory.values[0, :length], torch.cat([ahead, back.flip(0)], -1))
    torch.testing.assert_close(outputs[-1, 0], torch.cat([ahead_last[0], back_last[0]]))


@pytest.mark.parametrize(
    ("encoder", "decoder", "begins_in"),
    [(2, 2, [0, 1]), (3, 2, [1, 2]), (1, 3, [0, 0, 0]), (2, 3, [0, 0, 1])],
)
def test_the_decoder_begins_in_the_encoders_last_states(
    encoder: int, decoder: int, begins_in: list[int]
) -> None:
    model = recurrent(num_encoder_layers=encoder, num_decoder_layers=decoder)
    lengths = torch.tensor([5, 3])
    _, last = model.encoder(model.source_embedding(toy_ids(5, 3)), lengths)
    first = model.decoder.first_state(last)
    for ours, theirs in zip(first, last, strict=True):
        assert torch.equal(ours, torch.stack([theirs[layer] for layer in begins_in]))


def attend_word_by_word(
    attention: AdditiveAttention, states: Tensor, memory: Memory, lengths: list[int]
) -> np.ndarray[Any, Any]:
    """Computes the formula of Bahdanau et al. 2015 in loops, without a mask."""
    w, b = (each.detach().numpy() for each in (attention.q_proj.weight, attention.q_proj.bias))
    u, v, out = (
        each.weight.detach().numpy()
        for each in (attention.k_proj, attention.score_proj, attention.out_proj)
    )
    found = np.zeros(states.shape)
    for row, length in enumerate(lengths):
        words = memory.values[row, :length].numpy()
        for place, state in enumerate(states[row].numpy()):
            scores = [v[0] @ np.tanh(w @ state + b + u @ word) for word in words]
            weights = np.exp(scores) / np.exp(scores).sum()
            context = sum(weight * word for weight, word in zip(weights, words, strict=True))
            found[row, place] = np.tanh(out @ np.concatenate([context, state]))
    return found


def test_additive_attention_is_its_formula() -> None:
    torch.manual_seed(3)
    attention = AdditiveAttention(toy_config(**SIZES), recompute=False).double()
    states, values, lengths = (
        torch.randn(3, 2, 10).double(),
        torch.randn(3, 7, 10).double(),
        [7, 1, 5],
    )
    memory = Memory(values, attention.k_proj(values), torch.tensor(lengths))
    expected = attend_word_by_word(attention, states, memory, lengths)
    np.testing.assert_allclose(attention(states, memory).detach(), expected, rtol=0, atol=1e-12)


def test_hooks_see_weights_that_sum_to_1_over_real_source_tokens() -> None:
    model, source = recurrent().readable(), toy_ids(7, 3, 1)
    with hooks.record(model, [model.alignment_name]) as seen:
        model(source, toy_ids(5, 5, 5))
    weights = seen[model.alignment_name]
    assert weights.shape == (3, 1, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 5).double())
    assert not weights.masked_select((source == PAD)[:, None, None]).any()


def test_a_search_sees_the_attention_of_each_hypothesis() -> None:
    stepper = ReadableStepper(recurrent())
    state = stepper.start(SOURCES)
    stepper.step(state, torch.full((3, 1), BOS))
    stepper.select(state, torch.tensor([[0, 0], [1, 1], [2, 2]]))
    stepper.step(state, torch.tensor([[4, 5], [6, 7], [8, 9]]))
    assert stepper.attention.shape == (3, 2, 6)
    torch.testing.assert_close(stepper.attention.sum(-1), torch.ones(3, 2).double())
    assert not torch.equal(stepper.attention[0, 0], stepper.attention[0, 1])


def test_without_attention_a_sentence_is_nothing_but_a_state() -> None:
    model = recurrent(cross_attention=False)
    cache = model.start(toy_ids(7))
    cache.memory.values.fill_(float("nan"))
    assert model.step(torch.tensor([[BOS]]), cache).isfinite().all()


@settings(max_examples=17, deadline=None)
@given(SWITCHES)
def test_the_training_loss_is_that_of_the_logits(switches: dict[str, Any]) -> None:
    model, source, target = recurrent(**switches), toy_ids(7, 3), toy_ids(2, 5)
    plain = label_smoothed_cross_entropy(
        model(source, model.decoder_input(target)), target, smoothing=0.1
    )
    torch.testing.assert_close(training_loss(model, source, target, 0.1).loss, plain.loss)


def test_checkpointing_changes_no_gradient() -> None:
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(3)
        model = Recurrent(toy_config(**SIZES), gradient_checkpointing=recompute).double()
        training_loss(model, toy_ids(7, 3), toy_ids(19, 4), 0.1).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(torch.allclose(*pair, rtol=0, atol=1e-12) for pair in zip(*gradients, strict=True))


def test_checkpointing_takes_less_memory() -> None:
    most = []
    for recompute in (False, True):
        with Peak() as peak:
            model = Recurrent(toy_config(**SIZES), gradient_checkpointing=recompute)
            training_loss(model, toy_ids(101), toy_ids(103), 0.1).loss.backward()
        most.append(peak.most)
    assert most[1] < 0.5 * most[0]


def test_products_in_bfloat16_change_little() -> None:
    model, source, target = recurrent().float(), toy_ids(7, 3), toy_ids(5, 4)
    exact = training_loss(model, source, target, 0.1).loss
    with compute_in("bfloat16", torch.device("cpu")):
        rounded = training_loss(model, source, target, 0.1).loss
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0)


def test_a_forget_gate_begins_open_and_all_other_biases_at_0() -> None:
    model = Recurrent(toy_config(**SIZES))
    for lstm in (model.encoder.lstm, model.decoder.lstm):
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias"):
                gates = parameter.chunk(4)
                assert all(bool((gates[n] == 0).all()) for n in (0, 2, 3))
                assert bool((gates[1] == float(name.startswith("bias_ih"))).all())


def test_a_gates_weights_are_xavier_uniform() -> None:
    model = Recurrent(toy_config(**SIZES, projection_gain=0.5))
    bound = 0.5 * (6 / (10 + 10)) ** 0.5
    for gate in model.decoder.lstm.weight_hh_l0.chunk(4):
        assert 0.9 * bound < gate.abs().max() <= bound


def test_a_configuration_names_its_model() -> None:
    assert type(build_model(toy_config(**SIZES))) is Recurrent
    assert type(build_model(toy_config())) is Transformer
    assert ModelConfig().architecture == "transformer"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_model": 11}, "model.d_model is 11, accepted is an even number"),
        ({"causal_mask": False}, "model.causal_mask is False, accepted is true"),
        ({"architecture": "lstm"}, "accepted is one of transformer, recurrent"),
    ],
)
def test_what_a_recurrent_model_can_not_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelConfig(**{**SIZES, **values})


def test_fields_of_the_transformer_do_not_restrict_it() -> None:
    config = ModelConfig(**SIZES, num_heads=3, positions="learned", max_positions=2)
    assert config.position_limit is None
    assert Recurrent(config)(toy_ids(5), toy_ids(3)).shape[:2] == (1, 3)


@pytest.mark.parametrize("cross_attention", [True, False])
def test_training_makes_the_operations_of_each_matrix(cross_attention: bool) -> None:
    config = toy_config(**SIZES, cross_attention=cross_attention)
    shape, model = BatchShape(3, 7), Recurrent(config)
    used = [model.output_weight, *model.encoder.parameters(), *model.decoder.parameters()]
    entries = sum(weight.numel() for weight in used if weight.dim() == 2)
    of_pairs = 0
    if cross_attention:  # v meets each pair of tokens, and so do the weights with the values
        entries -= 10
        of_pairs = 2 * 7 * 7 * 10
    assert budget.count_operations(config, shape) == 6 * 3 * (7 * entries + of_pairs)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("cross_attention", [True, False])
def test_the_estimated_memory_is_about_what_training_takes(
    cross_attention: bool, recompute: bool
) -> None:
    model = dataclasses.asdict(toy_config(**SIZES, cross_attention=cross_attention))
    training = {"gradient_checkpointing": recompute}
    config, shape = build_config({"model": model, "training": training}), BatchShape(3, 67)
    with Peak() as peak:
        network = build_model(config.model, gradient_checkpointing=recompute)
        ids = toy_ids(67, 67, 67)
        training_loss(network, ids, ids, 0.1).loss.backward()
    parameters = sum(each.numel() for each in network.parameters())
    memory = budget.estimate_memory(config, parameters, shape, "float32", "cpu")
    assert sum(memory.values()) - memory["moments"] == pytest.approx(peak.most, rel=0.25)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run of 20 steps with dropout, in one sitting."""
    folder = tmp_path_factory.mktemp("recurrent")
    return FinishedRun(folder / "m", run_and_listen(folder / "m", config_of(folder, 20)))


def config_of(folder: Path, max_steps: int) -> Any:
    model = {**SIZES, "num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.2}
    training = {"max_steps": max_steps, "accumulation": 2, "clip_norm": 1.0}
    return toy_run(folder, model=model, training=training)


def test_ten_steps_and_ten_more_are_twenty_steps_bit_for_bit(
    tmp_path: Path, finished: FinishedRun
) -> None:
    run_and_listen(tmp_path / "m", config_of(tmp_path, 10))
    run_and_listen(tmp_path / "m", config_of(tmp_path, 20), resume=True)
    checkpoints = []
    for path in (tmp_path / "m", finished.path):
        folder = ModelFolder(path)
        checkpoints.append(folder.read_checkpoint(folder.checkpoints()[-1][1]))
    ours, theirs = checkpoints
    for mine, other in ((ours.weights, theirs.weights), (ours.optimizer, theirs.optimizer)):
        assert mine.keys() == other.keys()
        assert all(np.array_equal(mine[name], other[name]) for name in mine)


def test_a_folder_gives_back_the_model_that_was_written(finished: FinishedRun) -> None:
    model, kept = load_model(ModelFolder(finished.path)), ModelFolder(finished.path).read_weights()
    assert isinstance(model, Recurrent)
    again = model.to_arrays()
    assert again.keys() == kept.keys()
    assert all(np.array_equal(again[name], kept[name]) for name in kept)
    assert "A recurrent model that translates" in (finished.path / "card.md").read_text("utf-8")


def test_the_command_line_translates_with_it(
    finished: FinishedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(f"{source}\n" for source, _ in PAIRS[:5])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main.main(["translate", str(finished.path), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.count("\n") == 5


def test_alignments_and_scores_come_with_its_translations(finished: FinishedRun) -> None:
    translator = load(finished.path, device="cpu")
    [found] = translator.translate([PAIRS[0][0]], beam_size=3, alignment=True)
    assert found.alignment is not None
    np.testing.assert_allclose(found.alignment.sum(axis=1), 1.0, atol=1e-6)


def test_with_attention_copying_is_learnt_in_seconds(tmp_path: Path) -> None:
    pairs = make_task("copy", 1802, 3, 5, 5, seed=1)
    config = toy_run(
        tmp_path,
        pairs[:1200],
        pairs[1200:1301],
        model={**SIZES, "d_model": 64, "dropout": 0.0, "embedding_dropout": 0.0},
        training={
            "batch_tokens": 503,
            "max_steps": 150,
            "peak_learning_rate": 1e-2,
            "schedule": "inverse-square-root",
            "warmup_steps": 51,
            "label_smoothing": 0.0,
            "clip_norm": 1.0,
            "validate_every": 75,
            "best_by": "loss",
        },
    )
    run_and_listen(tmp_path / "m", config)
    found = load(tmp_path / "m", device="cpu").translate([s for s, _ in pairs[1301:]], beam_size=1)
    exact = [each.text == pair[1] for each, pair in zip(found, pairs[1301:], strict=True)]
    assert np.mean(exact) >= 0.95
