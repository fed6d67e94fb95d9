"""The event loop while a broker is frozen, and while another process holds the journal's locks.

No name may block it for as long as an engine takes. A loaded machine may delay one call; it does
not delay three of the same.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engines import engine
from probe import Probe, asynchronous
from processes import TIMEOUT_S, skipped
from test_event_loop import CALLS, Rig, Stall

import heliograph as helio
from heliograph import testing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCKED_S = 0.25
"""Less than any timeout of an engine: the shortest one, of a presence query, is 0.8 s."""

_LOCKS = """
import fcntl, pathlib, sys, time
files = []
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    file = path.open("rb") if path.is_file() else None
    if file is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        files.append(file)
print(len(files), flush=True)
time.sleep(60)
"""


class Frozen(Stall):
    """A broker that is stopped."""

    def __init__(self, folder: Path, process: int) -> None:
        super().__init__(folder)
        self._process = process

    @contextmanager
    def lasts(self) -> Iterator[None]:
        """Freeze it, and thaw it on leaving; another process does after a minute."""
        end = f"sleep 60; touch {self._late}; kill -CONT {self._process}"
        os.kill(self._process, signal.SIGSTOP)
        with subprocess.Popen(["sh", "-c", end], start_new_session=True) as watchdog:
            try:
                yield
            finally:
                watchdog.kill()
                os.kill(self._process, signal.SIGCONT)


class Locked(Stall):
    """A journal whose files another process has locked."""

    def __init__(self, folder: Path, journal: Path) -> None:
        super().__init__(folder)
        self._journal = journal

    @contextmanager
    def lasts(self) -> Iterator[None]:
        """Lock the files, and unlock them on leaving."""
        command = [sys.executable, "-c", _LOCKS, str(self._journal)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert int(holder.stdout.readline()) > 0
            try:
                yield
            finally:
                holder.kill()


class RealClock:
    """The machine's clock, for a rig that wants to let time pass."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


async def stalls(rig: Rig, stall: Stall) -> dict[str, float]:
    """The shortest time of three that each name kept the loop from its other tasks."""
    found: dict[str, float] = {}
    begun: list[asyncio.Future[Any]] = []
    for name, call in CALLS.items():
        for _ in range(3):
            start = time.monotonic()
            outcome = call(rig)
            if inspect.isawaitable(outcome):

                async def wait(outcome: Any = outcome) -> Any:
                    return await outcome

                begun.append(asyncio.create_task(wait()))
            # The counting task.
            for _ in range(10):
                await asyncio.sleep(0)
            found[name] = min(found.get(name, 1e9), time.monotonic() - start)
            stall.check(name)
            if found[name] < BLOCKED_S or name == "Bus.close":
                break
    for task in begun:
        task.cancel()
    return found


async def try_all(url: str, stall: Stall) -> None:
    """Try each name on a bus while the engine stands still."""
    async with helio.connect(url) as bus, helio.connect(url) as spare:
        rig = Rig(bus, spare, RealClock())  # type: ignore[arg-type]
        async with testing.component(Probe, bus=bus) as (rig.probe, _):
            await rig.probe.go_to(helio.State.ENABLED)
            await rig.prepare()
            with stall.lasts():
                found = await stalls(rig, stall)
            print(sorted(found.items(), key=lambda item: -item[1])[:5])
            assert {name: s for name, s in found.items() if s >= BLOCKED_S} == {}


def test_a_frozen_broker_blocks_no_loop(interfaces: Path, tmp_path: Path) -> None:
    told = engine("kafka")
    if isinstance(told, str):
        skipped(told)
    stall = Frozen(tmp_path, told["brokers"][0]["pid"])
    asyncio.run(asyncio.wait_for(try_all(told["url"], stall), 3 * TIMEOUT_S))


@asynchronous
async def test_a_locked_journal_blocks_no_loop(interfaces: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    await try_all(f"journal:{journal}", Locked(tmp_path, journal))
