from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.decoding.loader import load

KEYS = (
    "text translation log_probability source source_ids target target_ids target_input encoder "
    "decoder cross comparison without before"
)


def test_a_picture_is_a_png(run: Any, model: Path, tmp_path: Path) -> None:
    finished = run("attend", model, "--text", "a b c", "--output", tmp_path / "a.png")
    assert (finished.status, finished.out) == (0, "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_can_have_another_attention_or_a_head_of_it(
    run: Any, model: Path, tmp_path: Path
) -> None:
    names = "encoder.layers.0.self_attention", "decoder.layers.0.cross_attention.head.1"
    for name in names:
        options = ("--attention", name, "--output", tmp_path / f"{name}.png")
        assert run("attend", model, "--text", "a b c", *options).status == 0
    first, second = ((tmp_path / f"{name}.png").read_bytes() for name in names)
    assert first != second


@pytest.mark.parametrize(
    ("name", "file", "error", "hint"),
    [
        (
            *("decoder.layers.1.self_attention", "a.png"),
            "'decoder.layers.1.self_attention' is not an attention of this model",
            "it has encoder.layers.0-0.self_attention.head.0-1, decoder.layers.0-0.self_attention."
            "head.0-1, decoder.layers.0-0.cross_attention.head.0-1; without .head, their mean",
        ),
        (
            *("encoder.layers.0.self_attention.head.2", "a.png"),
            "'encoder.layers.0.self_attention.head.2' is not an attention of this model",
            "it has encoder",
        ),
        ("x", "a.json", "--attention is x, accepted is none but for a .png of attention", "pages"),
    ],
)
def test_an_attention_that_is_not_there_is_named(
    run: Any, model: Path, tmp_path: Path, name: str, file: str, error: str, hint: str
) -> None:
    options = ("--attention", name, "--output", tmp_path / file)
    finished = run("attend", model, "--text", "a b c", *options)
    assert finished.status == 2
    first, second = finished.err.splitlines()[-2:]
    assert first == f"error: {error}"
    assert second.startswith(f"hint: {hint}")
    assert not any(tmp_path.iterdir())


def test_a_page_is_one_html_file(run: Any, model: Path, tmp_path: Path) -> None:
    finished = run("attend", model, "--text", "a b c", "--output", tmp_path / "a.html")
    assert (finished.status, finished.out) == (0, "")
    assert (tmp_path / "a.html").read_text("utf-8").startswith("<!doctype html>")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("target", [(), ("--target", "c b")])
def test_json_has_the_weights_of_every_layer_and_head(
    run: Any, model: Path, tmp_path: Path, target: tuple[str, ...]
) -> None:
    run("attend", model, "--text", "a b c", *target, "--output", tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert " ".join(found) == KEYS
    assert found["source"] == ["▁a", "▁b", "▁c", "</s>"]
    assert (found["without"], found["before"]) == ([], None)
    rows = len(found["target"])
    for kind, shape in (("encoder", (4, 4)), ("decoder", (rows, rows)), ("cross", (rows, 4))):
        assert np.shape(found[kind]) == (1, 2, *shape)
        assert np.sum(found[kind], axis=-1) == pytest.approx(1.0, abs=1e-5)
    *measures, spearman = found["comparison"].values()
    assert all(np.shape(measure) == (rows, 4) for measure in measures)
    assert len(spearman) == 3
    if target:
        assert found["target"] == ["▁c", "▁b", "</s>"]


def test_help_names_every_key(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("attend", "--help")
    text = capsys.readouterr().out
    assert not [key for key in KEYS.split() if key not in text]


def test_a_sentence_of_120_tokens_fits(run: Any, model: Path, tmp_path: Path) -> None:
    text = " ".join("abcdefgh"[place * 3 % 8] for place in range(119))
    options = ("--target", text, "--output", tmp_path / "a.json")
    finished = run("attend", model, "--text", text, *options)
    assert finished.status == 0
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert found["translation"] == found["text"] == text
    assert np.shape(found["cross"]) == (1, 2, 120, 120)
    assert np.sum(found["cross"], axis=-1) == pytest.approx(1.0, abs=1e-5)


def test_without_a_head_both_texts_are_shown(run: Any, model: Path, tmp_path: Path) -> None:
    head = "decoder.layers.0.cross_attention.head.1"
    options = ("--target", "c b", "--without", head, "--output", tmp_path / "a.json")
    finished = run("attend", model, "--text", "a b c", *options)
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    lines = [line.split("\t") for line in finished.out.splitlines()]
    assert [text for _, text in lines] == ["c b", "c b"]
    assert float(lines[0][0]) != float(lines[1][0])
    [score] = load(model, precision="float32").score(["a b c"], ["c b"])
    assert found["before"]["log_probability"] == pytest.approx(score, abs=1e-4)
    assert float(lines[1][0]) == pytest.approx(found["log_probability"], abs=1e-4)
    assert found["without"] == [head]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--text a --output a.svg", "--output is a.svg, accepted is a name that ends in .html, "),
        ("--text a --output no/a.png", "no/a.png: there is no folder no"),
        ("--text= --output a.png", "the text '' gives no attention to look at"),
        ("--text= --target=a --output a.html", "the text '' gives no attention to look at"),
        ("--text a --without scale --output a.html", "'scale' is not a part of this model"),
    ],
)
def test_wrong_use_leaves_no_picture(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    finished = run("attend", model, *options.split())
    assert finished.status == 2
    assert finished.error.startswith(f"error: {error}")
    assert list(tmp_path.iterdir()) == []
