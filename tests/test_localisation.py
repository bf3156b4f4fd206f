"""The example for texts of software."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLACEHOLDERS = Path(__file__).parent.parent / "examples" / "localisation" / "placeholders.py"


def count(folder: Path, source: str, translations: str) -> str:
    """Returns what the script prints for two files of this text."""
    files = folder / "source", folder / "translations"
    for file, text in zip(files, (source, translations), strict=True):
        file.write_text(text, "utf-8")
    command = [sys.executable, str(PLACEHOLDERS), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "placeholder",
    [
        *("%s", "%d", "%1", "%10", "%1$s", "%-5.2f", "%lu", "%qD", "%(name)s", "{0}", "{name}"),
        *("{ $count }", "{ -brand-name }", "${HOME}", "$1", "$path"),
    ],
)
def test_a_placeholder_is_kept_or_not(tmp_path: Path, placeholder: str) -> None:
    source = f"Open {placeholder} now\n" * 3
    translations = f"Jetzt {placeholder} öffnen\nJetzt öffnen\n{placeholder} {placeholder}\n"
    assert count(tmp_path, source, translations) == "placeholders kept in 1 of 3 lines, 33.3%"


def test_what_is_no_placeholder_does_not_count(tmp_path: Path) -> None:
    source = "50 % of $100\n100% sure {\n\n}\n"
    assert count(tmp_path, source, "\n\n\n\n") == "placeholders kept in 0 of 0 lines"


def test_order_is_free_and_number_is_not(tmp_path: Path) -> None:
    assert count(tmp_path, "%1 of %2\n%s\n", "%2 von %1\n%s %s\n").startswith(
        "placeholders kept in 1 of 2"
    )
