"""`helio log demo` has producers in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from processes import program

if TYPE_CHECKING:
    from pathlib import Path


def test_the_demo_has_producers_in_python(tmp_path: Path) -> None:
    command = [program(), "log", "demo", "--url", f"journal:{tmp_path}", "--seconds", "2", "--json"]
    ran = subprocess.run(
        [*command, "--rate", "4000"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["producers"] == "10 in Rust, 10 in Python"
    assert [consumer["unaccounted"] for consumer in report["consumers"]] == [0, 0, 0]
