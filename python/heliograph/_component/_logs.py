"""Python's log records as the event logMessage.

Constraints: logging never waits and never fails. Records come from any thread. A record that the
publishing itself logs is not published, which prevents recursion. Records from before the
component's start, and records that arrive faster than they are published, are queued. The queue is
bounded; dropped records are counted and reported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from heliograph._component._data import encodable

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE_MAX = 1000
"""The most queued records: those of a start, and 10 s of a busy component's."""

_BATCH_MAX = 100
"""The records that are published before other tasks of the loop run."""

_OWN_LOGGER = "heliograph"
"""The logger of this package: its records during a publish concern the publishing itself."""

_SEND_LOGGER = "heliograph.send"
"""The logger for publishes that failed: publishing its records would fail, too."""

TEXT_MAX = 32_768
"""The longest message and traceback, in characters; records are read by people."""


class LogPublisher(logging.Handler):
    """A handler that hands records to the event loop's task, which publishes them."""

    def __init__(self, publish: Callable[[dict[str, Any]], object]) -> None:
        super().__init__()
        self._publish = publish
        self._records: deque[dict[str, Any]] = deque()
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False
        self._publishing: int | None = None
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record for the loop; called by any thread."""
        own = self._publishing == threading.get_ident() and record.name.split(".")[0] == _OWN_LOGGER
        if own or record.name == _SEND_LOGGER:
            return
        try:
            fields = _fields(record)
        except Exception:
            self.handleError(record)
            return
        with self._guard:
            if len(self._records) >= QUEUE_MAX:
                self._records.popleft()
                self.dropped += 1
            self._records.append(fields)
            loop, tell = self._loop, not self._woken
            self._woken = self._woken or loop is not None
        if loop is not None and tell:
            try:
                loop.call_soon_threadsafe(self.drain)
            except RuntimeError:
                # The loop is closed: records are no longer published.
                self._loop = None

    def start(self) -> None:
        """Publish from now on; queued records come first."""
        self._loop = asyncio.get_running_loop()
        self.drain()

    def drain(self) -> None:
        """Publish a batch of queued records."""
        for _ in range(_BATCH_MAX):
            with self._guard:
                if not self._records:
                    self._woken = False
                    return
                fields, dropped = self._records.popleft(), self.dropped
                self.dropped = 0
            self._publishing = threading.get_ident()
            try:
                if dropped:
                    self._publish(_drop_report(fields, dropped))
                self._publish(fields)
            except Exception:
                # The failure cannot be reported; the record counts as dropped.
                with self._guard:
                    self.dropped += 1
            finally:
                self._publishing = None
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon(self.drain)

    def stop(self) -> None:
        """Publish the queued records and stop."""
        while self._records and self._loop is not None:
            before = len(self._records)
            self.drain()
            if len(self._records) >= before:
                break
        self._loop = None


def _message(record: logging.LogRecord) -> str:
    """Return the message; the template and the arguments if it cannot be formatted."""
    try:
        return encodable(record.getMessage())
    except RecursionError:
        raise
    except Exception as error:
        parts = [f"{type(error).__name__}: {error}"]
        for part in (record.msg, record.args):
            try:
                parts.append(repr(part))
            except Exception:
                parts.append(f"<{type(part).__name__}>")
        return encodable("{1} {2} cannot be formatted: {0}".format(*parts))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    trace = ""
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
    return {
        "name": record.name,
        "level": record.levelno,
        "message": _message(record)[:TEXT_MAX],
        "traceback": trace[-TEXT_MAX:],
        "filePath": record.pathname,
        "functionName": record.funcName or "",
        "lineNumber": record.lineno,
        "process": record.process or os.getpid(),
        "timestamp": record.created,
    }


def _drop_report(fields: dict[str, Any], dropped: int) -> dict[str, Any]:
    text = f"{dropped} log records were dropped: they came faster than they are published"
    return {**fields, "level": logging.WARNING, "message": text, "traceback": ""}
