"""The synchronous API: the same names without ``await``.

::

    from heliograph import sync

    with sync.connect("journal:site") as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        wind.publish(Wind(speed=7.5, gusts=gusts))
        with wind.subscribe(start=helio.last(1)) as samples:
            for s in samples:
                print(s.time, s.value.speed, samples.stats.lost)

A blocking wait releases the interpreter lock and ends at Ctrl-C. Many threads may use a bus and its
topics; one thread at a time may use a subscription.
"""

from __future__ import annotations

import time as _time
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from heliograph._common import SubscriptionBase, TopicBase, checked_timeout, open_bus, open_topic
from heliograph._component._sync import CommandCall, ReadTopic, Remote, RemoteCommand
from heliograph._errors import ClosedError, WaitTimeout
from heliograph._heliograph import Receipt
from heliograph._heliograph import Sample as _Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    from heliograph._common import Evolution
    from heliograph._errors import HelioError
    from heliograph._events import Event
    from heliograph._heliograph import Null, RawBus, RawSubscription, Sample, Time
    from heliograph._lagging import Lagging
    from heliograph._qos import Guarantee, Qos
    from heliograph._start import Start

__all__ = [
    "Bus",
    "CommandCall",
    "ReadTopic",
    "Remote",
    "RemoteCommand",
    "Subscription",
    "Topic",
    "connect",
]

_T = TypeVar("_T")


def connect(url: str | None = None, *, producer: str | None = None) -> Bus:
    """Connect to a bus; see :func:`heliograph.connect`."""
    return Bus(open_bus(url, producer, None))


class Bus:
    """One connection to one transport; see :class:`heliograph.Bus`."""

    def __init__(self, raw: RawBus) -> None:
        self._raw = raw
        self._closed = False

    def __repr__(self) -> str:
        return f"<Bus {'closed' if self._closed else self._raw.url}>"

    @property
    def url(self) -> str:
        """The URL of the connection."""
        return self._raw.url

    @property
    def producer(self) -> str:
        """The producer name of this connection."""
        return self._raw.producer

    @overload
    def topic(
        self,
        name: str,
        type: type[_T],
        *,
        qos: Qos | None = None,
        evolution: Evolution | None = None,
        producer: str | None = None,
    ) -> Topic[_T]: ...
    @overload
    def topic(
        self,
        name: str,
        type: Any = None,
        *,
        qos: Qos | None = None,
        evolution: Evolution | None = None,
        producer: str | None = None,
    ) -> Topic[Any]: ...
    def topic(
        self,
        name: str,
        type: Any = None,
        *,
        qos: Qos | None = None,
        evolution: Evolution | None = None,
        producer: str | None = None,
    ) -> Topic[Any]:
        """Open a topic; see :meth:`heliograph.Bus.topic`."""
        return Topic(open_topic(self._raw, name, type, qos, evolution, producer), self)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return self._raw.topics()

    def close(self) -> None:
        """Close the connection and end the iterations over its subscriptions."""
        self._closed = True
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Topic(TopicBase[_T]):
    """A topic that is open on a :class:`Bus`; see :class:`heliograph.Topic`."""

    def __init__(self, raw: Any, bus: Bus) -> None:
        super().__init__(raw)
        self._bus = bus

    def publish(
        self,
        value: _T | Null,
        *,
        key: bytes | str | None = None,
        level: int = 0,
        time: Time | None = None,
        trace: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        guarantee: Guarantee | str | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Publish one sample and return its receipt; see :meth:`heliograph.Topic.publish`."""
        outcome = self._send(
            value, self._publish_options(key, level, time, trace, headers, guarantee, partition)
        )
        return outcome if isinstance(outcome, Receipt) else outcome.wait()[0]

    def publish_many(self, values: Iterable[_T | Null]) -> list[Receipt]:
        """Publish samples as one batch; see :meth:`heliograph.Topic.publish_many`."""
        return self._raw.publish_many(values).wait()

    def publish_batch(
        self, values: Iterable[_T | Null], *, partition: int | None = None
    ) -> list[Receipt | HelioError]:
        """Publish a batch with an outcome a sample; see :meth:`heliograph.Topic.publish_batch`."""
        return self._raw.publish_batch(values, partition).wait()

    def flush(self, guarantee: Guarantee | str, *, timeout: float = 60.0) -> None:
        """Wait until all samples published here reach a guarantee, at most ``timeout`` s."""
        self._raw.flush(str(guarantee), timeout)

    def subscribe(
        self,
        *,
        start: Start | None = None,
        keys: Iterable[bytes | str] | None = None,
        key_prefix: bytes | str | None = None,
        partitions: Iterable[int] | None = None,
        group: str | None = None,
        lagging: Lagging | None = None,
        deadline: timedelta | None = None,
        lifespan: timedelta | None = None,
        watch: Literal["writers"] | None = None,
        pinned_bytes: int | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> Subscription[_T]:
        """Open a subscription, an iterator; see :meth:`heliograph.Topic.subscribe`."""
        raw = self._subscribe(
            start,
            keys,
            key_prefix,
            partitions,
            group,
            lagging,
            deadline,
            lifespan,
            watch,
            pinned_bytes,
        )
        return Subscription(raw, group, on_event, self._bus)


class Subscription(SubscriptionBase[_T]):
    """A cursor of its own in a topic: ``for sample in subscription``."""

    def __init__(
        self,
        raw: RawSubscription,
        group: str | None,
        on_event: Callable[[Event], object] | None,
        bus: Bus,
    ) -> None:
        super().__init__(raw, group, on_event)
        self._bus = bus

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription and the iteration of a thread that waits on it."""
        self._closed = True
        self._raw.close()

    def __iter__(self) -> Iterator[Sample[_T]]:
        return self

    def __next__(self) -> Sample[_T]:
        try:
            while True:
                item = self._take()
                if type(item) is _Sample:
                    return item
                if item is None:
                    self._raw.wait()
                elif item is not ...:
                    self._notify(item)
        except ClosedError:
            if self._closed or self._bus._closed:
                raise StopIteration from None
            raise

    def next(self, *, timeout: float | None = None) -> Sample[_T]:
        """Return the next sample, waiting at most ``timeout`` seconds.

        Raises :class:`WaitTimeout`, or :class:`ClosedError` if it is closed during the wait.
        """
        for item in self._items(timeout):
            if type(item) is _Sample:
                return item
            self._notify(item)
        raise WaitTimeout(f"no sample within {timeout} s")

    def batch(self, max: int = 1000, *, timeout: float | None = None) -> list[Sample[_T]]:
        """Return the available samples, at most ``max``; wait for the first one.

        Return an empty list after ``timeout`` seconds without a sample.
        """
        timeout = checked_timeout(timeout)
        until = None if timeout is None else _time.monotonic() + timeout
        while True:
            samples, events, seen = self._raw.take_many(max)
            for event in events:
                self._notify(event)
            if samples:
                return samples
            if not seen and not self._wait(until):
                return []

    def events(self) -> Iterator[Sample[_T] | Event]:
        """Iterate over samples and events, in order."""
        try:
            yield from self._items(None)
        except ClosedError:
            if not (self._closed or self._bus._closed):
                raise

    def _items(self, timeout: float | None) -> Iterator[Any]:
        """Yield samples and events until the timeout."""
        timeout = checked_timeout(timeout)
        until = None if timeout is None else _time.monotonic() + timeout
        while True:
            item = self._take()
            if item is None:
                if not self._wait(until):
                    return
            elif item is not ...:
                yield item

    def _wait(self, until: float | None) -> bool:
        """Wait until samples may be available; return false after the timeout."""
        if until is None:
            return self._raw.wait()
        left = until - _time.monotonic()
        if left <= 0:
            return False
        self._raw.wait(left)
        return True
