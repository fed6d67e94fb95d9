"""What a subscription tells besides samples: losses, silences, comings and goings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True)
class Event:
    """Something that happened to a subscription, in order with its samples."""


@dataclass(frozen=True)
class Gap(Event):
    """``lost`` samples that this subscription will never get.

    ``cause`` is ``retention``, ``overload`` (this subscription's own policy), ``damaged`` or
    ``sequence`` (``producer`` numbered samples that never came). ``first`` is the first offset (or
    sequence number) that is lost, ``following`` the first that is not.
    """

    partition: int
    lost: int
    cause: str
    first: int
    following: int
    producer: str | None = None


@dataclass(frozen=True)
class Undecodable(Event):
    """A sample that was passed over because its bytes or its schema cannot be read.

    ``sample`` is what came with it; its ``value`` raises.
    """

    partition: int
    offset: int
    payload: bytes
    reason: str
    sample: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class WriterFenced(Event):
    """Samples of a replaced incarnation are dropped: a zombie writes beside its successor."""

    partition: int
    producer: str
    incarnation: int
    newer: int


@dataclass(frozen=True)
class DeadlineMissed(Event):
    """No sample of ``key`` came within ``deadline``, ``in_a_row`` times by now."""

    key: bytes
    deadline: timedelta
    in_a_row: int


@dataclass(frozen=True)
class LivelinessChanged(Event):
    """A writer came (``alive``) or went; asked for with ``watch="writers"``."""

    producer: str
    incarnation: int
    alive: bool


@dataclass(frozen=True)
class Outage(Event):
    """The engine cannot be reached; the transport tries on."""

    cause: str


@dataclass(frozen=True)
class Restored(Event):
    """The engine can be reached again."""


@dataclass(frozen=True)
class Assigned(Event):
    """The partitions that this member of a group reads from now on."""

    partitions: list[int]


@dataclass(frozen=True)
class Incompatible(Event):
    """A writer of the topic offers another ``policy``: its samples do not come."""

    policy: str


@dataclass(frozen=True)
class Unknown(Event):
    """An event of a newer bus that this package has no class for."""

    text: str
