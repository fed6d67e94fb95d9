"""The synchronous API of remotes: the same names without ``await``.

Each remote has a thread with an event loop, which runs the asynchronous remote. Calls here wait for
it. Callbacks run in that thread.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from heliograph._component._remote import Remote as _Remote
from heliograph._component._remote import RemoteCommand as _RemoteCommand
from heliograph._component._remote import set_summary_state
from heliograph._errors import ClosedError
from heliograph._heliograph import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType
    from typing import Self

    from heliograph._component._call import CommandCall as _CommandCall
    from heliograph._component._codes import Ack, State
    from heliograph._component._data import Enums, TopicData
    from heliograph._component._topics import ReadTopic as _ReadTopic
    from heliograph.sync import Bus

_T = TypeVar("_T")


class _Loop:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="heliograph-remote", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop, and wait for its result."""
        if self._loop.is_closed():
            work.close()
            raise ClosedError("the remote is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, act: Callable[[], _T]) -> _T:
        """Call a function in the loop, and wait for its result."""

        async def once() -> _T:
            return act()

        return self.run(once())

    def stop(self) -> None:
        """End the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class ReadTopic:
    """An event or telemetry topic to read; see :class:`heliograph.ReadTopic`."""

    def __init__(self, loop: _Loop, topic: _ReadTopic) -> None:
        self._loop = loop
        self._topic = topic

    def __repr__(self) -> str:
        return repr(self._topic)

    @property
    def has_data(self) -> bool:
        """Whether any value is available."""
        return self.get() is not None

    @property
    def nqueued(self) -> int:
        """How many values :meth:`next` returns without waiting."""
        return self._loop.call(lambda: self._topic.nqueued)

    @property
    def lost(self) -> int:
        """How many values :meth:`next` will never return."""
        return self._loop.call(lambda: self._topic.lost)

    def get(self) -> Any:
        """Return the newest value; None if there is none."""
        return self._loop.call(self._topic.get)

    def aget(self, timeout: float | None = None) -> Any:
        """Return the newest value; wait at most ``timeout`` seconds for a first one."""
        return self._loop.run(self._topic.aget(timeout))

    def next(self, *, flush: bool = False, timeout: float | None = None) -> Any:
        """Return the oldest unread value; wait at most ``timeout`` seconds."""
        return self._loop.run(self._topic.next(flush=flush, timeout=timeout))

    def get_oldest(self) -> Any:
        """Return the oldest unread value without waiting; None if there is none."""
        return self._loop.call(self._topic.get_oldest)

    def flush(self) -> None:
        """Drop all values that were published before."""
        self._loop.run(self._topic.aflush())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self.next()
        except ClosedError:
            raise StopIteration from None

    @property
    def callback(self) -> Callable[[Any], object] | None:
        """Called with each value, in the remote's thread."""
        return self._topic.callback

    @callback.setter
    def callback(self, call: Callable[[Any], object] | None) -> None:
        def put() -> None:
            self._topic.callback = call

        self._loop.call(put)


class CommandCall:
    """A sent command; see :class:`heliograph.CommandCall`."""

    def __init__(self, loop: _Loop, call: _CommandCall) -> None:
        self._loop = loop
        self._call = call

    def __repr__(self) -> str:
        return repr(self._call)

    @property
    def ack(self) -> Ack | None:
        """The last acknowledgement."""
        return self._call.ack

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._call.done

    def wait(self) -> Ack:
        """Wait for the end; return the final acknowledgement, or raise CommandError."""
        return self._loop.run(self._call.wait())

    def next_ack(self, timeout: float | None = None) -> Ack:
        """Return the next unread acknowledgement, final or not."""
        return self._loop.run(self._call.next_ack(timeout))

    def __iter__(self) -> Iterator[Ack]:
        while self._call._unread or not self._call.done:
            yield self.next_ack()

    def cancel(self, *, timeout: float | None = None) -> Ack:
        """Request the component to cancel the command; return its answer to the request."""

        async def cancel() -> Ack:
            return await self._call.cancel(timeout=timeout)

        return self._loop.run(cancel())


class RemoteCommand:
    """A command to send; see :class:`heliograph.RemoteCommand`."""

    def __init__(self, loop: _Loop, command: _RemoteCommand) -> None:
        self._loop = loop
        self._command = command

    def __repr__(self) -> str:
        return repr(self._command)

    @property
    def data(self) -> TopicData:
        """The value that :meth:`start` sends."""
        return self._command.data

    @property
    def data_type(self) -> type[TopicData]:
        """The class of its values."""
        return self._command.data_type

    def set(self, **fields: Any) -> None:
        """Set fields of the value that :meth:`start` sends."""
        self._command.set(**fields)

    def stream(self, field: str) -> None:
        """Set the field that has each command's time, in TAI seconds."""
        self._command.stream(field)

    def send(self, **options: Any) -> CommandCall:
        """Send the command without waiting; the arguments are those of :meth:`set_start`."""
        return CommandCall(self._loop, self._loop.call(lambda: self._command.set_start(**options)))

    def set_start(self, **options: Any) -> Ack:
        """Send the command and wait for its end; see :meth:`heliograph.RemoteCommand.set_start`."""

        async def send() -> Ack:
            return await self._command.set_start(**options)

        return self._loop.run(send())

    def start(self, data: TopicData | None = None, **options: Any) -> Ack:
        """Send ``data``, by default the fields that were set, and wait for the end."""

        async def send() -> Ack:
            return await self._command.start(data, **options)

        return self._loop.run(send())


class Remote:
    """A client's handle to a component; see :class:`heliograph.Remote`.

    ::

        with sync.connect() as bus, sync.Remote(bus, "MTMount") as mount:
            mount.cmd_moveToTarget.set_start(azimuth=10.0, elevation=70.0, timeout=60)
            print(mount.evt_summaryState.get())
    """

    def __init__(self, bus: Bus, name: str, index: int | None = None, **options: Any) -> None:
        # Imported here, because the bus's module imports this one.
        from heliograph._bus import Bus as AsyncBus

        self._loop = _Loop()
        self._notifier = Notifier(bus._raw)
        try:
            self._bus = self._loop.call(lambda: AsyncBus(bus._raw, self._notifier))
            self._remote = self._loop.call(lambda: _Remote(self._bus, name, index, **options))
        except BaseException:
            self._loop.stop()
            raise
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._remote)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        found = getattr(self._remote, attribute)
        made: Any = ReadTopic(self._loop, found)
        if isinstance(found, _RemoteCommand):
            made = RemoteCommand(self._loop, found)
        self.__dict__[attribute] = made
        return made

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._remote._interface.attributes]

    @property
    def name(self) -> str:
        """The component's name."""
        return self._remote.name

    @property
    def index(self) -> int:
        """The component's index; 0 if it has none, or if all instances are read."""
        return self._remote.index

    @property
    def enums(self) -> Enums:
        """The enumerations of its interface."""
        return self._remote.enums

    @property
    def late_sent(self) -> int:
        """The number of stream commands that were sent too late before their time."""
        return self._remote.late_sent

    def presence(self) -> str:
        """Query the component's presence: ``here``, ``gone`` or ``unknown``."""
        return self._loop.call(self._remote.presence)

    def lock(self, seconds: float, *, timeout: float | None = None) -> Ack:
        """Lock the component for this caller, for a limited time."""

        async def lock() -> Ack:
            return await self._remote.lock(seconds, timeout=timeout)

        return self._loop.run(lock())

    def unlock(self, *, timeout: float | None = None) -> Ack:
        """Release the lock."""

        async def unlock() -> Ack:
            return await self._remote.unlock(timeout=timeout)

        return self._loop.run(unlock())

    def set_summary_state(self, state: State, override: str = "", **options: Any) -> list[State]:
        """Bring the component to a state; see :func:`heliograph.set_summary_state`."""
        return self._loop.run(set_summary_state(self._remote, state, override, **options))

    def close(self) -> None:
        """Close all topics, end all waits, and end the thread."""
        if self._closed:
            return
        self._closed = True
        self._loop.call(self._remote.close)
        self._loop.call(self._bus._leave_loop)
        self._loop.stop()
        self._notifier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
