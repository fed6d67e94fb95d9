"""What sends records at a rate to a service, and what that costs the service."""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

TICK_S = 0.01
# A service that takes nothing for so long has failed.
PATIENCE_S = 60.0
# How a bench says that there is no such program here; bench/run goes on then.
NOT_THERE = 77


def not_there(why: str) -> NoReturn:
    """Ends, since what is to be measured is not installed."""
    print(why, file=sys.stderr)
    sys.exit(NOT_THERE)


def options(about: str | None) -> argparse.ArgumentParser:
    """A command line with what all of these have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--size", type=int, default=300, help="bytes of a message")
    parser.add_argument("--rate", type=rate_hz, default=24000.0, help="records a second, or max")
    parser.add_argument("--seconds", type=float, default=10.0)
    return parser


def rate_hz(text: str) -> float:
    """A rate of a command line."""
    return math.inf if text == "max" else float(text)


def cpu_s(process: int) -> float:
    """CPU seconds of a process so far, in user and system mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(process: int) -> float:
    """Peak memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def schedule(given: argparse.Namespace, gathered: int) -> Iterator[int]:
    """How many records are due by now; it ends with the time."""
    begin = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - begin) < given.seconds:
        due = sent + gathered if math.isinf(given.rate) else int(elapsed * given.rate)
        if due == sent:
            time.sleep(TICK_S)
            continue
        yield due - sent
        sent = due


def until_kept(offered: int, kept: Callable[[], int]) -> tuple[int, float]:
    """Waits until all that was offered is kept, or no more comes; how many are, and since when."""
    now, heard = 0, time.monotonic()
    while now < offered and time.monotonic() - heard < PATIENCE_S:
        time.sleep(TICK_S)
        if (found := kept()) > now:
            now, heard = found, time.monotonic()
    return now, heard


def fed(
    given: argparse.Namespace,
    process: int,
    send: Callable[[], int],
    settle: Callable[[int], tuple[int, float]],
) -> dict[str, Any]:
    """Has records sent, waits until a process has kept them, and tells what that cost it.

    `send` gives how many it has offered, `settle` how many of these are kept, and since when. The
    names are those of `helio bench logging`.
    """
    before, ours, begin = cpu_s(process), time.process_time(), time.monotonic()
    offered = send()
    ours = time.process_time() - ours
    kept, end = settle(offered)
    cpu = cpu_s(process) - before
    return {
        "workload": "logging",
        "size_bytes": given.size,
        "rate_hz": None if math.isinf(given.rate) else given.rate,
        "seconds": given.seconds,
        "records_per_s": round(kept / (end - begin)),
        "cpu_s": {"producer": round(ours, 4), "path": round(cpu, 4)},
        "cpu_us_per_record": {
            "producer": round(ours * 1e6 / max(offered, 1), 4),
            "path": round(cpu * 1e6 / max(offered, 1), 4),
        },
        "rss_mb": {"path": round(rss_mb(process))},
        "offered": offered,
        "delivered": kept,
        "dropped": 0,
        "unaccounted": abs(offered - kept),
    }
