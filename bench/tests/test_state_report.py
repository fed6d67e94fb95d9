"""The page of the state store says what the bench measured; a smoke run is no measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[1]
PAGE = BENCH.parent / "docs" / "state-benchmarks.md"


def times(mean: float) -> dict[str, float]:
    """A summary, in microseconds."""
    return {"count": 9, "mean": mean, "median": mean, "sd": 1.0, "p99": 2 * mean}


def row(what: str, load: float, smoke: bool = False) -> dict[str, Any]:
    """A row of the bench."""
    return {"store": "etcd", "run": 2, "what": what, "figures": {}, "load": load, "smoke": smoke}


def report() -> dict[str, Any]:
    """The report, the last line of the bench."""
    of = {"per_s": 1234.4, "cpu_us": 5.25, "errors": 0}
    operations = dict.fromkeys(("put", "range", "update", "get"), of)
    unmeasured = {"per_s": 0, "cpu_us": 0, "errors": 0}
    return {
        "latencies": [
            {
                "store": "etcd",
                "pods": pods,
                "put_us": times(2000.0 + pods),
                "range_us": times(1000.0),
                "event_us": times(3000.0),
            }
            for pods in (10, 0)
        ],
        "rates": [
            {"store": "etcd", **operations, "list": unmeasured, "events": 6000, "anonymous_mb": 71}
        ],
        "memory": [],
        "in_process": {"get_us": times(0.6)},
        "not_run": ["kine-sqlite: there is no kine"],
        "goals": [
            {"name": "a", "must": False, "met": False, "measured": "1.30, at most 0.8"},
            {"name": "b", "must": False, "met": False, "measured": "not measured"},
            {"name": "c", "must": True, "met": True, "measured": "0 errors"},
        ],
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results."""
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def keep(results: Path, name: str, lines: list[dict[str, Any]]) -> None:
    """Writes a run's lines."""
    (results / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(results: Path, option: str, page: Path) -> subprocess.CompletedProcess[str]:
    """Runs the program."""
    command = [sys.executable, str(BENCH / "state_report"), option, str(page)]
    environment = os.environ | {"HELIO_STATE_RESULTS": str(results)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_page_is_filled_with_the_newest_run_and_checked(tmp_path: Path, results: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    keep(results, "2026-01-01", [row("latency", 9.9)])
    keep(results, "2026-01-02", [row("latency", 0.5), row("latency", 1.5), report()])
    assert run(results, "--check", page).returncode == 1
    done = run(results, "--update", page)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(results, "--check", page).returncode == 0
    text = page.read_text()
    for line in (
        "| latency | 2 | 2 | 0.5 to 1.5 |",
        "| not run | – | – | kine-sqlite: there is no kine |",
        "| etcd | 10 | 2.01 | 2.01 | 0.00 | 4.02 | 9 |",
        "| 1,234 (5.2) | not measured | 6,000 | 71 |",
        "| get | 0.60 | 0.60 | 1.00 | 1.20 | 9 |",
        "| a | **missed** | 1.30, at most 0.8 |",
        "| b | not measured | not measured |",
        "| c | met | 0 errors |",
    ):
        assert line in text, line
    # Points lie by pods, whatever the order of the rows.
    plot = (tmp_path / "plots" / "state-write.svg").read_text()
    (line,) = (line for line in plot.splitlines() if line.startswith("<polyline"))
    first, last = (float(point.split(",")[0]) for point in line.split('"')[1].split())
    assert first < last
    (tmp_path / "plots" / "state-write.svg").write_text("")
    assert "out of date" in run(results, "--check", page).stderr


def test_nothing_is_made_up_where_nothing_was_measured(tmp_path: Path, results: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    assert run(results, "--update", page).returncode == 0
    tables = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    cells = [line for line in tables if not line.startswith("| ---")]
    heads = {0, *range(0, len(cells), 2)}
    assert all("not measured" in line for at, line in enumerate(cells) if at not in heads)
    assert ">not measured</text>" in (tmp_path / "plots" / "state-read.svg").read_text()


def test_a_run_in_miniature_is_refused(tmp_path: Path, results: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    keep(results, "2026-01-02", [row("latency", 0.5, smoke=True), report()])
    done = run(results, "--update", page)
    assert done.returncode == 1
    assert "in miniature" in done.stderr
    assert page.read_text() == PAGE.read_text()
