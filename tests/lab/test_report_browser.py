"""The laboratory's report in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dragoman.lab.experiment import Experiment, Results
from dragoman.lab.report import write_report
from dragoman.lab.summary import summarize

from .test_report import charted, results_of

__all__ = ["charted"]

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

VISITOR = """
const log = {};
const find = (selector) => document.querySelector(selector);
const shown = () => [...document.querySelectorAll("main > section")]
  .filter((section) => section.checkVisibility()).map((section) => section.id);
const hover = (element) => {
  element.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, clientX: 9, clientY: 9 }));
  return find("#said").hidden ? null : find("#said").textContent;
};
const wide = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
const read = () => [document.documentElement.lang, find("h1").innerText.trim()];
log.width = innerWidth;
log.first = [shown(), wide()];
log.menu = find("nav ul").checkVisibility();
log.english = read();
find("header button").click();
log.chinese = read();
find("header button").click();
location.hash = "#toy";
dispatchEvent(new HashChangeEvent("hashchange"));
log.second = [shown(), wide()];
const figures = [...document.querySelectorAll("figure")];
log.curve = hover(figures[0].querySelectorAll("[data-series='1'] circle")[1]);
log.cell = hover(figures[2].querySelectorAll("svg:last-child rect")[1]);
log.chart = hover(figures[3].querySelectorAll("circle")[1]);
log.nothing = hover(find("h2"));
parent.postMessage(JSON.stringify(log), "*");
"""
FRAME = """<body><iframe srcdoc="{page}" style="width: {width}px; height: 900px"></iframe>
<script>
addEventListener("message", ({{ data }}) => {{
  document.body.insertAdjacentHTML("beforeend", "<pre id=log></pre>");
  document.querySelector("#log").textContent = data;
}});
</script>"""


def visit(page: str, width: int, folder: Path) -> dict[str, Any]:
    """Opens a page from the disk, so many pixels wide, and returns what the visitor noted."""
    # no window is narrower than 500 pixels, but a frame can be
    framed = html.escape(page + f"<script>{VISITOR}</script>")
    (folder / "frame.html").write_text(FRAME.format(page=framed, width=width), "utf-8")
    assert BROWSER is not None
    finished = subprocess.run(
        [
            *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,950"),
            *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--lang=en"),
            *("--virtual-time-budget=2000", "--dump-dom", (folder / "frame.html").as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in finished.stderr
    [log] = re.findall('<pre id="log">(.*?)</pre>', finished.stdout)
    found: dict[str, Any] = json.loads(html.unescape(log))
    return found


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_numbers_of_the_json_in_both_languages(
    charted: Experiment, tmp_path: Path, width: int
) -> None:
    results: dict[str, tuple[Experiment, Results]] = {"toy": (charted, results_of(charted))}
    found = visit(write_report(results), width, tmp_path)
    assert found["width"] == width
    assert found["menu"] == (width == 1280)
    assert found["english"] == ["en", "Dragoman's laboratory"]
    assert found["chinese"] == ["zh-Hans", "Dragoman 实验室"]
    assert found["first"] == [["overview"], 0]
    assert found["second"] == [["toy"], 0]

    numbers = summarize(results)["toy"]
    ends = [trial["curve"][1][1] for trial in numbers["trials"] if trial["variant"] == "changed"]
    mean = sum(ends) / len(ends)
    assert found["curve"] == f"changed · 2: {mean:.4g} ({min(ends):.4g} - {max(ends):.4g})"
    grid = numbers["trials"][0]["measures"]["grid"]
    assert found["cell"] == f"0, 1: {grid[0][1]:.4g}"
    assert found["chart"] == f"ours · 2: {numbers['observed']['time']['2']:.4g}"
    assert found["nothing"] is None
