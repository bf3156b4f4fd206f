from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dragoman import InputError, ModelConfig, Transformer, load
from dragoman.checkpoint import ModelFolder
from dragoman.config import Config
from dragoman.data.tokenizer import Tokenizers, learn_tokenizer

TEXTS = ["a b c d", "the same letters, other words"]


def make_model(path: Path, seed: int, text: str) -> Path:
    """Writes the folder of a fresh model whose tokenizer has learnt from a text."""
    tokenizer = learn_tokenizer([*TEXTS, text], 290)
    size = len(tokenizer)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 6, "d_ff": 7}
    config = ModelConfig(source_vocab_size=size, target_vocab_size=size, num_heads=2, **sizes)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    path.mkdir()
    ModelFolder.write_description(path, Config(config), Tokenizers(tokenizer, tokenizer))
    ModelFolder(path).write_weights(Transformer(config).to_arrays())
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("models")
    texts = ("nothing", "nothing", "zebra zebra zebra")
    return [make_model(path / str(seed), seed, text) for seed, text in enumerate(texts)]


def test_an_ensemble_is_loaded_and_averages_in_search_and_in_scores(folders: list[Path]) -> None:
    first, second, _ = folders
    alone = [load(path, device="cpu") for path in (first, second)]
    both = load(first, device="cpu", ensemble=[second])
    scores = [each.score(["a b"], [""])[0] for each in (*alone, both)]
    mean = torch.tensor(scores[:2]).exp().mean().log().item()
    assert scores[2] == pytest.approx(mean, rel=1e-5)
    assert both.translate(["a b"], max_output_extra=2, prefixes=["c"])[0].text.startswith("c")


def test_models_with_unlike_tokenizers_make_no_ensemble(folders: list[Path]) -> None:
    first, _, other = folders
    with pytest.raises(InputError, match="their tokenizers differ") as caught:
        load(first, device="cpu", ensemble=[first, other])
    assert str(caught.value).startswith(f"{first} and {other}: ")


def test_a_member_that_is_no_model_is_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a model"):
        load(folders[0], device="cpu", ensemble=[tmp_path])
