"""Python's own ``logging`` on the bus.

::

    import logging
    from heliograph.logging import Handler

    logging.basicConfig(level=logging.INFO, handlers=[Handler("journal:/var/lib/helio")])
    log = logging.getLogger("CONTROL.DV11.Mount")
    log.warning("axis %s is %.1f degrees off", "azimuth", 0.25, extra={"audience": "Operator"})

``helio log tail`` shows the record. Logging calls never wait for the bus. When the queue is full,
records are shed by level, ERROR and above last, and counted (:attr:`Handler.figures`). Records of
ALERT and above are published at once.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from heliograph import _log_levels
from heliograph._errors import StorageError
from heliograph._heliograph import RawLogging, log_records

if TYPE_CHECKING:
    from os import PathLike

    from heliograph._heliograph import Sample

__all__ = ["ALERT", "DELOUSE", "EMERGENCY", "NOTICE", "TRACE", "Figures", "Handler", "records"]

#: Levels of ACS without a name in Python, as numbers of Python's scale.
TRACE: Final = 5
DELOUSE: Final = 7
NOTICE: Final = 25
ALERT: Final = 60
EMERGENCY: Final = 70

_FORMATTER = logging.Formatter()


class Figures(NamedTuple):
    """Statistics of a handler's records: offered = published + shed + waiting.

    Each call of :meth:`Handler.emit` offers one. ``shed`` records are lost: the queue was full, or
    the handler failed.
    """

    offered: int
    published: int
    shed: int
    waiting: int
    #: The error that blocks publishing, if any.
    trouble: str | None


class Handler(_log_levels.PublishingHandler):
    """Publishes log records on a bus, one topic a level, as ``helio log`` reads them.

    Dots in logger names become slashes (``CONTROL.DV11`` is ``CONTROL/DV11``). Arguments and values
    of ``extra`` keep their types. In ``extra``, ``audience`` (a name, several, or ``"*"`` for
    everyone), ``context``, ``array``, ``antenna``, ``log_id``, ``uri`` and ``stack`` (an id and a
    level) are ACS's fields. Exceptions are published as data with OpenTelemetry's names.

    Levels from ``helio log level set`` and from a settings file apply to Python's loggers, too.
    Records below the program's own level go to this handler only, not to others. A settings file's
    ``level`` is the lowest published level of all other loggers.

    After a fork the child continues to log, on its own bus. The child's producer and spill file
    have the process ID appended to their names. If the settings file names a spill file, the child
    ignores the settings.

    :param url: the bus.
    :param producer: the producer name, unique to this process; by default made of program, host and
        process.
    :param prefix: the prefix of the topics' names.
    :param level: the lowest published level.
    :param batch_age: the longest time in seconds that a record waits for a batch, unless it is
        urgent.
    :param spill: a file for records that the bus does not accept, used when 16 MiB are pending in
        memory. It outlives the process. Each process needs its own.
    :param spill_bytes: the largest size of the spill file.
    :param settings: a settings file, which overrides these parameters and is watched for changes;
        by default the one in the environment variable ``HELIO_LOG_SETTINGS``, if set.
    :raises HelioError: if the bus cannot be connected.
    :raises ValueError: if the settings file is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        producer: str | None = None,
        prefix: str = "log",
        level: int | str = logging.NOTSET,
        batch_age: float = 0.02,
        spill: str | PathLike[str] | None = None,
        spill_bytes: int = 1 << 30,
        settings: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(level)
        # Until it is open.
        self._ended = True
        self._failed = 0
        self._bus = (url, prefix, batch_age)
        self._producer = producer
        self._spill = None if spill is None else (Path(spill), spill_bytes)
        settings = settings or os.environ.get("HELIO_LOG_SETTINGS")
        self._settings = Path(settings) if settings else None
        self._raw = self._open(producer, self._spill, self._settings)
        self._ended = False
        _log_levels.follow(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Publish a record.

        One that cannot be formatted is published with its template and the ``repr`` of its
        arguments; its data ``logging.error`` is the reason. Other errors are handled as in
        ``logging``'s own handlers, and the record counts as shed.
        """
        try:
            (self._raw or self._in_child()).emit(record, _trace(record))
        except RecursionError:
            self._failed += 1
            raise
        except Exception:
            self._failed += 1
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all logged records are published, at most 10 seconds."""
        if not self._ended:
            (self._raw or self._in_child()).flush(10.0)

    def close(self) -> None:
        """Publish pending records and close the handler."""
        # At a program's end logging flushes closed handlers, too.
        self._ended = True
        _log_levels.leave(self)
        if self._raw:
            self._raw.close()
        super().close()

    @property
    def figures(self) -> Figures:
        """The statistics so far."""
        told = Figures(*(self._raw or self._in_child()).figures())
        failed = self._failed
        return told._replace(offered=told.offered + failed, shed=told.shed + failed)

    def _open(
        self, producer: str | None, spill: tuple[Path, int] | None, settings: Path | None
    ) -> RawLogging:
        url, prefix, batch_age = self._bus
        process = f"{_program()}:{os.getpid()}"
        return RawLogging(url, (producer, process), prefix, batch_age, spill, settings)

    def _in_child(self) -> RawLogging:
        """Reopen in a forked process; logging's own lock is held."""
        pid = os.getpid()
        producer = None if self._producer is None else f"{self._producer}-{pid}"
        spill = None
        if self._spill:
            file, file_bytes = self._spill
            spill = (file.with_name(f"{file.name}-{pid}"), file_bytes)
        try:
            self._raw = self._open(producer, spill, self._settings)
        except StorageError:
            # The spill file that the settings name is the parent's.
            if not self._settings:
                raise
            self._raw = self._open(producer, spill, None)
        _log_levels.follow(self)
        return self._raw


def _program() -> str:
    """A program's name: that of its file or of its package."""
    path = Path(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.name == "__main__.py" else path.stem
    return name if name not in ("", "-c", "-m") else "python"


def _trace(record: logging.LogRecord) -> str | None:
    if not (record.exc_info or record.exc_text or record.stack_info):
        return None
    if record.exc_info and not record.exc_text:
        try:
            # Cached for other handlers, as logging's own formatter does.
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        except Exception as error:
            return f"{record.exc_info!r} has no traceback: {error!r}"
    return "\n".join(part for part in (record.exc_text, record.stack_info) if part)


def records(sample: Sample[Any]) -> list[dict[str, Any]]:
    """Read the records of a sample of a log topic, as ``helio log tail --json`` shows them.

    :raises DecodeError: if the sample is not a packet of log records.
    """
    found = [json.loads(line) for line in log_records(sample.payload)]
    for record in found:
        record.setdefault("producer", sample.producer)
    return found
