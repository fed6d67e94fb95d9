"""Pages of docs/ whose tables and plots are made of results: both kinds of reports share this."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from figures import BENCH

ABSENT = "not measured"
COLOURS = ("#1f5fa8", "#c2571a", "#2f8f4e", "#7a4fa3", "#8a6d1d", "#b0305c")


def shared() -> Any:
    """The module of bench/report, whose name has no ending."""
    loader = SourceFileLoader("report", str(BENCH / "report"))
    spec = spec_from_loader("report", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


REPORT = shared()


def plot(title: str, x: str, y: str, lines: Sequence[tuple[str, list[tuple[float, float]]]]) -> str:
    """An SVG of lines through points."""
    wide, high, left, bottom, top = 640, 360, 70, 50, 36
    points = [point for _, line in lines for point in line]
    most_x = max((p[0] for p in points), default=1) or 1
    most_y = max((p[1] for p in points), default=1) or 1
    across, up = wide - left - 20, high - bottom - top

    def at(point: tuple[float, float]) -> str:
        px, py = left + point[0] / most_x * across, high - bottom - point[1] / most_y * up
        return f"{px:.1f},{py:.1f}"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="14">{title}</text>',
        f'<path d="M{left},{top}V{high - bottom}H{wide - 20}" fill="none" stroke="black"/>',
        f'<text x="{left + across / 2}" y="{high - 10}" text-anchor="middle">{x}</text>',
        f'<text x="14" y="{high / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {high / 2})">{y}</text>',
    ]
    for part in (0, 0.25, 0.5, 0.75, 1):
        px, py = at((most_x * part, most_y * part)).split(",")
        out.append(
            f'<text x="{px}" y="{high - bottom + 16}" text-anchor="middle">{most_x * part:g}</text>'
        )
        out.append(f'<text x="{left - 6}" y="{py}" text-anchor="end">{most_y * part:.3g}</text>')
    if not points:
        out.append(f'<text x="{left + 10}" y="{top + 14}">{ABSENT}</text>')
    for number, (name, line) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(at(point) for point in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in line:
            px, py = at(point).split(",")
            out.append(f'<circle cx="{px}" cy="{py}" r="2.5" fill="{colour}"/>')
        out.append(
            f'<text x="{left + 10}" y="{top + 14 + 15 * number}" fill="{colour}">{name}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def main(
    description: str | None,
    name: str,
    tables: Mapping[str, Callable[[], str]],
    plots: Mapping[str, str],
) -> None:
    """Updates or checks a page, with its plots in the folder plots beside it."""
    parser = argparse.ArgumentParser(description=description)
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--update", type=Path, metavar="PAGE")
    kinds.add_argument("--check", type=Path, metavar="PAGE")
    given = parser.parse_args()
    file = given.update or given.check
    REPORT.TABLES = {table: lambda _, make=make: make() for table, make in tables.items()}
    text = REPORT.fill(file.read_text(), None)
    files = {file: text} | {
        file.parent / "plots" / f"{name}-{plot}.svg": svg for plot, svg in plots.items()
    }
    for path, text in files.items():
        if given.update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is out of date: run bench/{name}_report --update {file}")
