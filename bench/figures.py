"""Bench cases, result lines and goals: what bench/run writes and bench/report reads.

A result line is one JSON object: the figures of one run of one case, with `case`, `run`, `date`
and `machine`. Figures are named by dotted paths into it, such as `latency_us.p50`.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]
# What is compared where two command lines take turns.
COMPARED = (
    "write_per_s",
    "records_per_s",
    "cpu_us.publisher",
    "cpu_us_per_record.producer",
    "tail_us.p99",
)
BENCH = Path(__file__).resolve().parent
# How often a case is run unless it says otherwise: the fewest that have a median.
RUNS = 3
# How often the two command lines of a comparison take turns, unless the case says otherwise.
PAIRS = 7


@dataclass(frozen=True)
class Goal:
    """One figure of a case, held against a number or a factor of another case's figure."""

    figure: str
    sense: str
    limit: float
    other_case: str | None = None
    other_figure: str | None = None
    plus: float = 0

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Goal:
        """A goal from its table in a case file; exactly one of at_most and at_least is there."""
        (sense,) = {"at_most", "at_least"} & table.keys()
        limit = table[sense]
        if isinstance(limit, Mapping):
            other = (limit["factor"], limit["case"], limit["figure"], limit.get("plus", 0))
            return cls(table["figure"], sense, *other)
        return cls(table["figure"], sense, limit)

    def text(self) -> str:
        """The goal in words."""
        words = f"{self.figure} {self.sense.replace('_', ' ')} {self.limit:g}"
        if self.other_case is None:
            return words
        plus = f" + {self.plus:g}" if self.plus else ""
        return f"{words} × {self.other_case}'s {self.other_figure}{plus}"

    def bound(self, results: Results) -> float | None:
        """The number to hold the figure against; none where the other case was not measured."""
        if self.other_case is None or self.other_figure is None:
            return self.limit
        other = results.median(self.other_case, self.other_figure)
        return None if other is None else self.limit * other + self.plus

    def met(self, value: float, bound: float) -> bool:
        """Whether the figure is on the right side of the bound."""
        return value <= bound if self.sense == "at_most" else value >= bound


@dataclass(frozen=True)
class Case:
    """A command line of one of the programs that measure, or a builtin; and its goals.

    `command` is one of `helio bench`, `python` of bench/python_speed.py, `peer` of bench/compare's
    program, `confluent` of bench/confluent_speed.py, `rsyslog` of bench/rsyslog_speed.py,
    `otlp` of bench/otlp_speed.py, `alerts` of bench/alerts_rows.py.
    `engine` is a command line of tests/engines, without its `start`: what is to run meanwhile;
    `service` is one of `helio`, that prints JSON and takes `--dir`, which runs meanwhile too.

    Where `beside` names another command line of `helio bench`, the two are run in turn `pairs`
    times, and the line has under `ratio` the medians of what each pair's figures are to each other:
    so that a machine whose speed wanders from minute to minute does not decide the comparison.
    """

    name: str
    command: str | None
    python: str | None
    peer: str | None
    confluent: str | None
    rsyslog: str | None
    otlp: str | None
    alerts: str | None
    builtin: str | None
    engine: str | None
    service: str | None
    beside: str | None
    pairs: int
    interfaces: bool
    runs: int
    goals: tuple[Goal, ...]

    @property
    def can_run(self) -> bool:
        """Whether there is something to run: some cases are goals of figures of others."""
        ours = (self.command, self.python, self.builtin)
        peers = (self.peer, self.confluent, self.rsyslog, self.otlp)
        programs = (*ours, *peers, self.alerts)
        return any(program is not None for program in programs)


def put_in(value: Any, names: Mapping[str, Any]) -> Any:
    """A case's table, or a part of it, with values where it has `{NAME}`; other names stay."""
    if isinstance(value, str):
        for name, known in names.items():
            value = value.replace(f"{{{name}}}", str(known))
        return value
    if isinstance(value, list):
        return [put_in(item, names) for item in value]
    if isinstance(value, dict):
        return {key: put_in(item, names) for key, item in value.items()}
    return value


def expanded(table: Line, values: Mapping[str, list[Line]]) -> Iterable[Line]:
    """A case for each combination of the values that its `each` names."""
    for combination in itertools.product(*(values[name] for name in table.get("each", []))):
        yield put_in(table, {name: value for part in combination for name, value in part.items()})


def cases(path: Path) -> list[Case]:
    """The cases of a file, in its order."""
    file = tomllib.loads(path.read_text())
    values = file.get("values", {})
    tables = [one for table in file["case"] for one in expanded(table, values)]
    return [
        Case(
            name=table["name"],
            command=table.get("command"),
            python=table.get("python"),
            peer=table.get("peer"),
            confluent=table.get("confluent"),
            rsyslog=table.get("rsyslog"),
            otlp=table.get("otlp"),
            alerts=table.get("alerts"),
            builtin=table.get("builtin"),
            engine=table.get("engine"),
            service=table.get("service"),
            beside=table.get("beside"),
            pairs=table.get("pairs", PAIRS),
            interfaces=table.get("interfaces", False),
            runs=table.get("runs", RUNS),
            goals=tuple(Goal.parse(goal) for goal in table.get("goals", [])),
        )
        for table in tables
    ]


def side_by_side(given: Iterable[Case]) -> list[Case]:
    """The cases in their order, but those that a case is held against right behind it."""
    known = {case.name: case for case in given}
    ordered: dict[str, Case] = {}
    for case in known.values():
        others = (known.get(goal.other_case or "") for goal in case.goals)
        for each in (case, *(other for other in others if other)):
            ordered.setdefault(each.name, each)
    return list(ordered.values())


def all_cases() -> list[Case]:
    """The cases of all files of bench/cases."""
    return [case for path in sorted((BENCH / "cases").glob("*.toml")) for case in cases(path)]


def derived(line: Line) -> Line:
    """The line with what follows from its figures: its case where a peer's, CPU a message."""
    out = dict(line)
    if "case" not in out and "mechanism" in out:
        parts = [out["mechanism"], out.get("workload"), out.get("payload_bytes")]
        out["case"] = "-".join(["compare", *(str(part) for part in parts if part is not None)])
    cpu = out.get("cpu_s")
    if cpu and out.get("count") and out.get("received"):
        # Those who receive pay for what was received, the others for what was offered.
        out["cpu_us"] = {
            who: seconds * 1e6 / out["received" if who == "subscriber" else "count"]
            for who, seconds in cpu.items()
        }
    return out


def figure(line: Line, name: str) -> float | None:
    """The figure of a dotted name; none where the line does not have it."""
    value: Any = line
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return None if value is None else float(value)


def ratios(pairs: Iterable[tuple[Line, Line]]) -> Line:
    """The medians over pairs of lines of what the first's figures are to the second's."""
    found: dict[str, list[float]] = {}
    for line, beside in pairs:
        for name in COMPARED:
            value, other = figure(derived(line), name), figure(derived(beside), name)
            if value is not None and other:
                found.setdefault(name.replace(".", "_"), []).append(value / other)
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


def read(path: Path) -> Iterable[Line]:
    """The lines of a file; those that do not say their date have that of the file's name."""
    dated = {"date": path.name[:10]} if path.name[:4].isdigit() else {}
    for text in path.read_text().splitlines():
        if text.strip():
            yield dated | json.loads(text)


class Results:
    """Result lines by case; of each case only those of its newest date count."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.by_case: dict[str, list[Line]] = {}
        for line in map(derived, lines):
            kept = self.by_case.setdefault(line["case"], [])
            newest = kept[0].get("date", "") if kept else ""
            if line.get("date", "") > newest:
                kept.clear()
            if line.get("date", "") >= newest:
                kept.append(line)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Results:
        """The results of JSON-lines files."""
        return cls(line for path in paths for line in read(path))

    def median(self, case: str, name: str) -> float | None:
        """The median of a figure over the runs of a case; none where it was not measured."""
        found = [figure(line, name) for line in self.by_case.get(case, [])]
        known = [value for value in found if value is not None]
        return statistics.median(known) if known else None

    def first(self, case: str) -> Line | None:
        """The first run's line of a case."""
        lines = self.by_case.get(case)
        return lines[0] if lines else None
