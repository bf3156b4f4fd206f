"""Counts the translations that keep their source's placeholders.

python placeholders.py SOURCE TRANSLATIONS

Of the lines whose source holds a placeholder, such as %s, %1$d, %1, %(name)s, {0}, { $name } or $1,
those are counted whose translation holds exactly the same ones, each as often; their order is free.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

PLACEHOLDER = re.compile(
    r"""
      % (?: \(\w+\) | \d+\$ )? [-+#0]* \d* (?: \.\d+ )? (?: hh? | ll? | [Ljqtwz] )? [A-Za-z]
    | % \d+                     # Qt's
    | \$? \{ \s* [-$]?[\w.-]* \s* \}
    | \$ (?: [A-Za-z_]\w* | \d\b )
    """,
    re.VERBOSE,
)


def placeholders(line: str) -> Counter[str]:
    """Returns each placeholder of a line with how often it is there."""
    return Counter(PLACEHOLDER.findall(line))


def count_kept(sources: list[str], translations: list[str]) -> tuple[int, int]:
    """Returns how many translations keep the placeholders, of how many that should."""
    pairs = [(placeholders(x), placeholders(y)) for x, y in zip(sources, translations, strict=True)]
    due = [(x, y) for x, y in pairs if x]
    return sum(x == y for x, y in due), len(due)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    texts = (Path(name).read_text("utf-8").removesuffix("\n") for name in sys.argv[1:])
    kept, due = count_kept(*(text.split("\n") for text in texts))
    share = f", {kept / due:.1%}" if due else ""
    print(f"placeholders kept in {kept:,} of {due:,} lines{share}")
