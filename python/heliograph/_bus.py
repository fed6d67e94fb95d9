"""The asynchronous API: a bus, its topics and subscriptions in an asyncio event loop.

Constraints: nothing here blocks the loop, except methods that have an awaitable twin. The twin has
the same name with the prefix ``a`` and calls the engine in a thread. Publishing is a copy into the
transport's memory, unless another process has to be waited for: then a thread of the topic does it,
and what follows. Looking for samples is a look there; whatever has to be waited for (samples,
receipts that are not there yet) is a waiter that the bus's notifier completes. Two file descriptors
a bus are watched by the loop, however many tasks wait: one that samples make readable wherever they
are published, and one for what other threads of this process complete.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from heliograph._common import SubscriptionBase, TopicBase, checked_timeout, open_bus, open_topic
from heliograph._errors import ClosedError, WaitTimeout
from heliograph._heliograph import Notifier, Pending, RawBus, RawSubscription, RawTopic, Receipt
from heliograph._heliograph import Sample as _Sample
from heliograph._threads import in_background, in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
    from concurrent.futures import Future
    from contextvars import Context
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    from heliograph._common import Evolution, Group, Writer
    from heliograph._errors import HelioError
    from heliograph._events import Event
    from heliograph._heliograph import ManualClock, Null, Sample, Time
    from heliograph._lagging import Lagging
    from heliograph._qos import Guarantee, Qos
    from heliograph._start import Start

_T = TypeVar("_T")
_R = TypeVar("_R")

_YIELD_AFTER_SAMPLES = 256
"""Samples that a task handles before it yields to other tasks of its loop."""

_SIGNAL_CHECK_INTERVAL_S = 0.5
"""The longest sleep of a loop in the main thread. A signal (Ctrl-C) between Python's last check and
the system call of the sleep would otherwise be handled at the next sample only."""


class _Waiter:
    """A future that one task awaits, with a direct way to wake it.

    A future of asyncio runs its task in the loop's next iteration, after another poll of all
    descriptors. This one runs it at once, in the callback that detects new samples.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_cancelled",
        "_done",
        "_loop",
        "_task",
        "_token",
        "_waiting",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, waiting: dict[int, _Waiter], token: int
    ) -> None:
        self._asyncio_future_blocking = False
        self._waiting = waiting
        self._token = token
        self._loop = loop
        self._task: tuple[Callable[[Any], object], Context] | None = None
        self._done = False
        self._cancelled: tuple[Any, ...] | None = None

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            self._asyncio_future_blocking = True
            try:
                yield self
            finally:
                self._forget()
        self.result()

    def _forget(self) -> None:
        """Unregister this waiter, however the wait ended."""
        self._done = True
        if self._waiting.get(self._token) is self:
            del self._waiting[self._token]

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop whose task may wait."""
        return self._loop

    def add_done_callback(self, wakeup: Callable[[Any], object], *, context: Context) -> None:
        """Register the task to be woken; called when its wait begins."""
        self._task = (wakeup, context)
        if self._done:
            self._loop.call_soon(wakeup, self, context=context)

    def done(self) -> bool:
        """Say whether the task was woken."""
        return self._done

    def result(self) -> None:
        """Raise CancelledError if the task was cancelled meanwhile; it asks when it is woken."""
        if self._cancelled is not None:
            raise asyncio.CancelledError(*self._cancelled)

    def cancel(self, msg: Any = None) -> bool:
        """Wake the task with a CancelledError; return false if it is being woken already."""
        if self._done:
            return False
        self._cancelled = () if msg is None else (msg,)
        self.wake_soon()
        return True

    def wake(self) -> None:
        """Run the task at once. No task may be running: for callbacks of the loop."""
        if not self._done:
            self._done = True
            if self._task is not None:
                wakeup, context = self._task
                context.run(wakeup, self)

    def wake_soon(self) -> None:
        """Run the task in the loop's next round."""
        if not self._done:
            self._done = True
            if self._task is not None:
                wakeup, context = self._task
                self._loop.call_soon(wakeup, self, context=context)


class Bus:
    """One connection to one transport, in the event loop that it was connected in.

    Created by :func:`connect`. Closing it ends the iterations over its subscriptions. A process
    that forks must open its buses after the fork.
    """

    def __init__(self, raw: RawBus, notifier: Notifier) -> None:
        self._raw = raw
        self._loop = asyncio.get_running_loop()
        self._notifier = notifier
        self._waiting: dict[int, _Waiter] = {}
        # Topics are opened by other threads too.
        self._tokens = itertools.count(1)
        self._turn = _YIELD_AFTER_SAMPLES
        self._closed = False
        self._watched = [notifier.fileno()]
        self._loop.add_reader(notifier.fileno(), self._drain)
        self._due: asyncio.TimerHandle | None = None
        source = notifier.source_fileno()
        if source is not None:
            self._watched.append(source)
            self._loop.add_reader(source, self._poll_source)
            self._poll_source()
        self._beat: asyncio.TimerHandle | None = None
        if threading.current_thread() is threading.main_thread():
            self._look_for_signals()

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
        """Open a topic. Create it, or check that the existing one has the requested properties.

        ``type`` is a record class, any source that :func:`schema` accepts, ``bytes`` for samples
        without a schema, or None for dictionaries in the topic's stored schema. Without ``qos`` the
        topic must exist.

        The loop stands still meanwhile: for milliseconds on the journal, for as long as a broker
        takes to answer or as another process holds a lock. :meth:`atopic` does not block it.

        ``evolution`` is the required compatibility between this schema and the topic's schemas:
        ``backward`` (new readers can read old data), ``forward`` (old readers can read new data),
        ``full`` (both) or ``none``. None rejects only schemas that cannot be resolved. Publishing
        and subscribing raise :class:`IncompatibleSchema`, which names topic and field.

        ``producer`` is the producer name of this handle, by default the bus's. Several components
        of one process share a bus this way.

        Raises :class:`QosRefused`, which names the unsupported policy,
        :class:`UnknownTopic`, :class:`NameRefused`, :class:`SchemaError`.
        """
        return Topic(open_topic(self._raw, name, type, qos, evolution, producer), self)

    @overload
    async def atopic(
        self,
        name: str,
        type: type[_T],
        *,
        qos: Qos | None = None,
        evolution: Evolution | None = None,
        producer: str | None = None,
    ) -> Topic[_T]: ...
    @overload
    async def atopic(
        self,
        name: str,
        type: Any = None,
        *,
        qos: Qos | None = None,
        evolution: Evolution | None = None,
        producer: str | None = None,
    ) -> Topic[Any]: ...
    async def atopic(
        self,
        name: str,
        type: Any = None,
        *,
        qos: Qos | None = None,
        evolution: Evolution | None = None,
        producer: str | None = None,
    ) -> Topic[Any]:
        """Open a topic without blocking the loop; see :meth:`topic`."""
        raw = await in_thread(open_topic, self._raw, name, type, qos, evolution, producer)
        return Topic(raw, self)

    def _adopt(self, raw: RawTopic) -> Topic[Any]:
        """Return a topic for a handle that another thread opened."""
        return Topic(raw, self)

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        return await in_thread(self._raw.topics)

    async def close(self) -> None:
        """Close the connection and end the iterations over its subscriptions."""
        if self._closed:
            return
        self._leave_loop()
        await in_thread(self._close)

    def _leave_loop(self) -> None:
        """Unregister from the event loop and wake all waiting tasks."""
        self._closed = True
        if self._beat is not None:
            self._beat.cancel()
        if self._due is not None:
            self._due.cancel()
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
        for waiter in self._waiting.values():
            waiter.wake_soon()
        self._waiting.clear()

    def _close(self) -> None:
        self._raw.close()
        self._notifier.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _look_for_signals(self) -> None:
        """Limit the loop's sleep, so that signals are handled; the call itself suffices."""
        self._beat = self._loop.call_later(_SIGNAL_CHECK_INTERVAL_S, self._look_for_signals)

    def _token(self) -> int:
        return next(self._tokens)

    def _drain(self) -> None:
        """Wake the tasks that other threads reported; called by the loop."""
        self._wake(self._notifier.drain())

    def _poll_source(self) -> None:
        """Wake the tasks whose subscriptions may have samples; called by the loop."""
        tokens, due_s = self._notifier.turn()
        if due_s is not None or self._due is not None:
            self._call_again(due_s)
        self._wake(tokens)

    def _call_again(self, due_s: float | None) -> None:
        """Schedule the next poll of the event source."""
        if self._due is not None:
            self._due.cancel()
        self._due = None if due_s is None else self._loop.call_later(due_s, self._poll_source)

    def _wake(self, tokens: list[int]) -> None:
        for token in tokens:
            waiter = self._waiting.pop(token, None)
            if waiter is None:
                continue
            if len(tokens) == 1:
                waiter.wake()
            else:
                # A task that ends the loop by its error must not prevent others from being woken.
                waiter.wake_soon()

    def _waiter(self, token: int) -> _Waiter:
        if self._closed:
            raise ClosedError("the bus is closed")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise RuntimeError("the bus was connected in another event loop; connect in this one")
        waiter = _Waiter(loop, self._waiting, token)
        self._waiting[token] = waiter
        return waiter

    async def _breathe(self) -> None:
        """Let other tasks run: this one has run for a while without waiting."""
        self._turn = _YIELD_AFTER_SAMPLES
        await asyncio.sleep(0)

    async def _finish(self, pending: Pending[_R]) -> list[_R]:
        """Wait for pending receipts."""
        token = self._token()
        while True:
            waiter = self._waiter(token)
            try:
                receipts = pending.poll(self._notifier, token)
                if receipts is not None:
                    return receipts
                await waiter
            finally:
                waiter._forget()


class Topic(TopicBase[_T]):
    """A topic that is open on a :class:`Bus`."""

    def __init__(self, raw: RawTopic, bus: Bus) -> None:
        super().__init__(raw)
        self._bus = bus
        self._claimed = False
        self._offer = raw.offer
        self._thread: ThreadPoolExecutor | None = None
        self._opening: Future[int] | None = None
        self._queued: deque[Future[Any]] = deque()

    async def _in_turn(self, work: Callable[[], _R]) -> _R:
        """Run work that may block in the topic's own thread, in order, behind the writer's opening.

        Opening the writer accesses files or brokers. If it fails, so does all that waits for it.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="helio-publish")
        opening = self._opening
        if not self._claimed and (opening is None or (opening.done() and opening.exception())):
            opening = self._opening = self._thread.submit(self._raw.claim)
        queued = self._thread.submit(self._once_open, opening, work)
        self._queued.append(queued)
        return await asyncio.wrap_future(queued)

    def _once_open(self, opening: Future[int] | None, work: Callable[[], _R]) -> _R:
        if not self._claimed and opening is not None:
            opening.result()
            self._claimed = True
        return work()

    def _is_behind(self) -> bool:
        """Whether earlier samples are still queued; a cancelled one proves nothing about them."""
        queued = self._queued
        while queued and queued[0].done():
            queued.popleft()
        return bool(queued)

    async def publish(
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
        """Publish one sample and return its receipt.

        ``heliograph.NULL`` as the value deletes the last value of ``key``: late joiners receive
        nothing of it until it gets another value. ``key`` defaults to the record's key fields.
        ``headers`` are named values beside the payload, at most 4096 bytes (names: lower-case
        letters, digits, ``-_.``). ``time`` defaults to now, ``guarantee`` to the topic's;
        ``DURABLE`` waits until the sample survives power loss. The event loop is never blocked:
        pending receipts are awaited, and so is a full queue under the policy *block*. Samples of
        concurrent calls are published in the order of the calls. Cancelling the wait does not
        withdraw the sample, unless it is still queued: behind samples that another process blocks,
        or until the writer is open.

        Raises :class:`EncodeError`, which names the field, :class:`Fenced`, :class:`OverloadError`,
        :class:`StorageError`, :class:`ClosedError`.
        """
        options = self._publish_options(key, level, time, trace, headers, guarantee, partition)
        outcome: Receipt | Pending[Receipt] | None = None
        # Samples queued in the thread must not be overtaken.
        if self._claimed and not (self._queued and self._is_behind()):
            outcome = (
                self._offer(value) if options is None else self._raw.offer_with(value, options)
            )
        if outcome is None:
            # A copy, because the caller may change the value while it is queued.
            outcome = await self._in_turn(partial(self._send, copy.copy(value), options))
        bus = self._bus
        bus._turn -= 1
        if bus._turn <= 0:
            await bus._breathe()
        if isinstance(outcome, Receipt):
            return outcome
        return (await bus._finish(outcome))[0]

    async def publish_many(self, values: Iterable[_T | Null]) -> list[Receipt]:
        """Publish samples in order as one batch; return the last receipt of each partition.

        All values are encoded before the first is published: after an :class:`EncodeError` none was
        published. After any other error, later samples of a partition were not published:
        :meth:`publish_batch` returns which.
        """
        pending = await self._in_turn(partial(self._raw.publish_many, list(values)))
        return await self._bus._finish(pending)

    async def publish_batch(
        self, values: Iterable[_T | Null], *, partition: int | None = None
    ) -> list[Receipt | HelioError]:
        """Publish samples in order as one batch; return a receipt or an error for each of them.

        Nothing is raised for samples that fail. Behind one that is not accepted, no sample of its
        partition is published: each of those has an error, too, and can be published again in
        order. All values are encoded before the first is published (:class:`EncodeError`).
        ``partition`` is that of all samples, by default that of each sample's key. At most 16 MiB
        are appended at once; other producers' samples may come between such parts.
        """
        work = partial(self._raw.publish_batch, list(values), partition)
        return await self._bus._finish(await self._in_turn(work))

    async def aclaim(self) -> int:
        """Open the writer without blocking the loop; see :meth:`claim`."""
        return await in_thread(self.claim)

    async def aassert_alive(self) -> None:
        """Renew the lease without blocking the loop; see :meth:`assert_alive`."""
        await in_thread(self.assert_alive)

    async def awriters(self) -> list[Writer]:
        """Query the writers without blocking the loop; see :meth:`writers`."""
        return await in_thread(self.writers)

    async def agrant(self, user: str, *, password: str | None = None) -> str | None:
        """Let a user read this topic without blocking the loop; see :meth:`grant`."""
        return await in_thread(partial(self.grant, user, password=password))

    async def arevoke(self, user: str) -> bool:
        """End a user's grant without blocking the loop; see :meth:`revoke`."""
        return await in_thread(partial(self.revoke, user))

    async def agroups(self) -> list[Group]:
        """Query the groups without blocking the loop; see :meth:`groups`."""
        return await in_thread(self.groups)

    async def flush(self, guarantee: Guarantee | str, *, timeout: float = 60.0) -> None:
        """Wait until all samples published here reach a guarantee, at most ``timeout`` s."""
        await in_thread(self._raw.flush, str(guarantee), timeout)

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
        """Open a subscription, an asynchronous iterator and context manager.

        ``start``: :func:`latest` (the default), :func:`earliest`, :func:`last`,
        :func:`from_offset`, :func:`since`. ``keys``, ``key_prefix`` and ``partitions`` filter
        samples. Members of a ``group`` share the partitions and start at the committed position.
        ``lagging`` overrides the topic's policy for a slow subscription; ``deadline`` and
        ``lifespan`` override the topic's, too. ``watch="writers"`` reports changes of writers'
        liveliness. With ``pinned_bytes``, large payloads (16 KiB and more) stay where the journal
        has them: see :attr:`Sample.view`. They hold whole segments of the log, of at most so many
        bytes; beyond it, and on other transports, payloads are copied. ``on_event(event)`` receives
        gaps, missed deadlines and other events during iteration. Without it they are logged; so is
        an error that it raises. :meth:`Subscription.events` yields them in order with the samples.

        The loop stands still while the engine opens it; :meth:`asubscribe` does not block it.

        Raises :class:`QosRefused` if the transport does not support the start or groups.
        """
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

    async def asubscribe(
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
        """Open a subscription without blocking the loop; see :meth:`subscribe`.

        ``async with await topic.asubscribe() as samples`` closes it.
        """
        raw = await in_thread(
            self._subscribe,
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
    """A cursor of its own in a topic: ``async for sample in subscription``.

    Leaving ``async with`` or calling :meth:`close` ends it. Only one task at a time may wait on it.
    """

    def __init__(
        self,
        raw: RawSubscription,
        group: str | None,
        on_event: Callable[[Event], object] | None,
        bus: Bus,
    ) -> None:
        super().__init__(raw, group, on_event)
        self._bus = bus
        self._token = bus._token()
        self._turn = _YIELD_AFTER_SAMPLES

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._end():
            await in_thread(self._raw.close)

    def close(self) -> None:
        """End the subscription and the iteration of a task that waits on it.

        A thread leaves the engine, which may take a moment; ``async with`` waits for it.
        """
        if self._end():
            in_background(self._raw.close)

    def _end(self) -> bool:
        """End it here; return whether it was open."""
        if self._closed:
            return False
        self._closed = True
        self._raw.mark_closed()
        waiter = self._bus._waiting.pop(self._token, None)
        if waiter is not None:
            waiter.wake_soon()
        return True

    def __aiter__(self) -> AsyncIterator[Sample[_T]]:
        return self

    async def __anext__(self) -> Sample[_T]:
        try:
            while True:
                # Before a sample is taken: a cancellation cannot lose a taken one.
                self._turn -= 1
                if self._turn <= 0:
                    await self._breathe()
                item = self._take()
                if type(item) is _Sample:
                    return item
                # Not via `_other`: after a pause each call costs a sample much more than it seems.
                await (self._arrival() if item is None else self._other(item))
        except ClosedError:
            if self._closed or self._bus._closed:
                raise StopAsyncIteration from None
            raise

    async def acommit(self, position: tuple[int, int] | None = None) -> None:
        """Commit without blocking the loop; see :meth:`commit`.

        Until it returns, no task may take samples.
        """
        await in_thread(self.commit, position)

    async def aseek(self, offset: int, *, partition: int = 0) -> None:
        """Seek without blocking the loop; see :meth:`seek`.

        Until it returns, no task may take samples.
        """
        await in_thread(partial(self.seek, offset, partition=partition))

    async def next(self, *, timeout: float | None = None) -> Sample[_T]:
        """Return the next sample, waiting at most ``timeout`` seconds.

        Raises :class:`WaitTimeout`, or :class:`ClosedError` if it is closed during the wait.
        """
        try:
            async with asyncio.timeout(checked_timeout(timeout)):
                while True:
                    item = self._take()
                    if type(item) is _Sample:
                        return item
                    await self._other(item)
        except TimeoutError:
            raise WaitTimeout(f"no sample within {timeout} s") from None

    async def batch(self, max: int = 1000, *, timeout: float | None = None) -> list[Sample[_T]]:
        """Return the available samples, at most ``max``; wait for the first one.

        Return an empty list after ``timeout`` seconds without a sample.
        """
        try:
            async with asyncio.timeout(checked_timeout(timeout)):
                while True:
                    if self._turn <= 0:
                        await self._breathe()
                    samples, events, seen = self._raw.take_many(max)
                    for event in events:
                        self._notify(event)
                    if samples:
                        self._turn -= len(samples)
                        return samples
                    await (asyncio.sleep(0) if seen else self._arrival())
        except TimeoutError:
            return []

    async def events(self) -> AsyncIterator[Sample[_T] | Event]:
        """Iterate over samples and events, in order."""
        while True:
            try:
                self._turn -= 1
                if self._turn <= 0:
                    await self._breathe()
                item = self._take()
                if item is None:
                    await self._arrival()
            except ClosedError:
                if self._closed or self._bus._closed:
                    return
                raise
            if item is ...:
                await asyncio.sleep(0)
            elif item is not None:
                yield item

    async def _breathe(self) -> None:
        """Let other tasks run: this one has run for a while without waiting."""
        self._turn = _YIELD_AFTER_SAMPLES
        await asyncio.sleep(0)

    async def _other(self, item: Any) -> None:
        """Handle an item that is not a sample."""
        if item is None:
            await self._arrival()
        elif item is ...:
            await asyncio.sleep(0)
        else:
            self._notify(item)

    def _arrival(self) -> _Waiter:
        """Return an awaitable that ends when samples may be available."""
        bus = self._bus
        before = bus._waiting.get(self._token)
        if before is not None and not before.done():
            raise RuntimeError("another task waits on this subscription; open one for each task")
        waiter = bus._waiter(self._token)
        try:
            if self._raw.arm(bus._notifier, self._token):
                waiter._forget()
        except BaseException:
            waiter._forget()
            raise
        return waiter


class Connecting:
    """What :func:`connect` returns: await it, or enter it with ``async with``."""

    def __init__(
        self, url: str | None, producer: str | None, clock: ManualClock | None = None
    ) -> None:
        self._wanted = (url, producer, clock)
        self._bus: Bus | None = None

    def __await__(self) -> Generator[Any, None, Bus]:
        return self._open().__await__()

    async def _open(self) -> Bus:
        return Bus(*await in_thread(self._connect))

    def _connect(self) -> tuple[RawBus, Notifier]:
        raw = open_bus(*self._wanted)
        return raw, Notifier(raw)

    async def __aenter__(self) -> Bus:
        self._bus = await self._open()
        return self._bus

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bus is not None:
            await self._bus.close()


def connect(url: str | None = None, *, producer: str | None = None) -> Connecting:
    """Connect to a bus: enter it with ``async with``, or await it and close it later.

    ``url`` names the transport: ``journal:/var/lib/helio``, ``memory:``, and so on. It defaults to
    the environment variable ``HELIO_URL``, then to the journal ``heliograph/default`` in
    ``$XDG_STATE_HOME`` (``~/.local/state``), as for the program `helio`. ``producer`` is the
    producer name, stable over restarts: a second running process of the same name fences the
    first. It defaults to a name made of program, host and process.

    Raises :class:`ConnectError`, :class:`NameRefused`.
    """
    return Connecting(url, producer)
