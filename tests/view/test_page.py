"""The page about what a model looks at, as a file and in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.config import InputError
from dragoman.decoding.translator import Translator
from dragoman.view.inspection import Inspection
from dragoman.view.page import ROUNDED_TO, write_page
from dragoman.view.reading import model_of, read

TEXT, TARGET = "the cat saw a dog", "die katze sah </script>{{data}}"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

VISITOR = """
const log = {};
const find = (selector) => document.querySelector(selector);
const readout = () => find("#readout").textContent;
const style = getComputedStyle(document.documentElement);
const cell = () => parseFloat(style.getPropertyValue("--cell"));
const hover = (row, column) => {
  const canvas = find("#map canvas"), box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent("pointermove", {
    clientX: box.left + (column + 0.5) * cell(), clientY: box.top + (row + 0.5) * cell(),
  }));
};
const press = (key) => find("#map canvas").dispatchEvent(new KeyboardEvent("keydown", { key }));
find("[data-language=zh]").click();
log.chinese = [document.documentElement.lang, find("h1").textContent];
find("[data-language=en]").click();
log.english = [document.documentElement.lang, find("h1").textContent];
log.translation = [...document.querySelectorAll("#sentences dd")][1].textContent;
hover(2, 1);
log.hovered = readout();
press("ArrowRight"); press("ArrowDown");
log.keyed = readout();
find("[data-place='1.3']").click();
hover(0, 2);
log.other = readout();
find("[data-kind=decoder]").click();
hover(3, 1);
log.decoder = readout();
log.pictures = document.querySelectorAll("#glance canvas").length;
log.lines = document.querySelectorAll("#lines line").length;
find("#lines text[tabindex]").dispatchEvent(new FocusEvent("focus"));
log.token = readout();
log.correlations = [...document.querySelectorAll("#correlations td")].map((td) => td.textContent);
log.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.body.insertAdjacentHTML("beforeend", "<pre id=log></pre>");
find("#log").textContent = JSON.stringify(log);
"""


@pytest.fixture
def inspection(translator: Translator) -> Inspection:
    return Inspection(model_of(translator), read(translator, TEXT, TARGET))


def content_of(page: Path) -> dict[str, Any]:
    [content] = re.findall(r' id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    found: dict[str, Any] = json.loads(content)
    return found


def test_the_page_holds_the_models_weights_to_its_rounding(
    inspection: Inspection, tmp_path: Path
) -> None:
    write_page(inspection, tmp_path / "a.html")
    content = content_of(tmp_path / "a.html")
    for kind in ("encoder", "decoder", "cross"):
        weights = np.array(content["kinds"][kind]["weights"]) * content["rounded_to"]
        expected = getattr(inspection.reading, kind)
        np.testing.assert_allclose(weights, expected, atol=ROUNDED_TO / 2 + 1e-9)
    assert content["text"] == TEXT
    assert content["translation"] == TARGET


def test_the_page_loads_nothing_and_no_text_ends_its_data(
    inspection: Inspection, tmp_path: Path
) -> None:
    write_page(inspection, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert page.count("</script>") == 2
    assert not re.search(r'(?:src|href)="(?!data:,")', page)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", page)


def test_both_languages_say_the_same_things(inspection: Inspection, tmp_path: Path) -> None:
    write_page(inspection, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    english, chinese = page[page.index("en: {") :].split("zh: {")
    keys = [
        set(re.findall(r"[{,]?\s(\w+): [\"`]", words.partition("\n    },")[0]))
        for words in (english, chinese)
    ]
    assert keys[0] == keys[1]
    assert set(re.findall(r'data-say="(\w+)"', page)) <= keys[0]


def test_a_model_without_any_attention_has_no_page(
    make_translator: Callable[..., Translator], tmp_path: Path
) -> None:
    translator = make_translator(architecture="recurrent", d_model=10, cross_attention=False)
    inspection = Inspection(model_of(translator), read(translator, TEXT, TARGET))
    with pytest.raises(InputError, match="accepted is a model with attention"):
        write_page(inspection, tmp_path / "a.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
def test_a_browser_shows_the_models_weights_in_both_languages(
    inspection: Inspection, tmp_path: Path
) -> None:
    page = tmp_path / "a.html"
    write_page(inspection, page)
    page.write_text(page.read_text("utf-8") + f"<script>{VISITOR}</script>", "utf-8")
    assert BROWSER is not None
    finished = subprocess.run(
        [
            *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=600,900"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in finished.stderr
    [log] = re.findall('<pre id="log">(.*?)</pre>', finished.stdout)
    found = json.loads(log.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))

    reading = inspection.reading
    assert reading.cross is not None
    assert reading.decoder is not None
    assert found["chinese"] == ["zh-CN", "译文在看什么"]
    assert found["english"] == ["en", "What a translation looks at"]
    assert found["translation"] == TARGET
    for seen, weight in (
        ("hovered", reading.cross[2, 0, 2, 1]),
        ("keyed", reading.cross[2, 0, 3, 2]),
        ("other", reading.cross[1, 3, 0, 2]),
        ("decoder", reading.decoder[1, 3, 3, 1]),
    ):
        assert float(found[seen].rpartition(": ")[2]) == pytest.approx(weight, abs=ROUNDED_TO / 2)
    pair = f"{reading.target.labels[2]} → {reading.source.labels[1]}"
    assert found["hovered"].startswith(f"cross · layer 2 · head 0 · {pair}: ")
    assert found["pictures"] == 3 * 5
    assert found["lines"] == (reading.decoder[1, 3] >= 0.0195).sum()
    assert found["token"] == "decoder · layer 1 · head 3 · <s> → <s> 1.000"
    assert inspection.comparison is not None
    means = [f"{each['mean']:.3f}" for each in inspection.comparison.spearman()]
    assert found["correlations"][1::2] == means
    assert found["wide"] <= 0
