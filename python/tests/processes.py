"""Processes that tests start: none outlives its test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import pytest

TIMEOUT_S = 120.0
"""The timeout of tests, only against hanging."""

_STARTED: list[subprocess.Popen[str]] = []


def program() -> str:
    """The `helio` program: HELIO, or cargo's last build."""
    given = os.environ.get("HELIO")
    if given:
        return given
    target = os.environ.get("CARGO_TARGET_DIR", str(Path(__file__).resolve().parents[2] / "target"))
    built = [Path(target) / profile / "helio" for profile in ("release", "debug")]
    built = sorted((path for path in built if path.exists()), key=lambda path: path.stat().st_mtime)
    found = str(built[-1]) if built else shutil.which("helio")
    if found is None:
        skipped("there is no program helio; build it (make build), or set HELIO")
    return found


def skipped(why: str) -> NoReturn:
    """Skip the test; fail it if nothing may be skipped, like the engines' programs."""
    if os.environ.get("HELIO_ENGINES_REQUIRED"):
        pytest.fail(why)
    # tidy: allow(ignored-test): what it wants is made by another door, or not everywhere
    pytest.skip(why)


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a process in text mode, with its output and errors in pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell's background processes ignore Ctrl-C, and so would all their children.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(arguments, text=True, **pipes, **options)
    finally:
        signal.signal(signal.SIGINT, ignored)
    _STARTED.append(process)
    return process


def end_all() -> None:
    """Kill the running processes."""
    while _STARTED:
        process = _STARTED.pop()
        process.kill()
        process.communicate()
