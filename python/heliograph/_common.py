"""Code shared by the asynchronous and the synchronous API. Nothing here waits."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from heliograph import _qos
from heliograph._errors import ConnectError, SubscribeError
from heliograph._events import Event, Gap
from heliograph._heliograph import RawBus, RawSubscription, RawTopic, Schema, Stats, forked
from heliograph._schema import schema as schema_of
from heliograph._start import Start, latest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from heliograph._heliograph import (
        ManualClock,
        Null,
        Pending,
        PublishOptions,
        Receipt,
        SubscribeOptions,
        Time,
    )
    from heliograph._lagging import Lagging
    from heliograph._qos import Guarantee, Qos

_T = TypeVar("_T")

_LOG = logging.getLogger("heliograph")

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)


def open_bus(url: str | None, producer: str | None, clock: ManualClock | None) -> RawBus:
    """Connect to ``url``, else to ``HELIO_URL``, else to the user's own journal."""
    url = url or os.environ.get("HELIO_URL") or f"journal:{_default_folder()}"
    return RawBus(url, producer, clock)


def _default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    try:
        return Path(state).expanduser() / "heliograph" / "default"
    except RuntimeError as error:
        raise ConnectError("no URL and no home folder: give one, or set HELIO_URL") from error


Evolution = Literal["none", "backward", "forward", "full"]
"""The required compatibility of a topic's schemas; see :meth:`heliograph.Bus.topic`."""


def open_topic(
    bus: RawBus,
    name: str,
    kind: Any,
    qos: Qos | None,
    evolution: Evolution | None = None,
    producer: str | None = None,
    required: Sequence[str] | None = None,
) -> RawTopic:
    """Open a topic of a type: a record class, a source of a schema, bytes, or None."""
    text = None if qos is None else qos.to_json()
    if kind is bytes:
        return bus.topic(name, text, None, evolution, producer)
    if kind is not None:
        return bus.topic(name, text, schema_of(kind), evolution, producer, required)
    known = bus.newest_schema(name)
    schema = None if known is None else Schema(known)
    return bus.topic(name, text, schema, evolution, producer)


def checked_timeout(timeout: float | None) -> float | None:
    """Return a timeout in seconds; ValueError for NaN, which would never end."""
    if timeout is not None and timeout != timeout:
        raise ValueError(f"timeout={timeout}: give a number of seconds, or None for no limit")
    return timeout


def report(event: Event) -> None:
    """Log an event of a subscription that has no listener."""
    if isinstance(event, Gap) and event.cause == "replaced":
        _LOG.warning(
            "partition %d is another log than the one of the committed position %d: it is read "
            "from offset %d on, and samples may be repeated",
            event.partition,
            event.following,
            event.first,
        )
    elif isinstance(event, Gap):
        _LOG.warning("%d samples are lost: %s", event.lost, event)
    else:
        _LOG.info("%s", event)


class Writer(NamedTuple):
    """A current or former producer of a topic, in its newest incarnation."""

    producer: str
    """Its name."""
    incarnation: int
    """Increases at each start of the producer."""
    alive: bool | None
    """Whether it is alive: its process runs, and it published or asserted within the topic's lease,
    if the topic has one. None if unknown to the transport."""


class GroupMember(NamedTuple):
    """A live member of a group."""

    name: str
    """Its name: the producer name of its bus."""
    process: int | None
    """Its process, on transports of one machine."""
    host: str | None
    """The address from which it is connected, on transports of a network."""
    partitions: list[int]
    """The partitions that are assigned to it."""


class GroupPartition(NamedTuple):
    """A group's position in a partition."""

    partition: int
    first: int
    """The offset of the oldest stored sample."""
    end: int
    """The offset that the next publish gets."""
    committed: int | None
    """The offset at which the group resumes; None before its first commit."""

    @property
    def lag(self) -> int | None:
        """How many stored samples lie behind the committed position."""
        if self.committed is None:
            return None
        return max(self.end - max(self.committed, self.first), 0)


class Group(NamedTuple):
    """A group of subscriptions that share a topic's partitions."""

    name: str
    members: list[GroupMember]
    partitions: list[GroupPartition]
    """All partitions of the topic."""

    @property
    def lag(self) -> int:
        """The lag over all partitions that have a committed position."""
        return sum(each.lag or 0 for each in self.partitions)


class TopicBase(Generic[_T]):
    """A topic that is open on a bus: the operations that do not wait."""

    def __init__(self, raw: RawTopic) -> None:
        self._raw = raw
        self._publish = raw.publish

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._raw.name

    @property
    def producer(self) -> str:
        """The producer name of this handle."""
        return self._raw.producer

    def writers(self) -> list[Writer]:
        """Return current and former writers of the topic, by name.

        Takes microseconds on the journal; on a broker, as long as it takes to answer.
        """
        return [Writer(*told) for told in self._raw.writers()]

    def groups(self) -> list[Group]:
        """Return the topic's groups with their members, committed positions and lag, by name.

        Takes microseconds on the journal; on a broker, as long as it takes to answer. Refused by
        transports without groups (:class:`QosRefused`).
        """
        return [
            Group(
                name,
                [GroupMember(*member) for member in members],
                [GroupPartition(*partition) for partition in partitions],
            )
            for name, members, partitions in self._raw.groups()
        ]

    def grant(self, user: str, *, password: str | None = None) -> str | None:
        """Let a user read this topic, and write nothing.

        On a journal it is a user of this machine, by name or number, who connects with
        ``access=read``; the topic is closed to all others except the journal's owner and users
        to whom it was granted before. On Kafka it is a principal, which gets a login
        (SCRAM-SHA-512) and may read in groups of this topic.

        Returns the password that was generated, on Kafka and if the user had no login; it is
        stored nowhere. Give ``password`` to choose one. Waits for the engine.

        Refused by transports and brokers without users (:class:`QosRefused`); raises
        :class:`StorageError` if the engine fails or this user may not grant.
        """
        return self._raw.grant(user, password)

    def revoke(self, user: str) -> bool:
        """End a user's grant (:meth:`grant`); return whether there was one.

        The user's login stays. On a journal, files that the user has open stay readable there.
        """
        return self._raw.revoke(user)

    @property
    def schema(self) -> Schema | None:
        """The schema of the samples; None if samples are bytes."""
        return self._raw.schema

    @property
    def qos(self) -> Qos:
        """The quality of service that the topic was created with."""
        return _qos.from_json(json.loads(self._raw.qos))

    @property
    def publisher_stats(self) -> dict[str, int]:
        """Statistics of the samples that this bus published here.

        ``taken`` samples and their ``bytes``; ``refused`` and ``dropped`` because a queue was full;
        ``failed``; ``abandoned`` by callers during the wait. All are 0 before the first one.
        """
        return self._raw.counts()

    def key(self, *values: Any) -> bytes:
        """Return the key for these values of the record's key fields, in order."""
        return (self._raw.schema or Schema("bytes")).key(*values)

    def claim(self) -> int:
        """Open the writer now instead of at the first publish; return its incarnation.

        Raises :class:`Fenced` if the topic is exclusive and has a live writer.
        """
        return self._raw.claim()

    def assert_alive(self) -> None:
        """Renew this writer's liveliness lease without publishing."""
        self._raw.assert_alive()

    @staticmethod
    def _publish_options(
        key: bytes | str | None,
        level: int,
        time: Time | None,
        trace: bytes | None,
        headers: Mapping[str, bytes] | None,
        guarantee: Guarantee | str | None,
        partition: int | None,
    ) -> PublishOptions | None:
        """Return the options of a publish, None if all are defaults."""
        plain = key is None and time is None and trace is None and guarantee is None
        if plain and partition is None and level == 0 and not headers:
            return None
        return {
            "key": key,
            "level": level,
            "time": time,
            "trace": trace,
            "headers": headers or None,
            "guarantee": None if guarantee is None else str(guarantee),
            "partition": partition,
        }

    def _send(self, value: _T | Null, options: PublishOptions | None) -> Receipt | Pending[Receipt]:
        """Publish and wait as long as it takes; other threads run during the wait."""
        if options is None:
            return self._publish(value)
        return self._raw.publish_with(value, options)

    def _subscribe(
        self,
        start: Start | None,
        keys: Iterable[bytes | str] | None,
        key_prefix: bytes | str | None,
        partitions: Iterable[int] | None,
        group: str | None,
        lagging: Lagging | None,
        deadline: timedelta | None,
        lifespan: timedelta | None,
        watch: Literal["writers"] | None,
        pinned_bytes: int | None,
    ) -> RawSubscription:
        start = start or latest()
        subscribe_options: SubscribeOptions = {
            "start": (start.kind, start.number, start.partition),
            "keys": None if keys is None else list(keys),
            "key_prefix": key_prefix,
            "partitions": None if partitions is None else list(partitions),
            "group": group,
            "lagging": None if lagging is None else (lagging.kind, lagging.depth),
            "deadline": deadline,
            "lifespan": lifespan,
            "watch_writers": watch == "writers",
            "each_undecodable": False,
            "pinned_bytes": pinned_bytes,
        }
        return self._raw.subscribe(subscribe_options)


class SubscriptionBase(Generic[_T]):
    """A cursor of its own in a topic: the operations that do not wait."""

    def __init__(
        self,
        raw: RawSubscription,
        group: str | None,
        on_event: Callable[[Event], object] | None,
    ) -> None:
        self._raw = raw
        self._group = group
        self._take = raw.take
        self._listener = on_event or report
        self._closed = False

    def _notify(self, event: Event) -> None:
        """Call the listener; its error must not lose samples that were taken with the event."""
        try:
            self._listener(event)
        except Exception:
            _LOG.exception("on_event failed with %s", event)

    @property
    def stats(self) -> Stats:
        """The counters: received, lost, conflated, lag and others."""
        return self._raw.stats

    @property
    def positions(self) -> list[tuple[int, int, int]]:
        """For each partition: its number, the next offset and the end of the log."""
        return self._raw.positions()

    def seek(self, offset: int, *, partition: int = 0) -> None:
        """Seek to an offset of a partition, backward or forward."""
        self._raw.seek(partition, offset)

    def commit(self, position: tuple[int, int] | None = None) -> None:
        """Commit the position after the last returned samples, or ``(partition, offset)``.

        Waits until the engine has stored it. Raises :class:`SubscribeError` if the subscription is
        in no group.
        """
        if self._group is None:
            raise SubscribeError("the subscription has no group; name one to commit positions")
        self._raw.commit(position)
