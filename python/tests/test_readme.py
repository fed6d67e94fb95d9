"""The README's Python runs unchanged, on a fresh journal."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples() -> list[str]:
    blocks: list[str] = BLOCK.findall((ROOT / "README.md").read_text())
    assert blocks, "the README has no Python example"
    return blocks


@pytest.mark.parametrize("example", examples())
def test_the_readme_s_example_runs(example: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "7.5 9.0 0" in done.stdout
