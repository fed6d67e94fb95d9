"""The closing table of storms."""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

PATH = Path(__file__).resolve().parents[1] / "soak"
LOADER = importlib.machinery.SourceFileLoader("soak", str(PATH))
LINES = """\
test storm::kills ... storm: kills of journals: tried 12, survived 12, lost 0, unreported 0
ok
storm: kills of journals: tried 3, survived 3, lost 0, unreported 0
storm: power cuts: tried 7, survived 7, lost 0, unreported 1
"""


def soak() -> Any:
    spec = importlib.util.spec_from_loader("soak", LOADER)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules["soak"] = module
    LOADER.exec_module(module)
    return module


def test_storms_of_one_name_are_one_line_and_a_loss_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = soak()
    storms = program.STORM.findall(LINES)
    assert [program.calm(storm) for storm in storms] == [True, True, False]
    program.storm_table([program.Outcome("journal/storm", "passed", 1.0, 0, storms)])
    _, kills, cuts = capsys.readouterr().out.strip().splitlines()
    assert kills.split() == ["kills", "of", "journals", "15", "15", "0", "0"]
    assert cuts.split() == ["power", "cuts", "7", "7", "0", "1"]
    assert not program.calm(("nothing", "0", "0", "0", "0"))


def test_what_a_first_attempt_lost_fails_a_unit_that_passes_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = soak()
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    options = argparse.Namespace(minutes=60.0)
    unit = program.Unit("a/b", "a", tmp_path, ("true",))
    quiet = ("kills", "2", "2", "0", "0")
    for first, verdict in [
        (("kills", "2", "1", "0", "0"), "flaky"),
        (("kills", "2", "2", "1", "0"), "failed"),
        (("kills", "2", "2", "0", "1"), "failed"),
    ]:
        attempts = iter([(False, 0, [first]), (True, 0, [quiet])])
        run = program.Soak(options, {})
        monkeypatch.setattr(run, "attempt", lambda *_, attempts=attempts: next(attempts))
        outcome = run.run(unit)
        assert (outcome.verdict, outcome.storms) == (verdict, [first, quiet])
