"""Processes that tests start: none outlives its test."""

from __future__ import annotations

import subprocess
from typing import Any

_STARTED: list[subprocess.Popen[str]] = []


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a process that talks in text, with its output and errors in pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(arguments, text=True, **pipes, **options)
    _STARTED.append(process)
    return process


def end_all() -> None:
    """Kill those that still run."""
    while _STARTED:
        process = _STARTED.pop()
        process.kill()
        process.communicate()
