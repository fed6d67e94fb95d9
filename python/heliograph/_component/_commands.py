"""Options of commands beside their handlers: concurrency, limits, streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_T = TypeVar("_T")

_MARK = "__helio_command__"


@dataclass(frozen=True)
class Stream:
    """A stream of commands, each for a time; late commands are ignored and counted.

    ``field`` has that time, in TAI seconds. A component accepts a command until ``margin`` seconds
    before it.
    """

    field: str
    margin: float = 0.0


@dataclass(frozen=True)
class CommandOptions:
    """The options of a command."""

    concurrent: bool = False
    limits: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    refuse_nan: tuple[str, ...] = ()
    stream: Stream | None = None


def command(
    *,
    concurrent: bool = False,
    limits: Mapping[str, tuple[float | None, float | None]] | None = None,
    refuse_nan: Iterable[str] = (),
    stream: Stream | str | None = None,
) -> Callable[[_T], _T]:
    """Set the options of a command; a decorator of its handler.

    Commands of one name run one after the other, unless they are ``concurrent``. ``limits`` are the
    smallest and the largest value (None: no limit) of fields, and of every element of an array. NaN
    is within every limit, because it often means "keep", unless ``refuse_nan`` names the field.
    ``stream`` names the field with each command's time, or is a :class:`heliograph.Stream`. A
    rejected command is acknowledged as failed; the result names the field.
    """
    made = CommandOptions(
        concurrent=concurrent,
        limits=dict(limits or {}),
        refuse_nan=tuple(refuse_nan),
        stream=Stream(stream) if isinstance(stream, str) else stream,
    )

    def mark(handler: _T) -> _T:
        setattr(handler, _MARK, made)
        return handler

    return mark


def options_of(handler: Any) -> CommandOptions:
    """Return the options that :func:`command` attached to a handler."""
    found = getattr(handler, _MARK, None)
    return found if isinstance(found, CommandOptions) else CommandOptions()
