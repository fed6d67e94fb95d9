"""Events of a subscription besides samples: losses, missed deadlines, changes of liveliness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True)
class Event:
    """An event of a subscription, in order with its samples."""


@dataclass(frozen=True)
class Gap(Event):
    """``lost`` samples that this subscription will never receive.

    ``cause`` is ``retention``, ``overload`` (this subscription's own policy), ``damaged``,
    ``sequence`` (a hole in the sequences of ``producer``) or ``behind`` (the same, because this
    process stood still and the writer waits for no reader). ``first`` is the first lost offset or
    sequence, ``following`` the first one after the gap.

    ``replaced`` loses none: the log was cut below the committed position ``following``, or restored
    from an older copy, and reading resumes at ``first``.
    """

    partition: int
    lost: int
    cause: str
    first: int
    following: int
    producer: str | None = None


@dataclass(frozen=True)
class Undecodable(Event):
    """A sample that was skipped because its bytes or its schema cannot be read.

    ``sample`` has its other attributes; its ``value`` raises.
    """

    partition: int
    offset: int
    payload: bytes
    reason: str
    sample: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class WriterFenced(Event):
    """Samples of a fenced incarnation are dropped: it still writes after its successor started."""

    partition: int
    producer: str
    incarnation: int
    newer: int


@dataclass(frozen=True)
class DeadlineMissed(Event):
    """No sample of ``key`` arrived within ``deadline``, ``in_a_row`` times in a row."""

    key: bytes
    deadline: timedelta
    in_a_row: int


@dataclass(frozen=True)
class LivelinessChanged(Event):
    """A writer became alive or gone; requires ``watch="writers"``."""

    producer: str
    incarnation: int
    alive: bool


@dataclass(frozen=True)
class Outage(Event):
    """The engine is unreachable; the transport retries."""

    cause: str


@dataclass(frozen=True)
class Restored(Event):
    """The engine is reachable again."""


@dataclass(frozen=True)
class Assigned(Event):
    """The partitions that are assigned to this member of a group from now on."""

    partitions: list[int]


@dataclass(frozen=True)
class Incompatible(Event):
    """A writer of the topic offers an incompatible ``policy``: its samples are not received."""

    policy: str


@dataclass(frozen=True)
class Unknown(Event):
    """An event of a newer bus without a class in this package."""

    text: str
