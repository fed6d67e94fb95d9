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


class _Given(int):
    """A level that a logger has been given here: who saves it and sets it again sets the same."""

    said: int
    """The level that the program has set."""


def _said(logger: logging.Logger) -> int:
    level = logger.level
    return level.said if isinstance(level, _Given) else level


class _Lowered:
    """A filter of a logger, which hands on what only some handlers take."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.takers: tuple[int, list[tuple[Publishing, int]]] = (0, [])
        """The lowest level that goes to all handlers, and who takes from which level on."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Hand a record to those who take it but would not get it otherwise."""
        own, takers = self.takers
        level = self.logger.level
        if level and not isinstance(level, _Given):
            # The program has set it since.
            own = level
        for handler, lowest in takers:
            if lowest <= record.levelno < max(own, handler.level) and handler in _HANDLERS:
                handler.handle(record)
        return record.levelno >= own


_HANDLERS: weakref.WeakSet[Publishing] = weakref.WeakSet()
_LOWERED: dict[logging.Logger, _Lowered] = {}
_SOME = threading.Event()
_THREADS: list[threading.Thread] = []
_LOCK = threading.Lock()
"""Of the handlers and the thread; held where nothing else is waited for."""


def _forked() -> None:
    """What handlers have of their parent's is not their own, and its thread is not there."""
    global _SOME, _LOCK
    _SOME, _LOCK = threading.Event(), threading.Lock()
    _THREADS.clear()
    for handler in list(_HANDLERS):
        handler._raw = None
    for logger, lowered in list(_LOWERED.items()):
        logger.setLevel(_said(logger))
        logger.removeFilter(lowered.filter)
    _LOWERED.clear()


os.register_at_fork(after_in_child=_forked)


def follow(handler: Publishing) -> None:
    """Have loggers follow what is said to a handler, until it is let go."""
    with _LOCK:
        _HANDLERS.add(handler)
        _SOME.set()
        if not _THREADS:
            thread = threading.Thread(target=_look, name="helio-log-levels", daemon=True)
            thread.start()
            _THREADS.append(thread)


def leave(handler: Publishing) -> None:
    """Let a handler go; a moment later its loggers are as the program has them."""
    with _LOCK:
        _HANDLERS.discard(handler)


def _look() -> None:
    seen, pause = None, threading.Event()
    while True:
        with _LOCK:
            handlers = sorted(_HANDLERS, key=id)
            if not handlers:
                _SOME.clear()
        # Programs change loggers and handlers meanwhile: what fails is done by the next look.
        with contextlib.suppress(Exception):
            loggers = _loggers()
            now = ([(id(one), one.level, _changes(one)) for one in handlers], _state(loggers))
            if now != seen:
                _apply(loggers, handlers)
                seen = now
        some = bool(handlers)
        # So that who drops a handler without closing it is not held up by this.
        del handlers
        if some:
            pause.wait(_LOOKING_S)
        else:
            _SOME.wait()


def _loggers() -> list[logging.Logger]:
    """All there are, parents first."""
    known = [*logging.root.manager.loggerDict.values()]
    loggers = [logger for logger in known if isinstance(logger, logging.Logger)]
    return [logging.root, *sorted(loggers, key=lambda logger: logger.name.count("."))]


def _state(loggers: list[logging.Logger]) -> object:
    """What decides of a logger's records besides what is said from outside."""
    return [
        (one.level, _said(one), one.propagate, [*map(id, one.handlers)], [*map(id, one.filters)])
        for one in loggers
    ]


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
    own: dict[logging.Logger | None, int] = {}
    for logger in loggers:
        level, said = logger.level, _said(logger)
        own[logger] = lowest = said or own.get(logger.parent, logging.NOTSET)
        ruled = ((handler, _ruled(handler, logger.name)) for handler in _reached(logger, handlers))
        takers = [
            (handler, from_level)
            for handler, from_level in ruled
            if from_level is not None and from_level < max(lowest, handler.level)
        ]
        wanted = min([lowest, *(from_level for _, from_level in takers)])
        inherited = logger.parent.getEffectiveLevel() if logger.parent else logging.NOTSET
        given = said
        if wanted != (said or inherited):
            given = _Given(wanted)
            given.said = said
        if logger.level is not level:
            # The program has set it just now: the next look's.
            continue
        # The filter is there before what it is for, and until it is over; behind all others.
        if takers or isinstance(given, _Given):
            lowered = _LOWERED.setdefault(logger, _Lowered(logger))
            lowered.takers = (own[logger], takers)
            if logger.filters[-1:] != [lowered.filter]:
                logger.removeFilter(lowered.filter)
                logger.addFilter(lowered.filter)
            _set(logger, given)
        else:
            # Also where a level that was given once was saved, and is set again now.
            _set(logger, given)
            if gone := _LOWERED.pop(logger, None):
                logger.removeFilter(gone.filter)


def _set(logger: logging.Logger, level: int) -> None:
    if logger.level != level or type(logger.level) is not type(level):
        logger.setLevel(level)


def _reached(logger: logging.Logger, handlers: list[Publishing]) -> Iterator[Publishing]:
    """The handlers that a logger's records come to."""
    at: logging.Logger | None = logger
    while at:
        yield from (handler for handler in handlers if handler in at.handlers)
        at = at.parent if at.propagate else None
