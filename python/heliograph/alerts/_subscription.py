"""Subscriptions of alerts: what the asynchronous and the synchronous API share, and the former.

Constraints. All calls of a reader are made one after the other in a thread of its own. What a call
has read is in the queue before it returns, so that a cancelled wait loses nothing. A call reads for
a second at most, and returns early if another call is queued.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from heliograph._common import checked_timeout, report
from heliograph._errors import ClosedError, DecodeError, SubscribeError
from heliograph._events import Event
from heliograph._heliograph import Alert, Batch, RawAlertReader, Schema, Time, rewind_alerts
from heliograph._threads import in_thread
from heliograph.alerts._events import Audit, DetectorAudit, Dropped
from heliograph.alerts._threads import OwnThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from heliograph import sync
    from heliograph._bus import Bus
    from heliograph._heliograph import RawBus, RawRead
    from heliograph._start import Start

_R = TypeVar("_R")

StampsKind = Literal["none", "linked", "inline", "url"]

_LOG = logging.getLogger("heliograph")

CALL_MAX_S = 1.0
"""The longest call of a reader: a program that abandons a subscription ends after it."""

_STORED_TIMEOUT_S = 30.0
"""How long stored records are waited for that the engine has announced."""

_CALL_PAUSE_S = 0.1
"""The longest wait between two looks for them."""

_YIELD_AFTER_ALERTS = 256
"""Alerts that a task handles before it yields to other tasks of its loop."""


def start_text(start: str | Start | None, group: str | None) -> str:
    """Return a start as the extension reads it."""
    if start is None:
        return "latest" if group is None else "committed"
    if isinstance(start, str):
        return start
    if start.kind in ("latest", "earliest"):
        return start.kind
    if start.kind == "time":
        return f"time:{Time(start.number).isoformat()}"
    raise ValueError(f"start={start}: of alerts only latest(), earliest() and since() can be given")


def until_of(timeout: float | None) -> float | None:
    """Return when a wait ends, on the steady clock."""
    timeout = checked_timeout(timeout)
    return None if timeout is None else time.monotonic() + timeout


def stamps_template(bus: RawBus, topic: str) -> str:
    """Return the template of stamps' URLs that a stream's service has announced last."""
    services = f"{topic}/services"
    text = bus.newest_schema(services)
    found = None
    if text is not None:
        raw = bus.topic(services, None, Schema(text)).subscribe(
            {
                "start": ("last", 1, 0),
                "keys": ["stamps"],
                "key_prefix": None,
                "partitions": None,
                "group": None,
                "lagging": None,
                "deadline": None,
                "lifespan": None,
                "watch_writers": False,
                "each_undecodable": False,
                "pinned_bytes": None,
            }
        )
        raw.set_fence(_STORED_TIMEOUT_S)
        until = time.monotonic() + _STORED_TIMEOUT_S
        passed = False
        while not passed and time.monotonic() < until:
            samples, _, passed = raw.take_stored(16)
            found = samples[-1].value["url"] if samples else found
            if not samples and not passed:
                raw.wait(_CALL_PAUSE_S)
        raw.close()
    if found is None:
        raise SubscribeError(
            f"no service announces the URLs of {topic}'s stamps: start `helio-alerts serve`"
        )
    return str(found)


class AlertSubscriptionBase:
    """A cursor of its own in a stream of alerts: what does not wait."""

    def __init__(
        self,
        bus: Bus | sync.Bus,
        topic: str,
        *,
        columns: Iterable[str] | None,
        stamps: StampsKind,
        group: str | None,
        start: str | Start | None,
        batch_alerts: int,
        batch_bytes: int,
        pinned_bytes: int | None,
        visits: int,
        on_event: Callable[[Event], object] | None,
    ) -> None:
        self._bus = bus
        wanted = None if columns is None else list(columns)
        self._open = partial(
            RawAlertReader,
            bus._raw,
            topic,
            wanted,
            "none" if stamps == "url" else stamps,
            group,
            start_text(start, group),
            pinned_bytes,
            visits,
        )
        self._topic = topic
        self._urls: str | None = None
        self._wants_urls = stamps == "url"
        self._limits = (batch_alerts, batch_bytes)
        self._pins = pinned_bytes is not None
        self._listener = on_event or _report
        self._raw: RawAlertReader | None = None
        self._thread = OwnThread()
        self._queue: deque[Batch | Alert | Event] = deque()
        self._failed_read: RawRead | None = None
        self._form: str | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._topic}>"

    @property
    def dropped(self) -> dict[str, int]:
        """Numbers of packets that were left out so far, by cause; empty if there are none.

        Unusable ones, as in :class:`Dropped`, and ``duplicate``, ``conflict`` (another packet with
        the same identifier), ``late`` (its visit was closed without it) and ``excess``.
        ``without_stamps`` counts alerts that were returned without their linked stamps.
        """
        return {} if self._raw is None else self._raw.dropped()

    def stamp_url(self, alert_id: int, stamp: str) -> str:
        """Return the URL of an alert's stamp, named by its field, such as ``cutoutScience``.

        With ``stamps="url"``, once something was read. ``helio-alerts serve`` announces and serves
        it: an answer 410 means that retention has removed the stamp.
        """
        if self._urls is None:
            raise RuntimeError('URLs are known once something was read with stamps="url"')
        return self._urls.replace("{alert}", str(alert_id)).replace("{stamp}", stamp)

    def _notify(self, event: Event) -> None:
        """Call the listener; its error must not lose alerts that were read with the event."""
        try:
            self._listener(event)
        except Exception:
            _LOG.exception("on_event failed with %s", event)

    def _use(self, form: str) -> None:
        """Decide for batches or for alerts at the first read."""
        if self._form not in (None, form):
            raise RuntimeError(
                f"the subscription is read as {self._form}: open another one for {form}"
            )
        self._form = form
        if self._closed:
            raise ClosedError("the subscription is closed")

    def _opened(self) -> RawAlertReader:
        """Open the reader at the first use, in its thread."""
        if self._raw is None:
            if self._wants_urls:
                self._urls = stamps_template(self._bus._raw, self._topic)
            self._raw = self._open()
            if self._closed:
                self._raw.mark_closed()
        return self._raw

    def _fill(self, left_s: float) -> None:
        """Read into the queue, in the reader's thread."""
        if self._queue:
            return
        raw = self._opened()
        # An error must not lose the alerts that were read: the next call tries again.
        read = self._failed_read
        if read is None:
            read = raw.read(*self._limits, min(left_s, CALL_MAX_S))
        if read is None:
            return
        self._failed_read = read
        items: list[Batch | Alert | Event] = []
        rejected, events = read.dropped(), read.events()
        if self._form == "batches":
            batches, by_columns = raw.batches(read)
            items += batches
            rejected = rejected + by_columns
        else:
            items += raw.alerts(read)
        items += [Dropped(*row) for row in rejected]
        items += events
        self._queue.extend(items)
        self._failed_read = None

    def _unread(self) -> list[tuple[int, int]]:
        """Return the first position of each partition that is in the queue."""
        failed = [] if self._failed_read is None else self._failed_read.unread()
        first: dict[int, int] = dict(failed)
        for item in self._queue:
            if isinstance(item, Alert):
                first.setdefault(item.partition, item.offset)
            elif isinstance(item, Batch):
                for partition, offset in item.positions:
                    first.setdefault(partition, offset)
        return list(first.items())

    def _commit(self) -> None:
        self._opened().commit(self._unread())

    def _checkpoint(self, name: str) -> None:
        self._opened().checkpoint(name, self._unread())

    def _lag(self) -> int:
        waiting = sum(
            len(item) if isinstance(item, Batch) else isinstance(item, Alert)
            for item in self._queue
        )
        failed = 0 if self._failed_read is None else len(self._failed_read)
        return self._opened().lag() + waiting + failed

    def _audit(self, visit: int) -> Audit:
        is_equal, found, decided, detectors = self._opened().audit(visit)
        return Audit(is_equal, found, decided, [DetectorAudit(*row) for row in detectors])

    def _rewind(self, start: str | Start) -> None:
        self._opened().rewind(start_text(start, None))
        self._queue.clear()
        self._failed_read = None

    def _ends_iteration(self) -> bool:
        """Whether it ended because somebody closed it or the bus."""
        return self._closed or self._bus._closed

    def _mark_closed(self) -> bool:
        """End it here; return whether it was open."""
        if self._closed:
            return False
        self._closed = True
        if self._raw is not None:
            self._raw.mark_closed()
        return True

    def _close_raw(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def _value(self, alert: Alert) -> Any:
        """Return a packet's dictionary, or the event of one that Python cannot decode."""
        try:
            return alert.value
        except DecodeError as error:
            if self._raw is not None:
                self._raw.count_undecodable()
            at = (alert.partition, alert.offset)
            return Dropped(*at, alert.id, "undecodable", str(error))

    def _payload(self, alert: Alert) -> bytes | memoryview:
        return alert.view if self._pins else alert.payload


def _report(event: Event) -> None:
    """Log an event of a subscription that has no listener."""
    if isinstance(event, Dropped):
        _LOG.warning("a packet is dropped: %s", event)
    else:
        report(event)


class AlertSubscription(AlertSubscriptionBase):
    """A cursor of its own in a stream of alerts: ``async for batch in subscription``.

    It is opened at its first use. Leaving ``async with`` or calling :meth:`close` ends it. Only one
    task at a time may read it, in one of these ways: batches, or alerts one by one
    (:meth:`alerts`, :meth:`packets`, :meth:`raw`).
    """

    async def __aenter__(self) -> Self:
        await self._call(self._opened)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._mark_closed():
            await asyncio.wrap_future(self._thread.submit(self._close_raw))
            self._thread.end()

    def close(self) -> None:
        """End the subscription and the iteration of a task that waits on it.

        Its thread leaves the engine, which may take a moment; ``async with`` waits for it.
        """
        if self._mark_closed():
            self._thread.submit(self._close_raw)
            self._thread.end()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        try:
            batch = await self.batch()
        except ClosedError:
            if self._ends_iteration():
                raise StopAsyncIteration from None
            raise
        assert batch is not None
        return batch

    async def batch(self, *, timeout: float | None = None) -> Batch | None:
        """Return the next batch, waiting at most ``timeout`` seconds; None after that.

        Raises :class:`heliograph.ClosedError` if the subscription is closed during the wait.
        """
        until = until_of(timeout)
        while True:
            item = await self._item("batches", until)
            if item is None or isinstance(item, Batch):
                return item
            if isinstance(item, Event):
                self._notify(item)

    async def alert(self, *, timeout: float | None = None) -> Alert | None:
        """Return the next alert, waiting at most ``timeout`` seconds; None after that."""
        until = until_of(timeout)
        while True:
            item = await self._item("alerts", until)
            if item is None or isinstance(item, Alert):
                return item
            if isinstance(item, Event):
                self._notify(item)

    async def alerts(self) -> AsyncIterator[Alert]:
        """Iterate over the alerts one by one, with their packets, positions and times."""
        turn = _YIELD_AFTER_ALERTS
        while True:
            try:
                alert = await self.alert()
            except ClosedError:
                if self._ends_iteration():
                    return
                raise
            assert alert is not None
            yield alert
            turn -= 1
            if turn == 0:
                turn = _YIELD_AFTER_ALERTS
                await asyncio.sleep(0)

    async def packets(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the packets as dictionaries. Large arrays in them are views."""
        async for alert in self.alerts():
            value = self._value(alert)
            if isinstance(value, Event):
                self._notify(value)
            else:
                yield value

    async def raw(self) -> AsyncIterator[bytes | memoryview]:
        """Iterate over the packets as Avro datums without frames.

        With ``pinned_bytes`` they are read-only memoryviews, of the log's own segments where
        possible.
        """
        async for alert in self.alerts():
            yield self._payload(alert)

    async def events(self) -> AsyncIterator[Batch | Event]:
        """Iterate over batches and events, in order: of a visit, alerts before its decision."""
        while True:
            try:
                item = await self._item("batches", None)
            except ClosedError:
                if self._ends_iteration():
                    return
                raise
            if isinstance(item, (Batch, Event)):
                yield item

    async def commit(self) -> None:
        """Commit the positions behind all alerts that were returned, for the group.

        Raises :class:`heliograph.SubscribeError` without a group.
        """
        await self._call(self._commit)

    async def checkpoint(self, name: str) -> None:
        """Name the positions behind all alerts that were returned: a start for any reader.

        Members of a group each set their part of it under the same name.
        """
        await self._call(partial(self._checkpoint, name))

    async def lag(self) -> int:
        """Return the number of stored samples that were not returned, of all its partitions."""
        return await self._call(self._lag)

    async def audit(self, visit: int) -> Audit:
        """Compare what was read of a visit with the manifests.

        A member of a group lacks the detectors of other members. Raises
        :class:`heliograph.SubscribeError` if nothing of it was read, or too long ago.
        """
        return await self._call(partial(self._audit, visit))

    async def rewind(self, start: str | Start) -> None:
        """Start again elsewhere; see :meth:`Alerts.subscribe` for starts.

        A group is moved by :meth:`Alerts.rewind`.
        """
        await self._call(partial(self._rewind, start))

    async def _call(self, work: Callable[[], _R]) -> _R:
        """Call the reader between two reads."""
        raw = self._raw
        if raw is None:
            return await asyncio.wrap_future(self._thread.submit(work))
        raw.interrupt()
        try:
            return await asyncio.wrap_future(self._thread.submit(work))
        finally:
            raw.resume()

    async def _item(self, form: str, until: float | None) -> Batch | Alert | Event | None:
        """Return the next item; None after the time."""
        while True:
            self._use(form)
            if self._queue:
                return self._queue.popleft()
            left = CALL_MAX_S if until is None else until - time.monotonic()
            if left <= 0 and until is not None:
                return None
            fill = partial(self._fill, left)
            await asyncio.wrap_future(self._thread.submit(fill))


class AlertsBase:
    """A stream of alerts on a bus."""

    def __init__(self, bus: Any, topic: str) -> None:
        self._bus = bus
        self._topic = topic

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topic}>"

    @property
    def topic(self) -> str:
        """The topic of the packets."""
        return self._topic

    def _rewind(self, group: str, start: str | Start) -> None:
        rewind_alerts(self._bus._raw, self._topic, group, start_text(start, None))


class Alerts(AlertsBase):
    """A stream of alerts on a bus; made by :func:`open`. Nothing is open before a subscription."""

    def subscribe(
        self,
        *,
        columns: Iterable[str] | None = None,
        stamps: StampsKind = "none",
        group: str | None = None,
        start: str | Start | None = None,
        batch_alerts: int = 256,
        batch_bytes: int = 64 << 20,
        pinned_bytes: int | None = None,
        visits: int = 64,
        on_event: Callable[[Event], object] | None = None,
    ) -> AlertSubscription:
        """Return a subscription: an asynchronous iterator of batches, and a context manager.

        :param columns: paths of the columns of batches, such as ``diaSource.snr`` or
            ``prvDiaSources[].psfFlux``; by default all fields. Columns that a packet's schema lacks
            are null.
        :param stamps: ``none`` leaves the stamps out; ``linked`` gives them beside the packets
            (:attr:`Alert.stamps`, :meth:`Batch.stamps`), ``inline`` in them. Each from any layout
            of the stream, with equal bytes. ``url`` gives their addresses at the stream's service
            (:meth:`AlertSubscription.stamp_url`).
        :param group: the group whose members share the partitions and the committed positions.
        :param start: ``latest`` (the default without a group), ``earliest``, ``committed`` (the
            default with one), ``visit:3``, ``night:2026-11-25`` (the date of its evening),
            ``time:2026-11-25T04:00:00Z``, ``alert:17``, ``checkpoint:name``;
            :func:`heliograph.since` and its like. With a group it counts for partitions without a
            committed position.
        :param batch_alerts: the most alerts of a batch.
        :param batch_bytes: the most bytes of its packets, unless one alone is larger.
        :param pinned_bytes: the most bytes of the log's segments that packets hold instead of
            copies, 64 MiB by default. If it is given, :meth:`AlertSubscription.raw` gives
            memoryviews.
        :param visits: the number of visits of which alerts are counted at a time, for audits and
            against repetitions.
        :param on_event: is called with visits that open and are decided, dropped packets, gaps;
            without it they are logged. :meth:`AlertSubscription.events` yields them in order.
        """
        return AlertSubscription(
            self._bus,
            self._topic,
            columns=columns,
            stamps=stamps,
            group=group,
            start=start,
            batch_alerts=batch_alerts,
            batch_bytes=batch_bytes,
            pinned_bytes=pinned_bytes,
            visits=visits,
            on_event=on_event,
        )

    async def rewind(self, group: str, start: str | Start) -> None:
        """Move a group without live members to a start, at which its next members resume.

        Raises :class:`heliograph.SubscribeError` if the group has members, or if the start is
        unknown or removed by retention.
        """
        await in_thread(self._rewind, group, start)


def open(bus: Bus, topic: str = "alerts") -> Alerts:  # noqa: A001
    """Return a stream of alerts: its topic, with ``topic/control`` and ``topic/stamps``."""
    return Alerts(bus, topic)
