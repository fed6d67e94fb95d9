"""What a component says of its commands beside their handlers: lanes, limits, streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_T = TypeVar("_T")

_MARK = "__helio_command__"


@dataclass(frozen=True)
class Stream:
    """A stream of commands, each for a time: one that comes too late is ignored and counted.

    ``field`` has that time, in TAI seconds. A component takes a command until ``margin`` seconds
    before it.
    """

    field: str
    margin: float = 0.0


@dataclass(frozen=True)
class CommandOptions:
    """How a command is taken."""

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
    """Say how a command is taken; a decorator of its handler.

    Commands of one name run one after the other, unless they are ``concurrent``. ``limits`` are the
    least and the greatest value (None: no limit) of fields, of every element of an array; NaN is
    within every limit, because it often says "keep", but not where ``refuse_nan`` names the field.
    ``stream`` names the field that has the time for which each command is, or is a
    :class:`heliograph.Stream`. What is refused is acknowledged as failed, naming the field.
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
    """Return what was said of a handler's command."""
    found = getattr(handler, _MARK, None)
    return found if isinstance(found, CommandOptions) else CommandOptions()
