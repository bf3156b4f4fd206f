"""What was found, as a table and as JSON. No torch needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dragoman.bench.measure import Summary

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Row:
    """A contestant's measurements."""

    name: str
    values: list[float]
    """One of each round, in the table's unit."""
    columns: dict[str, str] = field(default_factory=dict)
    """What else the table shows of it, by the column's head."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the JSON has besides."""

    @property
    def summary(self) -> Summary:
        """Its values in short."""
        return Summary.of(self.values)


@dataclass(frozen=True)
class Table:
    """Contestants at one job, in rounds."""

    job: str
    title: str
    unit: str
    rows: list[Row]
    reference: str = ""
    """The row that the others are divided by; none if it isn't there."""
    absent: dict[str, str] = field(default_factory=dict)
    """Who didn't take part, and why."""
    remarks: list[str] = field(default_factory=list)
    """Lines between the title and the table."""
    about: dict[str, Any] = field(default_factory=dict)
    """The sentences, the machine."""

    def ratio(self, row: Row) -> float | None:
        """Returns a row's median over the reference's."""
        for each in self.rows:
            if each.name == self.reference:
                return row.summary.median / each.summary.median
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns everything."""
        rows = [
            {
                "name": row.name,
                **vars(row.summary),
                "ratio": self.ratio(row),
                "values": row.values,
                **row.facts,
            }
            for row in self.rows
        ]
        return {**vars(self), "kind": "table", "rows": rows}

    def to_lines(self) -> list[str]:
        """Returns the table for a person, then who is absent."""
        extra = list(dict.fromkeys(head for row in self.rows for head in row.columns))
        ratio_heads = [f"x {self.reference}"] if self.reference else []
        cells = [["", self.unit, "spread", *ratio_heads, *extra]]
        for row in self.rows:
            summary, ratio = row.summary, self.ratio(row)
            ratios = ["" if ratio is None else f"{ratio:.2f}"] if self.reference else []
            numbers = [_number(summary.median), f"{summary.spread:.0%}", *ratios]
            cells.append([row.name, *numbers, *(row.columns.get(head, "") for head in extra)])
        missing = [f"{name}: {reason}" for name, reason in self.absent.items()]
        return [self.title, *self.remarks, *_align(cells), *missing]


@dataclass(frozen=True)
class Curves:
    """Something against something."""

    job: str
    title: str
    x: str
    y: str
    series: dict[str, dict[int, float]]
    """Of each curve the values, by what they depend on."""
    absent: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns everything."""
        series = {
            name: [{"x": x, "y": y} for x, y in points.items()]
            for name, points in self.series.items()
        }
        return {**vars(self), "kind": "curves", "series": series}

    def to_lines(self) -> list[str]:
        """Returns the curves side by side, then what is missing."""
        places = sorted({x for points in self.series.values() for x in points})
        cells = [[self.x, *self.series]]
        for x in places:
            values = [points.get(x) for points in self.series.values()]
            cells.append([str(x), *("" if value is None else _number(value) for value in values)])
        missing = [f"{name}: {reason}" for name, reason in self.absent.items()]
        return [f"{self.title}, {self.y}", *_align(cells), *missing]


Part = Table | Curves


def to_json(parts: Sequence[Part], environment: dict[str, Any]) -> dict[str, Any]:
    """Returns a whole report."""
    return {
        "format_version": FORMAT_VERSION,
        "environment": environment,
        "parts": [part.to_json() for part in parts],
    }


def _number(value: float) -> str:
    """Returns three digits or more, none of them idle."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def _align(cells: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line for each row; the first column begins and the others end at one place."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *rest in cells:
        right = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"  {first.ljust(widths[0])}", *right]).rstrip())
    return lines
