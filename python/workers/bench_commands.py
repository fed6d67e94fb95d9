"""The Python halves of ``helio bench commands``: a component, and its caller.

``helio`` carries this script and runs it as ``python3 -c SCRIPT worker KIND TASK``. Messages are
lines of JSON: orders on standard input, answers on standard output. Times are of the machine's
monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

import heliograph

_SPIN_NS = 1_500_000
"""How late the event loop's timers may be; the rest is waited for without them."""

_TIMEOUT_S = 5.0


def main(arguments: list[str]) -> None:
    """Run one half."""
    _, kind, task = arguments
    half = {"bench-commanded": _component, "bench-caller": _caller}[kind]
    asyncio.run(half(json.loads(task)))


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def _hear() -> Any:
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None


def _used(cpu_s: float) -> dict[str, float]:
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu_s": time.process_time() - cpu_s, "rss_mb": peak_kb / 1024}


async def _component(task: dict[str, Any]) -> None:
    async def nothing(self: Any, command: Any) -> None:
        """Run the measured command."""

    body = {"component": task["component"], f"do_{task['command']}": nothing}
    kind = type(task["component"], (heliograph.Component,), body)
    async with heliograph.connect(task["url"]) as bus:
        enabled = heliograph.State.ENABLED
        async with kind(bus, interface=task["interfaces"], initial_state=enabled):
            _say(None)
            if await _hear() is None:
                return
            cpu_s = time.process_time()
            await _hear()
            _say(_used(cpu_s))
            await _hear()


async def _caller(task: dict[str, Any]) -> None:
    async with (
        heliograph.connect(task["url"]) as bus,
        heliograph.Remote(bus, task["component"], interface=task["interfaces"]) as remote,
    ):
        command = getattr(remote, f"cmd_{task['command']}")
        # Topics are opened with the first command, which is not measured.
        await command.set_start(azimuth=0.0, elevation=45.0, timeout=_TIMEOUT_S)
        _say(None)
        go = await _hear()
        if go is not None:
            _say(await _calls(command, task, go["start_ns"]))


async def _calls(command: Any, task: dict[str, Any], start_ns: int) -> dict[str, Any]:
    step_ns = round(1e9 / task["rate_hz"])
    ack_ns: list[int] = []
    done_ns: list[int] = []
    failed, cpu_s = 0, time.process_time()
    for number in range(task["count"]):
        due = start_ns + number * step_ns
        await _until(due)
        call = command.set_start(azimuth=number * 0.001, elevation=45.0, timeout=_TIMEOUT_S)
        first = 0
        async for ack in call:
            taken = time.monotonic_ns() - due
            first = first or taken
            if ack.ack is heliograph.AckCode.COMPLETE:
                ack_ns.append(first)
                done_ns.append(taken)
            elif ack.ack.final:
                failed += 1
    return {"ack_ns": ack_ns, "done_ns": done_ns, "failed": failed, "used": _used(cpu_s)}


async def _until(due_ns: int) -> None:
    left = due_ns - time.monotonic_ns() - _SPIN_NS
    if left > 0:
        await asyncio.sleep(left * 1e-9)
    while time.monotonic_ns() < due_ns:  # noqa: ASYNC110 (a clock tells nobody)
        await asyncio.sleep(0)


if __name__ == "__main__":
    main(sys.argv[1:])
