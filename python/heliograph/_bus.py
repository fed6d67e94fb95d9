"""The asynchronous API: a bus, its topics and subscriptions in an asyncio event loop.

Constraints: nothing here blocks the loop. Publishing is a copy into the transport's memory, unless
another process has to be waited for: then a thread of the topic does it, and what follows. Looking
for samples is a look there; whatever has to be waited for (samples, receipts that are not there
yet) is a waiter that the bus's notifier completes. Two file descriptors a bus are watched by the
loop, however many tasks wait: one that samples make readable wherever they are published, and one
for what other threads of this process complete.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from heliograph._common import SubscriptionBase, TopicBase, open_bus, open_topic
from heliograph._errors import ClosedError, WaitTimeout
from heliograph._heliograph import Notifier, Pending, RawBus, RawSubscription, RawTopic, Receipt
from heliograph._heliograph import Sample as _Sample
from heliograph._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
    from concurrent.futures import Future
    from contextvars import Context
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    from heliograph._common import Evolution
    from heliograph._events import Event
    from heliograph._heliograph import ManualClock, Sample, Time
    from heliograph._lagging import Lagging
    from heliograph._qos import Guarantee, Qos
    from heliograph._start import Start

_T = TypeVar("_T")
_R = TypeVar("_R")

_TURN = 256
"""After so many samples without a pause a task lets others of its loop run."""

_SIGNALS_EVERY_S = 0.5
"""How long a loop in the main thread sleeps at most: a signal (Ctrl-C) that comes between Python's
last look and the system call of the loop's sleep is otherwise noticed at the next sample only."""


class _Waiter:
    """What one task awaits: asyncio's protocol of futures, with a short way to the task.

    A future of asyncio has its task run in the loop's next round, after another look at all
    descriptors. This one can run it at once, in the callback that has learnt that there is
    something.
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
        """Leave the list of those who wait, however the wait has ended."""
        self._done = True
        if self._waiting.get(self._token) is self:
            del self._waiting[self._token]

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop whose task may wait."""
        return self._loop

    def add_done_callback(self, wakeup: Callable[[Any], object], *, context: Context) -> None:
        """Have the task woken; it calls this when it begins to wait."""
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
        """Wake the task with a CancelledError; false where it is on its way already."""
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

    Made by :func:`connect`. Closing it ends its subscriptions' iterations. A process that forks
    opens its buses afterwards.
    """

    def __init__(self, raw: RawBus, notifier: Notifier) -> None:
        self._raw = raw
        self._loop = asyncio.get_running_loop()
        self._notifier = notifier
        self._waiting: dict[int, _Waiter] = {}
        # Topics are opened by other threads too.
        self._tokens = itertools.count(1)
        self._turn = _TURN
        self._closed = False
        self._watched = [notifier.fileno()]
        self._loop.add_reader(notifier.fileno(), self._drain)
        self._due: asyncio.TimerHandle | None = None
        source = notifier.source_fileno()
        if source is not None:
            self._watched.append(source)
            self._loop.add_reader(source, self._look)
            self._look()
        self._beat: asyncio.TimerHandle | None = None
        if threading.current_thread() is threading.main_thread():
            self._look_for_signals()

    def __repr__(self) -> str:
        return f"<Bus {'closed' if self._closed else self._raw.url}>"

    @property
    def url(self) -> str:
        """The URL that it is connected to."""
        return self._raw.url

    @property
    def producer(self) -> str:
        """Who publishes through it."""
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
        """Open a topic: create it, or check that it is what is asked for.

        ``type`` is a record class, whatever :func:`schema` takes, ``bytes`` for samples without a
        schema, or None for dictionaries by the schema that the topic has. Without ``qos`` the topic
        must exist. This and :meth:`Topic.subscribe` look at files of the journal, which takes up
        to milliseconds: open topics when a component starts, or by ``asyncio.to_thread``.

        ``evolution`` is what must hold between this schema and those that the topic has already:
        ``backward`` (new readers can read old data), ``forward`` (old readers can read new data),
        ``full`` (both) or ``none``; None refuses what cannot be resolved. Publishing and
        subscribing raise :class:`IncompatibleSchema`, naming topic and field, where it does not.

        ``producer`` is who publishes through this handle, if not whom the bus was opened as:
        several components of one process share a bus so.

        Raises :class:`QosRefused` naming the policy that the transport cannot give,
        :class:`UnknownTopic`, :class:`NameRefused`, :class:`SchemaError`.
        """
        return Topic(open_topic(self._raw, name, type, qos, evolution, producer), self)

    def _adopt(self, raw: RawTopic) -> Topic[Any]:
        """Return a topic that another thread has opened."""
        return Topic(raw, self)

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        return await in_thread(self._raw.topics)

    async def close(self) -> None:
        """Close the connection; tasks that iterate over subscriptions come to their ends."""
        if self._closed:
            return
        self._leave_loop()
        await in_thread(self._close)

    def _leave_loop(self) -> None:
        """Have the loop know it no more; whoever waits comes to an end."""
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
        """Keep the loop from sleeping for long; running this is all that is needed."""
        self._beat = self._loop.call_later(_SIGNALS_EVERY_S, self._look_for_signals)

    def _token(self) -> int:
        return next(self._tokens)

    def _drain(self) -> None:
        """Wake whom other threads reported; the loop calls it."""
        self._wake(self._notifier.drain())

    def _look(self) -> None:
        """Wake whose subscriptions may have something; the loop calls it."""
        tokens, due_s = self._notifier.turn()
        if due_s is not None or self._due is not None:
            self._call_again(due_s)
        self._wake(tokens)

    def _call_again(self, due_s: float | None) -> None:
        """Look again at that time, though nothing comes."""
        if self._due is not None:
            self._due.cancel()
        self._due = None if due_s is None else self._loop.call_later(due_s, self._look)

    def _wake(self, tokens: list[int]) -> None:
        for token in tokens:
            waiter = self._waiting.pop(token, None)
            if waiter is None:
                continue
            if len(tokens) == 1:
                waiter.wake()
            else:
                # A task that ends the loop by its error must not keep the others from being woken.
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
        """Let other tasks run: this one has gone on for a while without waiting."""
        self._turn = _TURN
        await asyncio.sleep(0)

    async def _finish(self, pending: Pending) -> list[Receipt]:
        """Wait for receipts that have not come yet."""
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
        self._held_up: Future[Any] | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def _open_writer(self) -> None:
        """Open the writer, which touches files, beside the loop."""
        await in_thread(self._raw.claim)
        self._claimed = True

    async def _in_turn(self, work: Callable[[], _R]) -> _R:
        """Do something that may be held up in the topic's own thread, behind what waits there."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="helio-publish")
        held_up = self._held_up = self._thread.submit(work)
        return await asyncio.wrap_future(held_up)

    async def publish(
        self,
        value: _T,
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

        The key is made of the record's key fields, or given. ``headers`` are named values beside
        the payload, 4096 bytes at most (names: lower-case letters, digits, ``-_.``). ``time`` is
        now, ``guarantee`` the topic's (``DURABLE`` waits until the sample survives power loss),
        unless given. The event loop is never blocked: a receipt that takes time is awaited, and a
        full queue under the policy *block* too. Cancelling the wait for a receipt does not take the
        sample back, unless it still stood in line because another process held up those before it.

        Raises :class:`EncodeError` naming the field, :class:`Fenced`, :class:`OverloadError`,
        :class:`StorageError`, :class:`ClosedError`.
        """
        if not self._claimed:
            await self._open_writer()
        choices = self._choices(key, level, time, trace, headers, guarantee, partition)
        outcome: Receipt | Pending | None = None
        # Those that wait in the thread must not be overtaken.
        if self._held_up is None or self._held_up.done():
            outcome = (
                self._offer(value) if choices is None else self._raw.offer_with(value, choices)
            )
        if outcome is None:
            # A copy, for whoever gave the value may change it while it waits in line.
            outcome = await self._in_turn(partial(self._send, copy.copy(value), choices))
        bus = self._bus
        bus._turn -= 1
        if bus._turn <= 0:
            await bus._breathe()
        if isinstance(outcome, Receipt):
            return outcome
        return (await bus._finish(outcome))[0]

    async def publish_many(self, values: Iterable[_T]) -> list[Receipt]:
        """Publish samples in order as one batch; return the last receipt of each partition.

        All values are encoded before the first is published, so an :class:`EncodeError` means that
        none was. Any other error means that later ones of a partition were not.
        """
        if not self._claimed:
            await self._open_writer()
        pending = await self._in_turn(partial(self._raw.publish_many, list(values)))
        return await self._bus._finish(pending)

    async def flush(self, guarantee: Guarantee | str, *, timeout: float = 60.0) -> None:
        """Wait until all that was published here is under a guarantee, at most ``timeout`` s."""
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
        on_event: Callable[[Event], object] | None = None,
    ) -> Subscription[_T]:
        """Open a subscription, an asynchronous iterator and context manager.

        ``start``: :func:`latest` (the default), :func:`earliest`, :func:`last`,
        :func:`from_offset`, :func:`since`. ``keys``, ``key_prefix`` and ``partitions`` choose what
        is wanted. Members of a ``group`` share the partitions and begin where it has committed.
        ``lagging``: what happens when it falls behind, if not what the topic says; ``deadline``
        and ``lifespan`` likewise. ``watch="writers"`` tells when writers come and go.
        ``on_event(event)`` hears of gaps, missed deadlines and so on while samples are iterated
        over (else they are logged; so is an error that it raises); :meth:`Subscription.events`
        gives them in order.

        Raises :class:`QosRefused` where the transport cannot start there or has no groups.
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
        )
        return Subscription(raw, group, on_event, self._bus)


class Subscription(SubscriptionBase[_T]):
    """A cursor of its own in a topic: ``async for sample in subscription``.

    Leaving ``async with`` (or :meth:`close`) ends it. One task at a time may wait on it.
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
        self._turn = _TURN

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription; a task that waits on it comes to the end of its iteration."""
        if not self._closed:
            self._closed = True
            self._raw.close()
            waiter = self._bus._waiting.pop(self._token, None)
            if waiter is not None:
                waiter.wake_soon()

    def __aiter__(self) -> AsyncIterator[Sample[_T]]:
        return self

    async def __anext__(self) -> Sample[_T]:
        try:
            while True:
                # Before a sample is taken: what is taken cannot be lost by a cancellation.
                self._turn -= 1
                if self._turn <= 0:
                    await self._breathe()
                item = self._take()
                if type(item) is _Sample:
                    return item
                # Not by way of `_other`: each call on the way costs a sample, after a pause, much
                # more than it seems.
                await (self._arrival() if item is None else self._other(item))
        except ClosedError:
            if self._closed or self._bus._closed:
                raise StopAsyncIteration from None
            raise

    async def next(self, *, timeout: float | None = None) -> Sample[_T]:
        """Return the next sample, waiting at most ``timeout`` seconds.

        Raises :class:`WaitTimeout`, and :class:`ClosedError` when it is closed meanwhile.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    item = self._take()
                    if type(item) is _Sample:
                        return item
                    await self._other(item)
        except TimeoutError:
            raise WaitTimeout(f"no sample within {timeout} s") from None

    async def batch(self, max: int = 1000, *, timeout: float | None = None) -> list[Sample[_T]]:
        """Return what there is, up to ``max`` samples, waiting for the first one.

        An empty list means that ``timeout`` seconds went by.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if self._turn <= 0:
                        await self._breathe()
                    samples, events, seen = self._raw.take_many(max)
                    for event in events:
                        self._tell(event)
                    if samples:
                        self._turn -= len(samples)
                        return samples
                    await (asyncio.sleep(0) if seen else self._arrival())
        except TimeoutError:
            return []

    async def events(self) -> AsyncIterator[Sample[_T] | Event]:
        """Iterate over samples and everything else, in order."""
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
        """Let other tasks run: this one has gone on for a while without waiting."""
        self._turn = _TURN
        await asyncio.sleep(0)

    async def _other(self, item: Any) -> None:
        """Do what is to be done where there is no sample right now."""
        if item is None:
            await self._arrival()
        elif item is ...:
            await asyncio.sleep(0)
        else:
            self._tell(item)

    def _arrival(self) -> _Waiter:
        """Return what to await until there may be something."""
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

    ``url`` names the transport: ``journal:/var/lib/helio``, ``memory:``, and so on. Without it the
    environment's ``HELIO_URL`` does, else it is the journal ``heliograph/default`` in
    ``$XDG_STATE_HOME`` (``~/.local/state``), as for the program `helio`. ``producer`` is who
    publishes, stable over restarts: a second running process of the same name takes over from the
    first. Without it the name is made of program, host and process.

    Raises :class:`ConnectError`, :class:`NameRefused`.
    """
    return Connecting(url, producer)
