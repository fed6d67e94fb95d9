"""The Python of the README and of the page on alerts runs unchanged, on a fresh journal."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples(page: str) -> list[str]:
    blocks: list[str] = BLOCK.findall((ROOT / page).read_text())
    assert blocks, f"{page} has no Python example"
    return blocks


def output(example: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", examples("README.md"))
def test_the_readme_s_example_runs(example: str, tmp_path: Path) -> None:
    assert "7.5 9.0 0" in output(example, tmp_path)


@pytest.mark.parametrize("example", examples("docs/alerts.md"))
def test_the_example_of_alerts_runs(example: str, tmp_path: Path) -> None:
    lines = output(example, tmp_path).splitlines()
    names = "['diaSource.snr', 'diaSource.band', 'prvDiaSources']"
    counts = [int(line.split()[0]) for line in lines if line.endswith(f"alerts with {names}")]
    assert (sum(counts), max(counts)) == (300, 256)
    assert lines[-2:] == ["visit 1000000 complete: True", "audit equal: True"]
