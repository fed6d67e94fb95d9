"""Python's own ``logging`` on the bus.

::

    import logging
    from heliograph.logging import Handler

    logging.basicConfig(level=logging.INFO, handlers=[Handler("journal:/var/lib/helio")])
    log = logging.getLogger("CONTROL.DV11.Mount")
    log.warning("axis %s is %.1f degrees off", "azimuth", 0.25, extra={"audience": "Operator"})

``helio log tail`` shows it. A call that logs never waits for the bus: what there is no room for is
dropped by level, ERROR and above last, and counted (:attr:`Handler.figures`). Records from ALERT
on are published at once.
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

#: Levels of ACS that Python has no name for, by numbers of Python's.
TRACE: Final = 5
DELOUSE: Final = 7
NOTICE: Final = 25
ALERT: Final = 60
EMERGENCY: Final = 70

_FORMATTER = logging.Formatter()


class Figures(NamedTuple):
    """What became of the records of a handler: offered = published + shed + waiting."""

    offered: int
    published: int
    shed: int
    waiting: int
    #: Why the bus takes nothing at the moment.
    trouble: str | None


class Handler(_log_levels.Publishing):
    """Publishes log records on a bus, one topic a level, as ``helio log`` reads them.

    A logger's dots become slashes (``CONTROL.DV11`` is ``CONTROL/DV11``). A record's arguments, and
    what ``extra`` gives it, keep their types; of ``extra``, ``audience`` (a name, several, or
    ``"*"`` for everyone), ``context``, ``array``, ``antenna``, ``log_id``, ``uri`` and ``stack``
    (an id and a level) are fields of ACS's. An exception comes as data with OpenTelemetry's names.

    What ``helio log level set`` and a settings file say of loggers holds for Python's own ones,
    too: a logger that is to publish more than the program says hands it to this handler, and to no
    others. A settings file's ``level`` is the lowest that is published of the others.

    A process that forks logs on in the child, over a bus of its own; the child's producer and spill
    file have the process's number behind their names. Where the settings file names a spill file,
    the child does without the settings.

    :param url: the bus.
    :param producer: whose records they are, a name that no other process has; by default one is
        made up of program, host and process.
    :param prefix: what the topics' names begin with.
    :param level: the lowest level that is published.
    :param batch_age: how long, in seconds, a record waits for others at most, if it is not urgent.
    :param spill: a file for what the bus does not take, once 16 MiB wait in memory; it outlives the
        process. Each process needs its own.
    :param spill_bytes: how long that may become.
    :param settings: a settings file, which goes over all this and is watched; by default the one
        that the environment's ``HELIO_LOG_SETTINGS`` names, if it does.
    :raises HelioError: where the bus cannot be connected.
    :raises ValueError: where the settings file is wrong.
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
        self._bus = (url, prefix, batch_age)
        self._producer = producer
        self._spill = None if spill is None else (Path(spill), spill_bytes)
        settings = settings or os.environ.get("HELIO_LOG_SETTINGS")
        self._settings = Path(settings) if settings else None
        self._raw = self._open(producer, self._spill, self._settings)
        self._ended = False
        _log_levels.follow(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; what is wrong with it goes the way of ``logging``'s own handlers."""
        try:
            (self._raw or self._in_child()).emit(record, _trace(record))
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until what was logged is published, or 10 seconds are over."""
        if not self._ended:
            (self._raw or self._in_child()).flush(10.0)

    def close(self) -> None:
        """Publish what is there, and end."""
        # At a program's end logging flushes closed handlers, too.
        self._ended = True
        _log_levels.leave(self)
        if self._raw:
            self._raw.close()
        super().close()

    @property
    def figures(self) -> Figures:
        """What became of the records so far."""
        return Figures(*(self._raw or self._in_child()).figures())

    def _open(
        self, producer: str | None, spill: tuple[Path, int] | None, settings: Path | None
    ) -> RawLogging:
        url, prefix, batch_age = self._bus
        process = f"{_program()}:{os.getpid()}"
        return RawLogging(url, (producer, process), prefix, batch_age, spill, settings)

    def _in_child(self) -> RawLogging:
        """Log on in a process that was forked; logging's own lock is held."""
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
    """A program's name: its file's, or its package's."""
    path = Path(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.name == "__main__.py" else path.stem
    return name if name not in ("", "-c", "-m") else "python"


def _trace(record: logging.LogRecord) -> str | None:
    if not (record.exc_info or record.exc_text or record.stack_info):
        return None
    if record.exc_info and not record.exc_text:
        # Kept for other handlers, as logging's own formatter does.
        record.exc_text = _FORMATTER.formatException(record.exc_info)
    return "\n".join(part for part in (record.exc_text, record.stack_info) if part)


def records(sample: Sample[Any]) -> list[dict[str, Any]]:
    """Read the records of a sample of a log topic, as ``helio log tail --json`` shows them.

    :raises DecodeError: where the sample is no packet of log records.
    """
    found = [json.loads(line) for line in log_records(sample.payload)]
    for record in found:
        record.setdefault("producer", sample.producer)
    return found
