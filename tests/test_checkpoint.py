from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from dragoman.checkpoint import Arrays, Checkpoint, ModelFolder, average_weights
from dragoman.config import Config, InputError, ModelConfig
from dragoman.data.tokenizer import Tokenizer, Tokenizers, learn_tokenizer
from dragoman.decoding.loader import load_model
from dragoman.model.transformer import Transformer

FLOATS = arrays_of.arrays(np.float32, (3,), elements=st.floats(-(2.0**99), 2.0**99, width=32))


@pytest.fixture(scope="module")
def tokenizers() -> tuple[Tokenizer, ...]:
    """Two tokenizers of one size and a larger one."""
    texts = (["a b c"], ["a b d"], ["a b c e f"])
    return tuple(learn_tokenizer(text, 300) for text in texts)


@pytest.fixture
def folder(tmp_path: Path, tokenizers: tuple[Tokenizer, ...]) -> ModelFolder:
    """A model with a joint vocabulary, without weights."""
    return make_folder(tmp_path / "m", Tokenizers(tokenizers[0], tokenizers[0]))


def make_folder(path: Path, tokenizers: Tokenizers) -> ModelFolder:
    (path / "run").mkdir(parents=True)
    config = ModelConfig(
        source_vocab_size=len(tokenizers.source),
        target_vocab_size=len(tokenizers.target),
        **{"d_model": 6, "d_ff": 7, "num_heads": 2},  # type: ignore[arg-type]
        **{"num_encoder_layers": 1, "num_decoder_layers": 1},  # type: ignore[arg-type]
        tie="source-target-output" if tokenizers.joint else "target-output",
    )
    ModelFolder.write_description(path, Config(model=config), tokenizers)
    return ModelFolder(path)


def fresh(folder: ModelFolder) -> Transformer:
    return Transformer(folder.read_config().model)


def write_constants(folder: ModelFolder, values: Sequence[float]) -> None:
    """Writes a checkpoint for each value, whose every weight is that value."""
    for step, value in enumerate(values, 1):
        weights = {
            name: np.full_like(each, value) for name, each in fresh(folder).to_arrays().items()
        }
        folder.write_checkpoint(step, Checkpoint(weights, {"step": np.zeros(1)}, {"step": step}))


def digest(weights: Arrays) -> str:
    content = b"".join(name.encode() + weights[name].tobytes() for name in sorted(weights))
    return hashlib.sha256(content).hexdigest()


def test_the_average_of_1_2_and_3_is_2_everywhere_and_the_tie_one_storage(
    folder: ModelFolder,
) -> None:
    write_constants(folder, [1, 2, 3])
    folder.write_weights(folder.average_last(3))
    weights = folder.read_weights()
    assert weights.keys() == fresh(folder).to_arrays().keys()
    assert all((each == 2).all() for each in weights.values())
    model = load_model(folder, "cpu")
    assert all((each == 2).all() for each in model.parameters())
    tied = (model.source_embedding.token, model.target_embedding.token, model.output_embedding)
    assert len({each.weight.data_ptr() for each in tied}) == 1


def test_an_average_takes_the_last_checkpoints_by_number_not_by_name(folder: ModelFolder) -> None:
    write_constants(folder, range(1, 12))  # as text, step-9 stands behind step-11
    assert [step for step, _ in folder.checkpoints()] == list(range(1, 12))
    assert all((each == 10).all() for each in folder.average_last(3).values())


def test_averaging_twice_gives_the_same_hash(folder: ModelFolder) -> None:
    torch.manual_seed(3)
    for step in (1, 2, 3):
        folder.write_checkpoint(step, Checkpoint(fresh(folder).to_arrays(), {}, {}))
    assert digest(folder.average_last(3)) == digest(folder.average_last(3))
    assert digest(folder.average_last(3)) != digest(folder.average_last(2))


@settings(deadline=None, max_examples=100)
@given(st.lists(FLOATS, min_size=2, max_size=5), st.randoms())
def test_the_order_of_the_files_changes_no_bit(
    values: list[npt.NDArray[np.float32]], random: Any
) -> None:
    models = [{"x": each} for each in values]
    shuffled = random.sample(models, len(models))
    assert digest(average_weights(models)) == digest(average_weights(shuffled))


def test_sums_that_depend_on_their_order_do_not_show() -> None:
    values = [np.array([each], np.float32) for each in (1.0, 2.0**-60, -1.0)]
    averages = {
        average_weights([{"x": each} for each in order])["x"].item()
        for order in itertools.permutations(values)
    }
    assert len(averages) == 1


def test_float32_is_averaged_in_float64() -> None:
    models = [{"x": np.array([each], np.float32)} for each in (1e8, 1.0, 1.0, 1.0, 1.0)]
    [average] = average_weights(models)["x"]
    assert average == np.float32((1e8 + 4) / 5)
    assert average.dtype == np.float32


def test_more_checkpoints_than_there_are_can_not_be_averaged(folder: ModelFolder) -> None:
    write_constants(folder, [1, 2])
    for count in (3, 0):
        with pytest.raises(InputError, match=rf"average of {count} .*accepted is 1 to the 2"):
            folder.average_last(count)


def test_models_of_other_parameters_can_not_be_averaged() -> None:
    with pytest.raises(InputError, match="don't hold the same parameters"):
        average_weights([{"x": np.zeros(3)}, {"y": np.zeros(3)}])


def test_weights_come_back_as_they_were_written(folder: ModelFolder) -> None:
    weights = fresh(folder).to_arrays()
    assert not folder.has_weights()
    folder.write_weights(weights)
    assert folder.has_weights()
    assert digest(folder.read_weights()) == digest(weights)


def test_a_checkpoint_comes_back_as_it_was_written(folder: ModelFolder) -> None:
    weights = fresh(folder).to_arrays()
    folder.write_checkpoint(7, Checkpoint(weights, {"a": np.arange(3)}, {"step": 7, "best": None}))
    [(step, path)] = folder.checkpoints()
    found = folder.read_checkpoint(path)
    assert (step, found.state) == (7, {"step": 7, "best": None})
    assert digest(found.weights) == digest(weights)
    assert found.optimizer["a"].tolist() == [0, 1, 2]


def test_an_interrupted_checkpoint_is_none(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_constants(folder, [1])
    unserialisable = Checkpoint(fresh(folder).to_arrays(), {}, {"step": {2}})
    with pytest.raises(TypeError):
        folder.write_checkpoint(2, unserialisable)
    assert [path.name for path in (folder.run / "checkpoints").iterdir()] == ["step-1"]


def test_old_checkpoints_go_but_the_best_stays(folder: ModelFolder) -> None:
    write_constants(folder, range(1, 8))
    folder.remove_checkpoints(keep=2, also=3, every=1)
    assert [step for step, _ in folder.checkpoints()] == [3, 6, 7]


def test_a_checkpoint_out_of_turn_goes_when_it_is_no_longer_the_last(folder: ModelFolder) -> None:
    def write(step: int) -> list[int]:
        folder.write_checkpoint(step, Checkpoint(fresh(folder).to_arrays(), {}, {}))
        folder.remove_checkpoints(keep=3, also=5, every=5)
        return [kept for kept, _ in folder.checkpoints()]

    assert write(5) == [5]
    assert write(10) == [5, 10]
    assert write(12) == [5, 10, 12]
    assert write(15) == [5, 10, 15]


def test_a_tokenizer_of_another_size_is_refused_with_both_sizes(
    folder: ModelFolder, tokenizers: tuple[Tokenizer, ...]
) -> None:
    folder.write_weights(fresh(folder).to_arrays())
    (folder.path / "tokenizer.model").write_bytes(tokenizers[2].model)
    ours, theirs = len(tokenizers[2]), len(tokenizers[0])
    assert ours != theirs
    with pytest.raises(InputError, match=rf"tokenizer has {ours} entries, the model {theirs}"):
        folder.read_weights()


def test_a_tokenizer_of_the_same_size_is_refused_with_both_hashes(
    folder: ModelFolder, tokenizers: tuple[Tokenizer, ...]
) -> None:
    made_with, other = tokenizers[0].fingerprint[:16], tokenizers[1].fingerprint[:16]
    folder.write_weights(fresh(folder).to_arrays())
    (folder.path / "tokenizer.model").write_bytes(tokenizers[1].model)
    assert len(tokenizers[0]) == len(tokenizers[1])
    with pytest.raises(InputError, match=rf"with tokenizer {made_with}.* holds {other}"):
        load_model(folder, "cpu")


def test_tokenizers_of_two_sides_stay_apart(
    tmp_path: Path, tokenizers: tuple[Tokenizer, ...]
) -> None:
    folder = make_folder(tmp_path / "m", Tokenizers(tokenizers[0], tokenizers[2]))
    found = folder.read_tokenizers()
    assert not found.joint
    assert found.source.fingerprint == tokenizers[0].fingerprint
    assert found.target.fingerprint == tokenizers[2].fingerprint
    folder.write_weights(fresh(folder).to_arrays())
    assert load_model(folder, "cpu").output_weight.shape[0] == len(tokenizers[2])


def test_the_limit_of_learned_positions_comes_from_the_folder(folder: ModelFolder) -> None:
    config = folder.read_config()
    model = dataclasses.replace(config.model, positions="learned", max_positions=3001)
    folder.replace_config(dataclasses.replace(config, model=model))
    folder.write_weights(fresh(folder).to_arrays())
    loaded = load_model(folder, "cpu")
    assert loaded.max_length == 3001
    assert loaded(torch.full((1, 3001), 5), torch.tensor([[5]])).isfinite().all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "weights.safetensors").unlink(), "the model has no weights yet"),
        (lambda path: (path / "weights.safetensors").write_bytes(b"x" * 99), "not a sound"),
        (lambda path: (path / "tokenizer.model").write_bytes(b"x" * 99), "not a SentencePiece"),
        (lambda path: (path / "tokenizer.model").unlink(), "source.model: No such file"),
        (lambda path: (path / "config.toml").write_text("format_version = 99"), "version 99"),
        (lambda path: (path / "config.toml").unlink(), "config.toml"),
    ],
)
def test_a_damaged_model_is_refused_by_its_place(
    folder: ModelFolder, spoil: Any, message: str
) -> None:
    folder.write_weights(fresh(folder).to_arrays())
    spoil(folder.path)
    with pytest.raises(InputError, match=message) as caught:
        load_model(folder, "cpu")
    assert str(folder.path) in str(caught.value)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent: no such model"):
        ModelFolder(tmp_path / "absent")
    with pytest.raises(InputError, match=r"not a model, for it has no config\.toml"):
        ModelFolder(tmp_path)


@pytest.mark.parametrize("made", ["weights", "checkpoint"])
@pytest.mark.parametrize(
    ("name", "value"), [("positions", "rotary"), ("num_heads", 3), ("scale_scores", False)]
)
def test_another_configuration_of_the_same_shapes_is_refused_with_both_values(
    folder: ModelFolder, made: str, name: str, value: object
) -> None:
    write_constants(folder, [1.0])
    folder.write_weights(fresh(folder).to_arrays())
    config = folder.read_config()
    model = dataclasses.replace(config.model, d_k=2, d_v=2, **{name: value})
    folder.replace_config(dataclasses.replace(config, model=model))
    with pytest.raises(InputError, match=f"trained with model.(d_k|{name}) .* config.toml has "):
        folder.read_weights() if made == "weights" else folder.average_last(1)


def test_checkpoints_of_another_tokenizer_are_refused(
    folder: ModelFolder, tokenizers: tuple[Tokenizer, ...]
) -> None:
    write_constants(folder, [1.0])
    (folder.path / "tokenizer.model").write_bytes(tokenizers[1].model)
    with pytest.raises(InputError, match="they come from different runs"):
        folder.average_last(1)
    with pytest.raises(InputError, match="they come from different runs"):
        folder.read_checkpoint(folder.checkpoints()[0][1])


def test_a_copy_that_somebody_made_is_no_checkpoint(folder: ModelFolder) -> None:
    write_constants(folder, [1.0])
    (folder.run / "checkpoints" / "step-1.bak").mkdir()
    assert [step for step, _ in folder.checkpoints()] == [1]
