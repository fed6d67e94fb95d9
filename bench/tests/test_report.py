"""The tables say what the result lines say, and that what was not measured was not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from figures import (  # noqa: E402
    Goal,
    Results,
    all_cases,
    cases,
    derived,
    figure,
    ratios,
    side_by_side,
)


def latency(case: str, p50: float, date: str = "2026-01-02") -> dict[str, object]:
    """A result line."""
    return {"case": case, "date": date, "latency_us": {"p50": p50}, "lost": 0}


def test_the_median_is_of_the_newest_runs_only() -> None:
    old = [latency("a", 1.0, "2026-01-01")]
    new = [latency("a", value) for value in (30.0, 10.0, 20.0)]
    assert Results(old + new).median("a", "latency_us.p50") == 20.0
    assert Results(new + old).median("a", "latency_us.p50") == 20.0
    assert Results([]).median("a", "latency_us.p50") is None


def test_a_goal_may_be_a_factor_of_another_case() -> None:
    limit = {"case": "floor", "figure": "latency_us.p50", "factor": 1.5}
    goal = Goal.parse({"figure": "latency_us.p50", "at_most": limit})
    bound = goal.bound(Results([latency("floor", 20.0)]))
    assert bound == 30.0
    assert goal.met(30.0, bound)
    assert not goal.met(30.1, bound)
    assert goal.bound(Results([])) is None


def test_peers_lines_get_a_case_and_cpu_is_told_by_message() -> None:
    line = derived(
        {
            "mechanism": "zenoh",
            "workload": "throughput",
            "payload_bytes": 64,
            "count": 1000,
            "received": 500,
            "cpu_s": {"publisher": 0.001, "subscriber": 0.001},
        }
    )
    assert line["case"] == "compare-zenoh-throughput-64"
    assert figure(line, "cpu_us.publisher") == pytest.approx(1.0)
    assert figure(line, "cpu_us.subscriber") == pytest.approx(2.0)


def test_comparisons_are_the_medians_of_pairs() -> None:
    def line(rate: float) -> dict[str, object]:
        cpu_s = {"publisher": 1 / rate, "subscriber": 0.0}
        return {"write_per_s": rate, "count": 1, "received": 1, "cpu_s": cpu_s}

    pairs = [(line(1.0), line(2.0)), (line(30.0), line(30.0)), (line(9.0), line(10.0))]
    assert ratios(pairs) == {"write_per_s": 0.9, "cpu_us_publisher": 1.111}


def test_a_goal_may_be_a_sum() -> None:
    limit = {"case": "raw", "figure": "latency_us.p50", "factor": 1, "plus": 50}
    goal = Goal.parse({"figure": "latency_us.p50", "at_most": limit})
    assert goal.bound(Results([latency("raw", 800.0)])) == 850.0
    assert goal.text() == "latency_us.p50 at most 1 × raw's latency_us.p50 + 50"


def test_a_case_is_put_together_of_values(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'values.size = [{ size = 1, word = "one" }, { size = 2, word = "two" }]\n'
        'values.acks = [{ acks = "0" }, { acks = "all" }]\n'
        '[[case]]\nname = "{word}-{acks}"\neach = ["size", "acks"]\nengine = "kafka"\n'
        'peer = "x --payload {size} --url {url}"\n'
        'goals = [{ figure = "lost", at_most = { case = "raw-{acks}", '
        'figure = "lost", factor = 1 } }]\n'
        '[[case]]\nname = "alone"\ncommand = "floor"\n'
    )
    found = cases(file)
    assert [case.name for case in found] == ["one-0", "one-all", "two-0", "two-all", "alone"]
    assert found[3].peer == "x --payload 2 --url {url}"
    assert found[3].goals[0].other_case == "raw-all"
    assert all(case.can_run for case in found)


def test_what_is_compared_is_measured_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        "values.size = [{ size = 1 }, { size = 2 }]\n"
        '[[case]]\nname = "ours-{size}"\neach = ["size"]\ncommand = "floor"\n'
        'goals = [{ figure = "x", at_most = { case = "raw-{size}", figure = "x", factor = 1 } }, '
        '{ figure = "y", at_most = { case = "raw-{size}", figure = "y", factor = 1 } }]\n'
        '[[case]]\nname = "raw-{size}"\neach = ["size"]\npeer = "floor"\n'
        '[[case]]\nname = "alone"\ncommand = "floor"\n'
    )
    ordered = [case.name for case in side_by_side(cases(file))]
    assert ordered == ["ours-1", "raw-1", "ours-2", "raw-2", "alone"]


def test_goals_name_cases_that_exist() -> None:
    names = {case.name for case in all_cases()}
    for case in all_cases():
        others = [goal.other_case for goal in case.goals if goal.other_case]
        assert all(name in names or name.startswith("compare-") for name in others)


def test_the_page_is_filled_and_checked(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "2026-01-02-x.jsonl"
    page.write_text("# X\n\n<!-- table: latency -->\nold\n<!-- end -->\n\nend\n")
    results.write_text(json.dumps(latency("latency-64", 21.5)) + "\n")

    def report(option: str) -> int:
        command = [sys.executable, str(BENCH / "report"), str(results), option, str(page)]
        return subprocess.run(command, capture_output=True).returncode

    assert report("--check") == 1
    assert report("--update") == 0
    assert report("--check") == 0
    text = page.read_text()
    assert "| 64 | not measured | not measured | not measured | 21.5 |" in text
    assert text.startswith("# X\n")
    assert text.endswith("<!-- end -->\n\nend\n")
