"""A Python producer of ``helio log demo``.

``helio`` carries this script and runs it as ``python3 -c SCRIPT worker log-producer TASK``.
Messages are lines of JSON: orders on standard input, answers on standard output. Records and their
times are those of the producers in Rust (``crates/cli/src/log/crew/producer.rs``).
"""

from __future__ import annotations

import ctypes
import json
import logging
import resource
import signal
import sys
import time
from collections import Counter
from typing import Any

from heliograph.logging import EMERGENCY, NOTICE, Handler

_TICK_NS = 1_000_000
"""The schedule's tick; records due in one are logged at once."""

_TICKS_PER_S = 1000

_OPERATOR, _SCIENCE, _DEVELOPER = (
    {"audience": name} for name in ("Operator", "SciLog", "Developer")
)
_SETTLED = {"audience": "Operator", "settled": True}
_EVERYONE = {"audience": "*"}

_PR_SET_PDEATHSIG = 1
"""prctl(2): a signal for this process when the one that started it ends."""


def main(arguments: list[str]) -> None:
    """Log as the task demands."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    task = json.loads(arguments[2])
    handler = Handler(task["url"], producer=task["name"], prefix=task["prefix"])
    log = logging.Logger(f"CONTROL.{task['name']}.Mount", logging.DEBUG)
    log.addHandler(handler)
    _say(None)
    order = sys.stdin.readline()
    if order:
        cpu_s = time.process_time()
        producer = _Producer(log, task, json.loads(order)["start_ns"])
        offered = producer.run()
        handler.flush()
        _say(_report(handler, offered, cpu_s) | {"pacing_cpu_s": producer.pacing_cpu_s})
        # The process stays until all have read: some transports drop its samples when it ends.
        sys.stdin.readline()
    handler.close()


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def _report(handler: Handler, offered: Counter[int], cpu_s: float) -> dict[str, Any]:
    used = {
        "cpu_s": time.process_time() - cpu_s,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    return {
        "offered": offered,
        "published": handler.figures.published,
        "bytes": 0,
        "end_ns": time.monotonic_ns(),
        "used": used,
    }


class _Producer:
    def __init__(self, log: logging.Logger, task: dict[str, Any], start_ns: int) -> None:
        self._log, self._task, self._start_ns = log, task, start_ns
        self._urgent = task["urgent"]
        self._offered: Counter[int] = Counter()
        self.pacing_cpu_s = 0.0

    def run(self) -> Counter[int]:
        """Log until the end; return the number of records of each ACS level."""
        logged, rate_hz = 0, self._task["rate_hz"]
        for tick in range(-(-self._task["time_ns"] // _TICK_NS)):
            due_ns = self._start_ns + tick * _TICK_NS
            left_ns = due_ns - time.monotonic_ns()
            if left_ns > 0:
                before = time.thread_time()
                time.sleep(left_ns * 1e-9)
                self.pacing_cpu_s += time.thread_time() - before
            if self._urgent and due_ns >= self._start_ns + self._urgent["first_ns"]:
                wind = "due %d: wind of %s m/s, park now"
                self._log.log(EMERGENCY, wind, due_ns, 31.5, extra=_EVERYONE)
                self._offered[self._urgent["level"]] += 1
                self._urgent = None
            by_now = int((tick + 1) * rate_hz / _TICKS_PER_S)
            for number in range(logged, by_now):
                self._offered[self._one(number, due_ns)] += 1
            logged = max(logged, by_now)
        return self._offered

    def _one(self, number: int, due_ns: int) -> int:
        log, place = self._log, number % 1000
        if place == 999:
            log.error("due %d: axis %s is off", due_ns, "azimuth", extra=_OPERATOR)
            return 8
        if place == 499:
            log.warning("due %d: retried %d times", due_ns, 3, extra=_DEVELOPER)
            return 6
        if place % 125 == 0:
            log.log(NOTICE, "due %d: exposure %d done", due_ns, number, extra=_SCIENCE)
            return 5
        if place % 20 == 1:
            log.info("due %d: %s", due_ns, "on target", extra=_SETTLED)
            return 4
        log.debug("due %d: at %s %s", due_ns, number * 1e-3, 45.0)
        return 3


if __name__ == "__main__":
    main(sys.argv[1:])
