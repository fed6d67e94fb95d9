"""Levels that are set from outside, on Python's own loggers.

Python's loggers decide by themselves what they hand to handlers. Where a pattern, of ``helio log
level set`` or of a settings file, has a logger publish more than the program says, the logger is
given that level and a filter: what is below the program's own level goes to the handlers that
publish it, and to no others. So a console stays as it is.

One thread looks, four times a second, whether levels, loggers or handlers have changed. It alone
changes loggers, and holds no lock meanwhile: who configures ``logging`` holds ``logging``'s.
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

_LOOKING_S = 0.25


class Publishing(logging.Handler):
    """A handler whose levels are also set from outside."""

    _raw: RawLogging | None = None


class _Lowered:
    """What was done to a logger."""

    def __init__(self, said: int) -> None:
        self.said = self.given = said
        """The logger's level as the program has set it, and the one it has been given instead."""
        self.takers: tuple[int, list[tuple[Publishing, int]]] = (0, [])
        """The lowest level that goes to all handlers, and who takes from which level on."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Hand a record to those who take it but would not get it otherwise."""
        own, takers = self.takers
        for handler, level in takers:
            if level <= record.levelno < max(own, handler.level) and handler in _HANDLERS:
                handler.handle(record)
        return record.levelno >= own


_HANDLERS: weakref.WeakSet[Publishing] = weakref.WeakSet()
_LOWERED: dict[logging.Logger, _Lowered] = {}
_SOME = threading.Event()
_THREADS: list[threading.Thread] = []
_STARTING = threading.Lock()


def _forked() -> None:
    """What handlers have of their parent's is not their own, and its thread is not there."""
    global _SOME, _STARTING
    _SOME, _STARTING = threading.Event(), threading.Lock()
    _THREADS.clear()
    for handler in list(_HANDLERS):
        handler._raw = None


os.register_at_fork(after_in_child=_forked)


def follow(handler: Publishing) -> None:
    """Have loggers follow what is said to a handler, until it is let go."""
    _HANDLERS.add(handler)
    _SOME.set()
    with _STARTING:
        if not _THREADS:
            _THREADS.append(threading.Thread(target=_look, name="helio-log-levels", daemon=True))
            _THREADS[0].start()


def leave(handler: Publishing) -> None:
    """Let a handler go; a moment later its loggers are as the program has them."""
    _HANDLERS.discard(handler)


def _look() -> None:
    seen, pause = None, threading.Event()
    while True:
        handlers = sorted(_HANDLERS, key=id)
        loggers = _loggers()
        now = (
            [(id(handler), handler.level, _changes(handler)) for handler in handlers],
            [(logger.level, logger.propagate, [*map(id, logger.handlers)]) for logger in loggers],
        )
        if now != seen:
            _apply(loggers, handlers)
            seen = now
        if handlers:
            # So that who drops a handler without closing it is not held up by this.
            del handlers
            pause.wait(_LOOKING_S)
        else:
            _SOME.clear()
            if not _HANDLERS:
                _SOME.wait()


def _loggers() -> list[logging.Logger]:
    """All there are, parents first."""
    known = [*logging.root.manager.loggerDict.values()]
    loggers = [logger for logger in known if isinstance(logger, logging.Logger)]
    return [logging.root, *sorted(loggers, key=lambda logger: logger.name.count("."))]


def _changes(handler: Publishing) -> int:
    # A handler may be closed meanwhile.
    with contextlib.suppress(Exception):
        return handler._raw.level_changes() if handler._raw else -1
    return -1


def _ruled(handler: Publishing, name: str) -> int | None:
    with contextlib.suppress(Exception):
        return handler._raw.ruled_level(name) if handler._raw else None
    return None


def _apply(loggers: list[logging.Logger], handlers: list[Publishing]) -> None:
    said: dict[logging.Logger | None, int] = {}
    for logger in loggers:
        lowered = _LOWERED.get(logger) or _Lowered(logger.level)
        if logger.level != lowered.given:
            # The program has set it since.
            lowered.said = lowered.given = logger.level
        said[logger] = own = lowered.said or said.get(logger.parent, logging.NOTSET)
        ruled = ((handler, _ruled(handler, logger.name)) for handler in _reached(logger, handlers))
        takers = [
            (handler, level)
            for handler, level in ruled
            if level is not None and level < max(own, handler.level)
        ]
        lowest = min([own, *(level for _, level in takers)])
        inherited = logger.parent.getEffectiveLevel() if logger.parent else logging.NOTSET
        lowered.takers = (own, takers)
        lowered.given = lowered.said if lowest == (lowered.said or inherited) else lowest
        # The filter is there before what it is for, and until it is over.
        if takers or lowered.given != lowered.said:
            _LOWERED[logger] = lowered
            logger.addFilter(lowered.filter)
            _set(logger, lowered.given)
        elif _LOWERED.pop(logger, None):
            _set(logger, lowered.given)
            logger.removeFilter(lowered.filter)


def _set(logger: logging.Logger, level: int) -> None:
    if logger.level != level:
        logger.setLevel(level)


def _reached(logger: logging.Logger, handlers: list[Publishing]) -> Iterator[Publishing]:
    """The handlers that a logger's records come to."""
    at: logging.Logger | None = logger
    while at:
        yield from (handler for handler in handlers if handler in at.handlers)
        at = at.parent if at.propagate else None
