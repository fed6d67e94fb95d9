"""Components of ``probe.py`` in processes of their own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from processes import TIMEOUT_S, started

if TYPE_CHECKING:
    import subprocess

    import heliograph as helio
    from heliograph import State

PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from probe import Configured, Multi, Probe, Writer
{"Probe": Probe, "Multi": Multi, "Configured": Configured, "Writer": Writer}[sys.argv.pop(1)].run()
"""


def run(url: str, *arguments: str, kind: str = "Probe") -> subprocess.Popen[str]:
    """Start a component on a bus."""
    here = str(Path(__file__).parent)
    return started(sys.executable, "-c", PROGRAM, here, kind, *arguments, "--url", url)


async def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a component's end; return its exit code and its errors."""
    # With a timeout, because a thread that hangs would keep the test from failing.
    _, errors = await asyncio.to_thread(process.communicate, timeout=TIMEOUT_S)
    return process.returncode, errors


async def until(remote: helio.Remote, state: State) -> None:
    """Wait for a summary state."""
    async for value in remote.evt_summaryState:
        if value.summaryState == state:
            return
