"""The synchronous API of alerts: the same names without ``await``.

::

    from heliograph import sync
    from heliograph.alerts import sync as alerts

    with sync.connect("journal:site") as bus:
        for batch in alerts.open(bus, "alerts").subscribe(columns=["diaSource.snr"]):
            frame = polars.DataFrame(batch)

A blocking wait releases the interpreter lock and ends at Ctrl-C.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from heliograph._errors import ClosedError
from heliograph._events import Event
from heliograph._heliograph import Alert, Batch
from heliograph.alerts._producer import ProducerBase
from heliograph.alerts._subscription import (
    CALL_MAX_S,
    AlertsBase,
    AlertSubscriptionBase,
    until_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from heliograph import sync
    from heliograph._heliograph import Time
    from heliograph._start import Start
    from heliograph.alerts._events import Audit
    from heliograph.alerts._producer import CcdOutcome, Packets
    from heliograph.alerts._subscription import StampsKind

__all__ = ["AlertSubscription", "Alerts", "CcdProducer", "open"]

_R = TypeVar("_R")


class CcdProducer(ProducerBase):
    """Publishes the alerts of detectors; see :class:`heliograph.alerts.CcdProducer`."""

    def open_visit(
        self,
        visit: int,
        *,
        detectors: Iterable[int],
        shutter_close: Time,
        window: float = 60.0,
    ) -> None:
        """Publish the opening record; see :meth:`heliograph.alerts.CcdProducer.open_visit`."""
        self._thread.run(partial(self._open_visit, visit, detectors, shutter_close, window))

    def publish(
        self,
        *,
        visit: int,
        detector: int,
        packets: Packets,
        shutter_close: Time | None = None,
    ) -> CcdOutcome:
        """Publish a detector's packets; see :meth:`heliograph.alerts.CcdProducer.publish`."""
        work = partial(self._publish, visit, detector, packets, shutter_close)
        return self._thread.run(work)

    def replay(self, file: str | PathLike[str]) -> CcdOutcome:
        """Publish a spill file; see :meth:`heliograph.alerts.CcdProducer.replay`."""
        return self._thread.run(partial(self._replay, file))


class AlertSubscription(AlertSubscriptionBase):
    """A cursor of its own in a stream of alerts; see :class:`heliograph.alerts.AlertSubscription`.

    ``for batch in subscription``. It is opened at its first use.
    """

    def __enter__(self) -> Self:
        self._call(self._opened)
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
        if self._mark_closed():
            self._thread.run(self._close_raw)
            self._thread.end()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        try:
            batch = self.batch()
        except ClosedError:
            if self._ends_iteration():
                raise StopIteration from None
            raise
        assert batch is not None
        return batch

    def batch(self, *, timeout: float | None = None) -> Batch | None:
        """Return the next batch, waiting at most ``timeout`` seconds; None after that.

        Raises :class:`heliograph.ClosedError` if the subscription is closed during the wait.
        """
        until = until_of(timeout)
        while True:
            item = self._item("batches", until)
            if item is None or isinstance(item, Batch):
                return item
            if isinstance(item, Event):
                self._notify(item)

    def alert(self, *, timeout: float | None = None) -> Alert | None:
        """Return the next alert, waiting at most ``timeout`` seconds; None after that."""
        until = until_of(timeout)
        while True:
            item = self._item("alerts", until)
            if item is None or isinstance(item, Alert):
                return item
            if isinstance(item, Event):
                self._notify(item)

    def alerts(self) -> Iterator[Alert]:
        """Iterate over the alerts one by one, with their packets, positions and times."""
        while True:
            try:
                alert = self.alert()
            except ClosedError:
                if self._ends_iteration():
                    return
                raise
            assert alert is not None
            yield alert

    def packets(self) -> Iterator[dict[str, Any]]:
        """Iterate over the packets as dictionaries. Large arrays in them are views."""
        for alert in self.alerts():
            value = self._value(alert)
            if isinstance(value, Event):
                self._notify(value)
            else:
                yield value

    def raw(self) -> Iterator[bytes | memoryview]:
        """Iterate over the packets as Avro datums without frames.

        With ``pinned_bytes`` they are read-only memoryviews, of the log's own segments where
        possible.
        """
        yield from map(self._payload, self.alerts())

    def events(self) -> Iterator[Batch | Event]:
        """Iterate over batches and events, in order: of a visit, alerts before its decision."""
        while True:
            try:
                item = self._item("batches", None)
            except ClosedError:
                if self._ends_iteration():
                    return
                raise
            if isinstance(item, (Batch, Event)):
                yield item

    def commit(self) -> None:
        """Commit the positions behind all alerts that were returned, for the group.

        Raises :class:`heliograph.SubscribeError` without a group.
        """
        self._call(self._commit)

    def checkpoint(self, name: str) -> None:
        """Name the positions behind all alerts that were returned: a start for any reader.

        Members of a group each set their part of it under the same name.
        """
        self._call(partial(self._checkpoint, name))

    def lag(self) -> int:
        """Return the number of stored samples that were not returned, of all its partitions."""
        return self._call(self._lag)

    def audit(self, visit: int) -> Audit:
        """Compare what was read of a visit with the manifests.

        See :meth:`heliograph.alerts.AlertSubscription.audit`.
        """
        return self._call(partial(self._audit, visit))

    def rewind(self, start: str | Start) -> None:
        """Start again elsewhere; see :meth:`heliograph.alerts.Alerts.subscribe` for starts."""
        self._call(partial(self._rewind, start))

    def _call(self, work: Callable[[], _R]) -> _R:
        """Call the reader between two reads."""
        raw = self._raw
        if raw is None:
            return self._thread.run(work)
        raw.interrupt()
        try:
            return self._thread.run(work)
        finally:
            raw.resume()

    def _item(self, form: str, until: float | None) -> Batch | Alert | Event | None:
        """Return the next item; None after the time."""
        while True:
            self._use(form)
            if self._queue:
                return self._queue.popleft()
            left = CALL_MAX_S if until is None else until - time.monotonic()
            if left <= 0 and until is not None:
                return None
            self._thread.run(partial(self._fill, left))


class Alerts(AlertsBase):
    """A stream of alerts on a bus; see :class:`heliograph.alerts.Alerts`."""

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
        """Return a subscription, an iterator; see :meth:`heliograph.alerts.Alerts.subscribe`."""
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

    def rewind(self, group: str, start: str | Start) -> None:
        """Move a group without live members; see :meth:`heliograph.alerts.Alerts.rewind`."""
        self._rewind(group, start)


def open(bus: sync.Bus, topic: str = "alerts") -> Alerts:  # noqa: A001
    """Return a stream of alerts; see :func:`heliograph.alerts.open`."""
    return Alerts(bus, topic)
