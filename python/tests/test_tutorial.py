"""The tutorial's files and commands work unchanged."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tutorial's files, in an empty folder."""
    files = FILE.findall((ROOT / "docs" / "tutorial-component.md").read_text())
    assert [name for name, _ in files] == [
        "interfaces/Focuser.yaml",
        "focuser.py",
        "drive.py",
        "test_focuser.py",
    ]
    for name, text in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_tutorial_s_test_passes(folder: Path) -> None:
    done = run(folder, "-m", "pytest", "-q", "test_focuser.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_tutorial_s_component_can_be_commanded(folder: Path) -> None:
    start = ["focuser.py", "--state", "enabled", "--url", "journal:site"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    component = subprocess.Popen(
        [sys.executable, *start], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert component.stderr is not None
        seen = []
        # It is enabled when it reports that it runs.
        for line in component.stderr:
            seen.append(line)
            if "runs on" in line:
                break
        assert component.poll() is None, "".join(seen)

        second = run(folder, *start)
        assert second.returncode == 1
        assert "Focuser" in second.stderr

        driven = run(folder, "drive.py")
        assert driven.returncode == 0, driven.stderr
        lines = driven.stdout.splitlines()
        assert lines[0].startswith("10% 20% ")
        assert lines[0].endswith("100% at 2.50 mm")
        assert lines[1] == "position 2.5 mm, screws [11.5 11.5 11.5 11.5] deg C"
        assert all("position" in line for line in lines[2:4]), lines
    finally:
        component.send_signal(signal.SIGTERM)
        component.communicate(timeout=60)
    assert component.returncode == 0

    alone = run(folder, "drive.py")
    assert alone.returncode == 1
    assert alone.stderr.startswith("Focuser.move: nobody there")
    assert "Traceback" not in alone.stderr
