"""A component's topics as attributes: events and telemetry, to write or to read.

Constraints: a topic is opened at its first use, in a thread where that use is awaited. Values are
decoded on demand. Queues here are short and bounded, because the transport's log stores unread
samples.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import itertools
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from heliograph._common import checked_timeout
from heliograph._component._data import same
from heliograph._component._dispatch import CallbackSubscription
from heliograph._component._send import AckOrder, SendPolicy
from heliograph._errors import (
    ClosedError,
    EncodeError,
    Fenced,
    NotLive,
    QosRefused,
    StorageError,
    WaitTimeout,
)
from heliograph._events import Gap, Undecodable
from heliograph._heliograph import STORED_TIMEOUT_S, Time
from heliograph._lagging import conflate, drop_oldest
from heliograph._start import last, since
from heliograph._threads import in_background, in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from heliograph._bus import Bus, Topic
    from heliograph._component._data import TopicData
    from heliograph._component._interface import TopicType
    from heliograph._component._send import Sender
    from heliograph._errors import HelioError
    from heliograph._events import Event
    from heliograph._heliograph import RawSubscription, RawTopic, Sample
    from heliograph._start import Start

_LOG = logging.getLogger("heliograph")

_R = TypeVar("_R")

QUEUE_DEPTH = 1000
"""The most unread samples of a topic stored for `next`: 20 s of the fastest telemetry."""

FENCE_TIMEOUT_S = 0.02
"""How long a flush holds up its event loop for the broker's answer, usually a millisecond. Until
then, values that are published after the call could be taken for older ones."""

_LISTED_MAX = 30
"""The most fields that an error names."""

_YIELD_AFTER_SAMPLES = 256
"""Values that a task handles before it yields to other tasks of its loop."""

SEQUENCE_MAX = 2**31 - 1
"""The last sequence number of a writer; 1 follows it."""


class SetWriteResult(NamedTuple):
    """The result of :meth:`WriteTopic.set_write`; ``data`` is a copy of the topic's fields."""

    did_change: bool
    was_written: bool
    data: TopicData


@dataclass(frozen=True)
class Identity:
    """The identity of a writer: SAL's private fields, and the producer name."""

    identity: str
    origin: int
    index: int
    producer: str | None


class WriteTopic:
    """An event or telemetry topic of this component.

    Events are published if a field has changed (NaN equals NaN) or if forced, telemetry always.
    None as a field's value keeps the old value.
    """

    def __init__(
        self, bus: Bus, who: Identity, topic: TopicType, refusal: Callable[[], HelioError | None]
    ) -> None:
        self.type = topic
        self._bus = bus
        self._who = who
        self._refusal = refusal
        self._always = topic.kind != "event"
        self._public = topic.public
        self._narrow = topic.narrow
        self._data = topic.data_type()
        self._names = frozenset(topic.public_names)
        self._schema = topic.schema
        types = [field.type for field in topic.info.fields]
        self._real = any("float" in kind or "double" in kind for kind in types)
        self._written: bytes | None = None
        self._sequence = 0
        self._topic: Topic[Any] | None = None
        self._opening = asyncio.Lock()
        self._openers = 0
        """Tasks that wait for the opening: later ones write behind them."""
        self._retry_policy = SendPolicy(keep=True, ack_order=AckOrder.BEFORE_ACKS, refusal=refusal)
        self._discard_policy = SendPolicy(refusal=refusal)
        if "salIndex" in topic.data_type._fields:
            self._set("salIndex", who.index)
        self._set("private_revCode", topic.revcode)
        self._set("private_identity", who.identity)
        self._set("private_origin", who.origin)

    def __repr__(self) -> str:
        return f"<{self.type.attribute} of {self._who.identity}>"

    @property
    def data(self) -> TopicData:
        """The values set or written last; change them with :meth:`set` or as attributes."""
        return self._data

    @property
    def has_data(self) -> bool:
        """Whether any value was written or set."""
        return self._written is not None or self._was_set

    _was_set = False

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self._data, name, value)

    def set(self, **fields: Any) -> bool:
        """Set fields; return whether any has changed.

        Raises :class:`EncodeError`, which names an unknown field or one whose value does not fit;
        then no field is set.
        """
        self._check(fields)
        given = {name: value for name, value in fields.items() if value is not None}
        changed = False
        for name, value in given.items():
            new = self._schema.encode_field(name, value)
            old = getattr(self._data, name)
            changed |= new != self._schema.encode_field(name, old) and not same(value, old)
        for name, value in given.items():
            self._set(name, value)
        self._was_set = True
        return changed

    async def set_write(self, *, force_output: bool | None = None, **fields: Any) -> SetWriteResult:
        """Set fields and publish; an event only if it has changed or if forced.

        Raises :class:`EncodeError`, which names the field, or :class:`NotLive` if the component
        does not hold its lease; the fields then keep their old values. Raises the errors of
        ``Topic.publish``; the fields then are set, and the next call publishes them.
        """
        self._check(fields)
        topic = (not self._openers and self._topic) or await self._open()
        self._live()
        # Nothing is awaited from here to the publish, so that no other task changes the values.
        public = self._take(fields)
        changed = self._differs(public)
        wanted = self._always if force_output is None else force_output
        if changed or wanted:
            return SetWriteResult(changed, True, await self._publish(topic, public))
        return SetWriteResult(changed, False, self._snapshot())

    def _live(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise type(refusal)(
                f"{self.type.component}.{self.type.attribute} is not {self._who.identity}'s to "
                f"write: {refusal}"
            )

    def _snapshot(self) -> TopicData:
        """Return a copy of the current values."""
        value: TopicData = self._schema.decode(self._schema.encode(self._data))
        return value

    def _differs(self, public: bytes) -> bool:
        """Whether the values differ from the published ones; NaN equals NaN, and -0 equals 0."""
        written = self._written
        if public == written:
            return False
        # Equal numbers have equal lengths, even if their bytes differ.
        if written is None or not self._real or len(public) != len(written):
            return True
        now = self._schema.encode(self._data)
        before = now[: len(now) - len(public)] + written
        return bool(self._schema.decode(now) != self._schema.decode(before))

    def _take(self, fields: dict[str, Any]) -> bytes:
        """Set the fields that are not None, and encode all; on an error nothing is set."""
        data = self._data
        before = {name: getattr(data, name) for name in fields}
        try:
            put = object.__setattr__
            for name, value in fields.items():
                if value is not None:
                    put(data, name, value)
            return self._schema.encode_from(data, self._public.start, self._public.stop)
        except BaseException:
            for name, value in before.items():
                self._set(name, value)
            raise

    async def write(self) -> TopicData:
        """Publish the current fields, changed or not; return a copy of them.

        Raises the errors of :meth:`set_write`.
        """
        topic = (not self._openers and self._topic) or await self._open()
        self._live()
        return await self._publish(topic, self._take({}))

    def _check(self, fields: dict[str, Any]) -> None:
        if not self._names.issuperset(fields):
            stranger = next(name for name in fields if name not in self._names)
            raise unknown_field(self.type, stranger)
        if self._narrow:
            self.type.check(fields)

    async def _publish(self, topic: Topic[Any], public: bytes) -> TopicData:
        self._stamp(self._data)
        published = self._snapshot()
        # Set before the publish: a task that sets the same values meanwhile need not write them.
        self._written = public
        try:
            try:
                await topic.publish(self._data)
            except Fenced:
                # Another process has taken the topic: the lease's holder reopens it.
                self._live()
                await in_thread(topic._raw.reopen)
                await topic.publish(published)
        except BaseException:
            # The readers' values are unknown: a cancelled publish may still happen.
            self._written = None
            raise
        return published

    def _stamp(self, data: Any) -> None:
        sent, utc = self._bus._raw.stamps()
        sequence = self._sequence = self._sequence % SEQUENCE_MAX + 1
        stamp = object.__setattr__
        stamp(data, "private_sndStamp", sent)
        stamp(data, "private_efdStamp", utc)
        stamp(data, "private_kafkaStamp", sent)
        stamp(data, "private_seqNum", sequence)

    def put(self, sender: Sender, *, force: bool, keep: bool, **fields: Any) -> bool:
        """Set fields and publish without waiting; return whether the topic was written.

        The topic must be open. With ``keep``, a failed publish is retried.
        """
        assert self._topic is not None, "the engine opens the topics that it writes"
        if isinstance(self._refusal(), NotLive):
            return False
        known = {name: value for name, value in fields.items() if name in self._names}
        public = self._take(known)
        if not (force or self._always or self._differs(public)):
            return False
        self._stamp(self._data)
        self._written = public
        sender.send(
            self._topic._raw,
            self._data,
            policy=self._retry_policy if keep else self._discard_policy,
        )
        return True

    def is_held_up(self, sender: Sender) -> bool:
        """Whether samples of :meth:`put` are still queued."""
        return self._topic is not None and sender.is_queued(self._topic._raw)

    @property
    def is_open(self) -> bool:
        """Whether :meth:`put` may be called."""
        return self._topic is not None

    def adopt(self, topic: Topic[Any]) -> None:
        """Use the topic that :meth:`open_now` has opened."""
        self._topic = topic

    def open_now(self) -> RawTopic:
        """Open the topic and its writer in this thread."""
        raw, self._sequence = self._open_raw()
        raw.claim()
        return raw

    async def _open(self) -> Topic[Any]:
        self._openers += 1
        try:
            async with self._opening:
                if self._topic is None:
                    # Opening the topic fences its previous writer of the same name.
                    self._live()
                    raw = await in_thread(self.open_now)
                    topic = self._bus._adopt(raw)
                    topic._claimed = True
                    self._topic = topic
                return self._topic
        finally:
            self._openers -= 1

    def _open_raw(self) -> tuple[RawTopic, int]:
        """Open the topic; return it with the number of this writer's last sample."""
        topic = self.type
        raw = topic.open(self._bus._raw, producer=self._who.producer)
        keys = [topic.schema.key(self._who.index)] if topic.indexed else None
        subscription = raw.subscribe(subscribe_options(last(1), keys))
        samples, _ = read_stored(subscription)
        subscription.close()
        return raw, samples[-1].value.private_seqNum if samples else 0


def read_stored(raw: RawSubscription) -> tuple[list[Sample[Any]], list[Event]]:
    """Return all samples that are stored now, and other events; wait until they have arrived.

    Raises :class:`StorageError` if some are missing and nothing arrives for ``STORED_TIMEOUT_S``.
    """
    raw.set_fence(0.0)
    samples: list[Sample[Any]] = []
    events: list[Event] = []
    until = time.monotonic() + STORED_TIMEOUT_S
    while True:
        taken, others, passed = raw.take_stored(QUEUE_DEPTH)
        samples += taken
        events += others
        if passed:
            return samples, events
        if taken or others:
            until = time.monotonic() + STORED_TIMEOUT_S
        elif not raw.wait(max(0.0, until - time.monotonic())):
            raise not_arrived()


def not_arrived() -> StorageError:
    """Return the error for stored samples that do not arrive."""
    return StorageError(
        f"not all stored samples have arrived, and nothing came for {STORED_TIMEOUT_S:g} s; try "
        "again when the bus answers"
    )


def unknown_field(topic: TopicType, name: str) -> EncodeError:
    """Return the error for an unknown field."""
    known = ", ".join(field.name for field in topic.info.fields[:40]) or "no fields"
    message = f"{topic.component}.{topic.attribute} has no field {name!r}; it has {known}"
    return EncodeError(message, name, "a field of the topic", name)


def missing_fields(topic: TopicType, names: list[str]) -> EncodeError:
    """Return the error for fields of a command that were not set."""
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    message = (
        f"{topic.component}.{topic.attribute}: no value for {', '.join(names[:_LISTED_MAX])}{more};"
        " a command is sent with a value for every field"
    )
    return EncodeError(message, names[0], "a value", "none")


def subscribe_options(start: Start, keys: list[bytes] | None = None, **more: Any) -> Any:
    """Return the options of a raw subscription."""
    return {
        "start": (start.kind, start.number, start.partition),
        "keys": keys,
        "key_prefix": None,
        "partitions": None,
        "group": None,
        "lagging": None,
        "deadline": None,
        "lifespan": None,
        "watch_writers": False,
        "each_undecodable": False,
        "pinned_bytes": None,
        **more,
    }


class ReadTopic:
    """An event or telemetry topic of a remote component.

    :meth:`get` returns the newest value, :meth:`next` one value after the other. For an event these
    are all values since the remote was opened, preceded by the newest earlier one. For telemetry
    they are the newest value and all values since the first use of `next` or of a callback. The two
    are independent. The newest 1000 unread values are stored; ``lost`` counts the others.

    The first use opens the topic. :meth:`aget`, :meth:`next`, :meth:`aflush` and :meth:`aopen` do
    so in a thread; the first of the others blocks the loop until the engine has opened it and the
    stored values have arrived, up to 10 s if the engine does not answer.
    """

    def __init__(self, bus: Bus, topic: TopicType, index: int, opened: int) -> None:
        self.type = topic
        self._bus = bus
        self._opened = opened
        self._keys = [topic.schema.key(index)] if index else None
        self._raw: RawTopic | None = None
        self._opening: dict[str, asyncio.Future[CallbackSubscription]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._newest: CallbackSubscription | None = None
        self._subscription: CallbackSubscription | None = None
        self._value: Sample[Any] | None = None
        self._queue: deque[Sample[Any]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._callback: Callable[[Any], object] | None = None
        self._calling: asyncio.Task[None] | None = None
        self._turns = 0
        self._dropped = 0
        self._warned = False
        self._turn = 0
        self._flushing = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<{self.type.attribute} of {self.type.component}>"

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.next(flush=False)
        except ClosedError:
            raise StopAsyncIteration from None

    @property
    def has_data(self) -> bool:
        """Whether any value is available."""
        return self._latest() is not None

    @property
    def nqueued(self) -> int:
        """How many values :meth:`next` returns without waiting."""
        self._fill()
        return len(self._queue)

    @property
    def lost(self) -> int:
        """How many values :meth:`next` will never return.

        They were dropped because the reader was slow, or lost according to the bus's sequences or
        ``private_seqNum``; the first loss is logged.
        """
        return self._dropped + (
            0 if self._subscription is None else self._subscription.raw.stats.lost
        )

    def get(self) -> Any:
        """Return a copy of the newest value; None if there is none.

        The first call waits until the stored values have arrived, usually for milliseconds;
        :meth:`aget` waits in the event loop. Later calls do not wait.

        Raises :class:`StorageError` if they do not arrive within 10 s.
        """
        sample = self._latest()
        return None if sample is None else copy.copy(self._received(sample))

    async def aget(self, timeout: float | None = None) -> Any:
        """Return the newest value; wait at most ``timeout`` seconds for a first one.

        Raises :class:`WaitTimeout`.
        """
        return copy.copy(self._received(await self._first(timeout)))

    async def _first(self, timeout: float | None) -> Sample[Any]:
        """Return the newest sample; wait for a first one."""
        async with _limit(timeout, self):
            newest = await self._open_newest()
            with self._reopened_after_errors():
                await self._take_stored(newest)
                while self._value is None:
                    await self._arrival(newest)
                    self._take_newest(newest)
        return self._value

    async def _take_stored(self, newest: CallbackSubscription) -> None:
        """Take the newest of the values that were stored when `newest` was opened."""
        self._take_newest(newest)
        while not newest.raw.has_passed_fence():
            await self._arrival(newest)
            self._take_newest(newest)

    async def aopen(self) -> None:
        """Open the topic without blocking the loop; afterwards no method here blocks it.

        Raises :class:`SubscribeError`, :class:`SchemaError`, :class:`ClosedError`.
        """
        newest = await self._open_newest()
        with self._reopened_after_errors():
            await self._take_stored(newest)
        await self._open_subscription()

    async def _is_of_living(self, told: Sample[Any]) -> bool:
        """Whether the writer of a sample is alive."""
        of = (told.producer, told.incarnation)
        try:
            writers = await in_thread(self._topic().writers)
        except StorageError:
            # During an outage the writers are unknown.
            return False
        return any(of == who[:2] and who[2] is not False for who in writers)

    async def _wait_newer(self, timeout: float) -> None:
        """Wait for a value newer than the last one read, for at most ``timeout`` seconds."""
        assert self._newest is not None, "aget has opened it"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._arrival(self._newest)

    async def next(self, *, flush: bool = False, timeout: float | None = None) -> Any:
        """Return the oldest unread value; wait at most ``timeout`` seconds for one.

        With ``flush``, values that were published before are dropped; see :meth:`flush`. On first
        use, or if the broker takes more than 20 ms to answer, values that are published until then
        are dropped too: call :meth:`flush` before an action whose event you await in another task.

        Raises :class:`WaitTimeout`, :class:`ClosedError`, and RuntimeError if a callback is set.
        """
        self._refuse_beside_callback()
        self._turn += 1
        if self._turn % _YIELD_AFTER_SAMPLES == 0:
            await asyncio.sleep(0)
        if self._subscription is not None:
            if flush:
                await self._flush()
            self._fill()
            if self._queue:
                return self._received(self._queue.popleft())
        async with _limit(timeout, self):
            if self._subscription is None:
                await self._open_subscription()
                if flush:
                    await self._flush()
            while True:
                subscription = self._fill()
                if self._queue:
                    return self._received(self._queue.popleft())
                await self._arrival(subscription)

    def get_oldest(self) -> Any:
        """Return the oldest unread value without waiting; None if there is none."""
        self._refuse_beside_callback()
        self._fill()
        return self._received(self._queue.popleft()) if self._queue else None

    def flush(self) -> None:
        """Drop all values that were published before, also those that have not arrived yet.

        It waits for those, usually for milliseconds, and the loop stands still for as long:
        :meth:`aflush` and ``next(flush=True)`` do not block it.

        Raises :class:`StorageError` if they do not arrive within 10 s.
        """
        self._refuse_beside_callback()
        self._fill()
        assert self._subscription is not None, "_fill has opened it"
        self._queue.clear()
        self._log_events(read_stored(self._subscription.raw)[1])

    async def aflush(self) -> None:
        """Drop all values that were published before without blocking the loop; see :meth:`flush`.

        On first use, values that are published until the topic is open are dropped, too.
        """
        self._refuse_beside_callback()
        if self._subscription is None:
            await self._open_subscription()
        await self._flush()

    async def _flush(self) -> None:
        """Do as :meth:`flush`; the loop is not blocked."""
        self._fill()
        assert self._subscription is not None, "_fill has opened it"
        raw = self._subscription.raw
        self._queue.clear()
        raw.set_fence(FENCE_TIMEOUT_S)
        # Other tasks take nothing meanwhile: they would take values before the fence.
        self._flushing += 1
        try:
            passed = False
            while not passed:
                taken, events, passed = raw.take_stored(_YIELD_AFTER_SAMPLES)
                self._log_events(events)
                if taken or events:
                    await asyncio.sleep(0)
                elif not passed:
                    try:
                        async with asyncio.timeout(STORED_TIMEOUT_S):
                            await self._arrival(self._subscription)
                    except TimeoutError:
                        raise not_arrived() from None
        finally:
            self._flushing -= 1
            self._wake()

    @property
    def callback(self) -> Callable[[Any], object] | None:
        """Called with each value, in order, unread ones first; it may be a coroutine function.

        Its exceptions are logged. If the topic can no longer be read, the reason is logged, and no
        further calls follow. None removes the callback.
        """
        return self._callback

    @callback.setter
    def callback(self, call: Callable[[Any], object] | None) -> None:
        if call is not None and not callable(call):
            raise TypeError(f"{call!r} is not callable")
        self._callback = call
        self._turns += 1
        self._stop_calling()
        if call is not None:
            turn = self._call(call, self._turns)
            self._calling = asyncio.get_running_loop().create_task(turn)

    def _stop_calling(self) -> None:
        calling, self._calling = self._calling, None
        # A callback that sets another one, or closes the topic, is not interrupted.
        if calling is not None and calling is not asyncio.current_task():
            calling.cancel()

    async def _call(self, call: Callable[[Any], object], turns: int) -> None:
        for turn in itertools.count(1):
            if self._turns != turns or self._closed:
                return
            try:
                if self._subscription is None:
                    await self._open_subscription()
                    continue
                subscription = self._fill()
                if not self._queue:
                    await self._arrival(subscription)
                    continue
            except ClosedError:
                return
            except Exception:
                _LOG.exception("the callback of %r is no longer called: it cannot be read", self)
                return
            if turn % QUEUE_DEPTH == 0:
                await asyncio.sleep(0)
            try:
                outcome = call(self._received(self._queue.popleft()))
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception:
                _LOG.exception("the callback of %r failed", self)

    def close(self) -> None:
        """Close the subscriptions; pending waits raise :class:`ClosedError`."""
        self._closed = True
        self._stop_calling()
        for subscription in (self._newest, self._subscription):
            if subscription is not None:
                subscription.close()
        for opening in self._opening.values():
            if not opening.done():
                opening.set_exception(self._closed_error())
        self._wake()

    def _refuse_beside_callback(self) -> None:
        if self._callback is not None:
            raise RuntimeError(f"{self!r} has a callback, which takes every value")

    def _topic(self) -> RawTopic:
        if self._closed:
            raise self._closed_error()
        if self._raw is None:
            self._raw = self.type.open(self._bus._raw)
        return self._raw

    def _latest(self) -> Sample[Any] | None:
        """Return the newest sample of the log."""
        newest = self._newest or self._adopt_newest(self._raw_newest())
        with self._reopened_after_errors():
            if not newest.raw.has_passed_fence():
                samples, events = read_stored(newest.raw)
                self._log_events(events)
                if samples:
                    self._value = samples[-1]
            self._take_newest(newest)
        return self._value

    @contextlib.contextmanager
    def _reopened_after_errors(self) -> Iterator[None]:
        """Subscribe again after an error: what has not arrived does not count as missing."""
        try:
            yield
        except StorageError:
            newest, self._newest = self._newest, None
            if newest is not None:
                newest.close()
            raise

    def _take_newest(self, newest: CallbackSubscription) -> None:
        while True:
            samples, events, seen = newest.raw.take_many(QUEUE_DEPTH)
            self._log_events(events)
            if samples:
                self._value = samples[-1]
            if not seen:
                return

    def _log_events(self, events: list[Event]) -> None:
        """Log undecodable values, and the first loss; :attr:`lost` counts the losses."""
        for event in events:
            if isinstance(event, Undecodable):
                _LOG.warning("a value of %r cannot be read: %s", self, event.reason)
            elif isinstance(event, Gap) and event.producer is not None and not self._warned:
                self._warned = True
                text = "%d of %r from %s did not arrive: number %d arrived, %d was expected"
                if event.cause == "behind":
                    text += "; this process stood still"
                place = (event.following, event.first)
                _LOG.warning(text, event.lost, self, event.producer, *place)

    def _raw_newest(self) -> RawSubscription:
        lagging = conflate()
        raw = self._topic().subscribe(
            subscribe_options(last(1), self._keys, lagging=(lagging.kind, lagging.depth))
        )
        raw.set_fence(0.0)
        return raw

    def _adopt_newest(self, raw: RawSubscription) -> CallbackSubscription:
        self._newest = self._adopt(self._newest, raw)
        return self._newest

    async def _open_newest(self) -> CallbackSubscription:
        """Open the subscription of `get` in a thread; concurrent calls share it."""
        if self._newest is not None:
            return self._newest
        return await self._open_once("newest", self._raw_newest, self._adopt_newest)

    def _adopt_queue(
        self, opened: tuple[RawSubscription, list[Sample[Any]]]
    ) -> CallbackSubscription:
        raw, samples = opened
        if self._subscription is None:
            self._enqueue(samples)
        self._subscription = self._adopt(self._subscription, raw)
        return self._subscription

    async def _open_subscription(self) -> CallbackSubscription:
        """Open the subscription of `next` in a thread; concurrent calls share it."""
        return await self._open_once("queue", self._open_queue, self._adopt_queue)

    def _adopt(
        self, known: CallbackSubscription | None, raw: RawSubscription
    ) -> CallbackSubscription:
        if known is None and not self._closed:
            return CallbackSubscription(self._bus, raw, self._wake)
        # It was opened, or the remote closed, while a thread opened this one.
        in_background(raw.close)
        if known is None:
            raise self._closed_error()
        return known

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the remote of {self.type.component} is closed")

    async def _open_once(
        self, what: str, work: Callable[[], _R], adopt: Callable[[_R], CallbackSubscription]
    ) -> CallbackSubscription:
        if (opening := self._opening.get(what)) is None:
            opening = self._opening[what] = asyncio.get_running_loop().create_future()
            # All that wait may be cancelled meanwhile; the error is nobody's then.
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._tasks.add(task := asyncio.ensure_future(self._open_into(what, work, adopt)))
            task.add_done_callback(self._tasks.discard)
        # A task that is cancelled leaves the opening to the others.
        return await asyncio.shield(opening)

    async def _open_into(
        self, what: str, work: Callable[[], _R], adopt: Callable[[_R], CallbackSubscription]
    ) -> None:
        opening = self._opening[what]
        try:
            opened = adopt(await in_thread(work))
            if not opening.done():
                opening.set_result(opened)
        except Exception as error:
            if not opening.done():
                opening.set_exception(error)
        finally:
            del self._opening[what]

    def _fill(self) -> CallbackSubscription:
        """Move new samples from the log to the queue; return the subscription."""
        subscription = self._subscription or self._adopt_queue(self._open_queue())
        while not self._flushing:
            samples, events, seen = subscription.raw.take_many(QUEUE_DEPTH)
            self._log_events(events)
            self._enqueue(samples)
            if not seen:
                break
        return subscription

    def _enqueue(self, samples: Iterable[Sample[Any]]) -> None:
        self._queue.extend(samples)
        while len(self._queue) > QUEUE_DEPTH:
            self._queue.popleft()
            self._dropped += 1

    def _open_queue(self) -> tuple[RawSubscription, list[Sample[Any]]]:
        """Open the subscription of `next`; return it with the samples from before it."""
        policy = drop_oldest(QUEUE_DEPTH)
        lagging = (policy.kind, policy.depth)
        topic = self._topic()
        raw = topic.subscribe(subscribe_options(last(1), self._keys, lagging=lagging))
        raw.count_losses(self.type.schema)
        samples, _ = read_stored(raw)
        if self.type.kind != "event" or all(s.time_ns < self._opened for s in samples):
            return raw, samples
        # Events arrived between the remote's opening and this first use: queue all of them, after
        # the newest earlier one.
        raw.close()
        history = topic.subscribe(subscribe_options(last(255), self._keys))
        samples, _ = read_stored(history)
        newest = {s.key: s for s in samples if s.time_ns < self._opened}
        before = sorted(newest.values(), key=lambda sample: sample.offset)
        try:
            raw = topic.subscribe(
                subscribe_options(since(Time(self._opened)), self._keys, lagging=lagging)
            )
        except QosRefused:
            # The transport has no positions (DDS): later samples are among the newest of each key.
            before += [s for s in samples if s.time_ns >= self._opened]
            raw = history
        else:
            history.close()
            before += read_stored(raw)[0]
        raw.count_losses(self.type.schema)
        return raw, before

    async def _arrival(self, subscription: CallbackSubscription) -> None:
        if self._closed or self._bus._closed:
            raise self._closed_error()
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        subscription.listen()
        await waiting

    def _wake(self) -> None:
        """Resume all waiting tasks; each checks its condition again."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def _received(self, sample: Sample[Any]) -> Any:
        value = sample.value
        if value.private_rcvStamp == 0.0:
            object.__setattr__(value, "private_rcvStamp", self._bus._raw.stamps()[0])
        return value


@contextlib.asynccontextmanager
async def _limit(timeout: float | None, topic: ReadTopic) -> AsyncIterator[None]:
    """Like ``asyncio.timeout``, but raises :class:`WaitTimeout`."""
    try:
        async with asyncio.timeout(checked_timeout(timeout)):
            yield
    except TimeoutError:
        raise WaitTimeout(f"no value of {topic!r} within {timeout} s") from None
