"""Applies levels that are set from outside to Python's own loggers.

Python's loggers decide which records they pass to handlers. A pattern, of ``helio log level set``
or of a settings file, may publish more records of a logger than the program's level admits. The
logger then gets that level and a filter: records below the program's level go to the publishing
handlers only. Consoles are not affected.

One thread polls levels, loggers and handlers four times a second. Only this thread changes loggers,
and it holds no lock of its own meanwhile, because code that configures ``logging`` holds the lock
of ``logging``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph._heliograph import RawLogging

_POLL_INTERVAL_S = 0.25


class PublishingHandler(logging.Handler):
    """A handler whose levels can also be set from outside."""

    _raw: RawLogging | None = None


class _OverrideLevel(int):
    """A level that a handler's patterns gave a logger; saving and restoring it keeps its kind."""

    program_level: int
    """The level that the program has set."""


def _program_level(logger: logging.Logger) -> int:
    level = logger.level
    return level.program_level if isinstance(level, _OverrideLevel) else level


class _LevelFilter:
    """A filter of a logger for records that only some handlers accept."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.receivers: tuple[int, list[tuple[PublishingHandler, int]]] = (0, [])
        """The lowest level for all handlers, and each publishing handler's own."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Hand a record below the program's level to the handlers that accept it."""
        own, receivers = self.receivers
        level = self.logger.level
        if level and not isinstance(level, _OverrideLevel):
            # The program has set another level since.
            own = level
        for handler, lowest in receivers:
            if lowest <= record.levelno < max(own, handler.level) and handler in _HANDLERS:
                handler.handle(record)
        return record.levelno >= own


_HANDLERS: weakref.WeakSet[PublishingHandler] = weakref.WeakSet()
_FILTERS: dict[logging.Logger, _LevelFilter] = {}
_HAS_HANDLERS = threading.Event()
_THREADS: list[threading.Thread] = []
_LOCK = threading.Lock()
"""Lock of the handlers and the thread; no other lock is taken while it is held."""


def _forked() -> None:
    """Forget the parent's handlers and thread in a forked child."""
    global _HAS_HANDLERS, _LOCK
    _HAS_HANDLERS, _LOCK = threading.Event(), threading.Lock()
    _THREADS.clear()
    for handler in list(_HANDLERS):
        handler._raw = None
    for logger, level_filter in list(_FILTERS.items()):
        logger.setLevel(_program_level(logger))
        logger.removeFilter(level_filter.filter)
    _FILTERS.clear()


os.register_at_fork(after_in_child=_forked)


def follow(handler: PublishingHandler) -> None:
    """Apply a handler's levels to the loggers, until :func:`leave`."""
    with _LOCK:
        _HANDLERS.add(handler)
        _HAS_HANDLERS.set()
        if not _THREADS:
            thread = threading.Thread(target=_poll, name="helio-log-levels", daemon=True)
            thread.start()
            _THREADS.append(thread)


def leave(handler: PublishingHandler) -> None:
    """Release a handler; its loggers soon get the program's levels back."""
    with _LOCK:
        _HANDLERS.discard(handler)


def _poll() -> None:
    seen, pause = None, threading.Event()
    while True:
        with _LOCK:
            handlers = sorted(_HANDLERS, key=id)
            if not handlers:
                _HAS_HANDLERS.clear()
        # Programs change loggers and handlers concurrently; the next poll retries a failure.
        with contextlib.suppress(Exception):
            loggers = _loggers()
            now = ([(id(one), one.level, _changes(one)) for one in handlers], _state(loggers))
            if now != seen:
                _apply(loggers, handlers)
                seen = now
        some = bool(handlers)
        # The thread must not keep a handler alive that was dropped without closing.
        del handlers
        if some:
            pause.wait(_POLL_INTERVAL_S)
        else:
            _HAS_HANDLERS.wait()


def _loggers() -> list[logging.Logger]:
    """All loggers, parents first."""
    known = [*logging.root.manager.loggerDict.values()]
    loggers = [logger for logger in known if isinstance(logger, logging.Logger)]
    return [logging.root, *sorted(loggers, key=lambda logger: logger.name.count("."))]


def _state(loggers: list[logging.Logger]) -> object:
    """The loggers' state as the program has set it."""
    return [
        (
            one.level,
            _program_level(one),
            one.propagate,
            [*map(id, one.handlers)],
            [*map(id, one.filters)],
        )
        for one in loggers
    ]


def _changes(handler: PublishingHandler) -> int:
    # The handler may be closed concurrently.
    with contextlib.suppress(Exception):
        return handler._raw.level_changes() if handler._raw else -1
    return -1


def _override_of(handler: PublishingHandler, name: str) -> int | None:
    with contextlib.suppress(Exception):
        return handler._raw.ruled_level(name) if handler._raw else None
    return None


def _apply(loggers: list[logging.Logger], handlers: list[PublishingHandler]) -> None:
    own: dict[logging.Logger | None, int] = {}
    for logger in loggers:
        level, program_level = logger.level, _program_level(logger)
        own[logger] = lowest = program_level or own.get(logger.parent, logging.NOTSET)
        ruled = (
            (handler, _override_of(handler, logger.name))
            for handler in _handlers_of(logger, handlers)
        )
        receivers = [
            (handler, from_level)
            for handler, from_level in ruled
            if from_level is not None and from_level < max(lowest, handler.level)
        ]
        wanted = min([lowest, *(from_level for _, from_level in receivers)])
        inherited = logger.parent.getEffectiveLevel() if logger.parent else logging.NOTSET
        given = program_level
        if wanted != (program_level or inherited):
            given = _OverrideLevel(wanted)
            given.program_level = program_level
        if logger.level is not level:
            # The program has just set it; the next poll handles it.
            continue
        # The filter is added before the level, removed after it, and is the last filter.
        if receivers or isinstance(given, _OverrideLevel):
            level_filter = _FILTERS.setdefault(logger, _LevelFilter(logger))
            level_filter.receivers = (own[logger], receivers)
            if logger.filters[-1:] != [level_filter.filter]:
                logger.removeFilter(level_filter.filter)
                logger.addFilter(level_filter.filter)
            _set(logger, given)
        else:
            # Also restores a level that was saved while a pattern was in force.
            _set(logger, given)
            if gone := _FILTERS.pop(logger, None):
                logger.removeFilter(gone.filter)


def _set(logger: logging.Logger, level: int) -> None:
    if logger.level != level or type(logger.level) is not type(level):
        logger.setLevel(level)


def _handlers_of(
    logger: logging.Logger, handlers: list[PublishingHandler]
) -> Iterator[PublishingHandler]:
    """The handlers that receive a logger's records."""
    at: logging.Logger | None = logger
    while at:
        yield from (handler for handler in handlers if handler in at.handlers)
        at = at.parent if at.propagate else None
