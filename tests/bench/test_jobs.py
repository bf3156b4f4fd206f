from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.bench import contestants
from dragoman.bench.contestants import DECODING, TRAINING, Contestant, choose
from dragoman.bench.jobs import JOBS, Plan, measure
from dragoman.bench.process import Task, WorkerFailed
from dragoman.bench.report import Curves, Row, Table, to_json
from dragoman.bench.setting import Setting
from dragoman.bench.worker import build
from dragoman.config import RunError


class InProcess:
    """A worker without a process."""

    def __init__(self, task: Task) -> None:
        try:
            self.performance = build(task)
        except ImportError as error:
            raise WorkerFailed(f"ImportError: {error}") from None
        notes = self.performance.run().notes
        self.ready = json.loads(
            json.dumps({"facts": self.performance.facts, "notes": notes, "peak_bytes": 7_000_000})
        )

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def round(self) -> dict[str, Any]:
        run = self.performance.run()
        answer = {"seconds": 2.0, "cpu_seconds": 1.0, "count": run.count, "notes": run.notes}
        return json.loads(json.dumps(answer))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.bench.jobs.Worker", InProcess)


def fake(name: str, **options: object) -> Contestant:
    return Contestant(name, "fakes:Fake", {"name": name, **options})


@pytest.mark.usefixtures("fakes")
def test_the_contestants_take_turns(setting: Setting) -> None:
    said: list[str] = []
    found, failed = measure([fake("A"), fake("B"), fake("C")], setting, 3, said.append)
    assert setting.sentences.with_suffix(".log").read_text() == "ABC" * 4  # once to prepare
    assert {name: len(each.rounds) for name, each in found.items()} == {"A": 3, "B": 3, "C": 3}
    assert failed == {}
    assert said[0] == "preparing A"
    assert said[-1].startswith("round 3 of 3: C ")


@pytest.mark.usefixtures("fakes")
def test_who_fails_at_the_start_is_named_and_the_others_go_on(setting: Setting) -> None:
    found, failed = measure([fake("A", fail="at the start"), fake("B")], setting, 1, print)
    assert list(found) == ["B"]
    assert failed == {"A": "failed: ImportError: no such library"}


@pytest.mark.usefixtures("fakes")
def test_who_counts_other_tokens_is_no_contestant(setting: Setting) -> None:
    with pytest.raises(RunError, match="have counted differently: A 7, B 8"):
        measure([fake("A", count=7), fake("B", count=8)], setting, 1, print)


def test_absent_peers_are_named_and_unwanted_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        contestants.importlib.util,
        "find_spec",
        lambda name: None if name == "ctranslate2" else real(name),
    )
    chosen, absent = choose(DECODING, ["ctranslate2"], bfloat16=True)
    assert [each.name for each in chosen] == ["dragoman", "dragoman float32"]
    assert absent == {"ctranslate2": "not installed", "ctranslate2 int8": "not installed"}


def test_bfloat16_takes_part_only_where_it_is_fast() -> None:
    for bfloat16 in (True, False):
        chosen, absent = choose(TRAINING, [], bfloat16=bfloat16)
        names = {each.name for each in chosen}
        assert ("torch bfloat16" in names) == bfloat16
        assert ("torch bfloat16" in absent) != bfloat16
        assert {"dragoman", "dragoman shuffled", "torch", "torch lean"} <= names


def plan(tmp_path: Path, setting: Setting) -> Plan:
    return Plan(["S"], 1, [], 1, setting.sentences.parent, lambda line: None)


def test_training_is_measured_beside_torch_and_the_machine(
    tmp_path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [each for each in TRAINING if each.name in ("dragoman", "torch")]
    monkeypatch.setattr("dragoman.bench.jobs.TRAINING", two)
    monkeypatch.setattr("dragoman.bench.machine._SECONDS", 0.001)
    [table] = JOBS["train"](plan(tmp_path, setting))
    assert isinstance(table, Table)
    ours, torch_row = table.rows
    assert (ours.name, torch_row.name) == ("dragoman", "torch")
    assert table.ratio(torch_row) == 1
    assert table.about["matrix_products"].keys() == {"float32", "bfloat16"}
    assert ours.facts["useful_operations_per_second"] > 0
    assert ours.facts["precision"] in ("float32", "bfloat16")


def test_decoding_is_measured_at_both_sizes_of_batches_and_over_positions(
    tmp_path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.bench.jobs._DECODED", {3: 5, 1: 2})
    for module in ("jobs", "step_times"):
        monkeypatch.setattr(f"dragoman.bench.{module}.POSITIONS", (5, 7))
    three, one, times = JOBS["decode"](plan(tmp_path, setting))
    assert isinstance(three, Table)
    assert isinstance(one, Table)
    assert isinstance(times, Curves)
    assert three.rows[0].columns["same outputs"] == "5 of 5"
    assert one.rows[0].values == [2 / 2.0]
    assert [list(points) for points in times.series.values()] == [[5, 7], [5, 7]]


def test_memory_has_a_table_and_two_curves_and_says_where_it_ended(
    tmp_path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.bench.jobs._LENGTHS", (5, 7))
    monkeypatch.setattr("dragoman.bench.jobs._VOCABULARIES", (11, 13))
    monkeypatch.setattr("dragoman.kernels.resources.peak_above", lambda work: work() or 3_000_000)
    training, sentence, loss = JOBS["memory"](plan(tmp_path, setting))
    assert isinstance(training, Table)
    assert isinstance(sentence, Curves)
    assert isinstance(loss, Curves)
    assert training.rows[0].values == [7.0]
    assert sentence.series == {"default path": {5: 3.0, 7: 3.0}, "readable path": {5: 3.0, 7: 3.0}}
    assert list(loss.series["dragoman"]) == [11, 13]


TABLE = Table(
    "train",
    "training",
    "tokens/s",
    [Row("dragoman", [1500.0, 3000.0, 2000.0], {"peak MB": "7"}), Row("torch", [1000.0, 1000.0])],
    "torch",
    {"eole": "not installed"},
)


def test_a_table_shows_medians_ratios_and_who_is_absent() -> None:
    assert TABLE.to_lines() == [
        "training",
        "            tokens/s  spread  x torch  peak MB",
        "  dragoman     2,000     75%     2.00        7",
        "  torch        1,000      0%     1.00",
        "eole: not installed",
    ]


def test_the_json_has_every_round_and_its_keys_are_promised() -> None:
    curves = Curves("memory", "memory", "tokens", "MB", {"ours": {512: 3.0, 1024: 6.0}})
    report = to_json([TABLE, curves], {"date": "2026-11-30"})
    assert report.keys() == {"format_version", "environment", "parts"}
    table, drawn = report["parts"]
    head = {"kind", "job", "title", "unit", "reference", "absent", "remarks", "about", "rows"}
    assert table.keys() == head
    row = {"name", "median", "low", "high", "ratio", "values"}
    assert all(each.keys() == row for each in table["rows"])
    assert table["rows"][0]["values"] == [1500.0, 3000.0, 2000.0]
    assert drawn["series"]["ours"] == [{"x": 512, "y": 3.0}, {"x": 1024, "y": 6.0}]
    assert drawn.keys() == {"kind", "job", "title", "x", "y", "series", "absent"}


def test_a_report_is_drawn_as_a_png(tmp_path: Path) -> None:
    from dragoman.bench.chart import draw_report

    curves = Curves("memory", "memory", "tokens", "MB", {"ours": {512: 3.0, 1024: 6.0}})
    draw_report([TABLE, curves], tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
