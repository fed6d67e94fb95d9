"""Sends commands to one component and receives their acknowledgements.

Constraints: the loop is never blocked. Topics are opened, and the presence is queried, in threads.

Operation: a command is sent at once if its topics are open and the presence is known. Otherwise it
is queued, and so is every later one: a task opens and queries in a thread, then sends them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph._component._call import CommandCall
from heliograph._component._dispatch import Dispatcher
from heliograph._component._send import Sender, SendPolicy, publish_options
from heliograph._component._service_topics import service_topic
from heliograph._component._topics import subscribe_options
from heliograph._errors import ClosedError, HelioError
from heliograph._heliograph import (
    PRESENCE_POLL_INTERVAL_S,
    STORED_TIMEOUT_S,
    Caller,
    PresenceProbe,
)
from heliograph._start import latest
from heliograph._threads import in_background, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from heliograph._bus import Bus
    from heliograph._component._codes import Ack
    from heliograph._component._data import TopicData
    from heliograph._component._interface import ComponentInterface, TopicType
    from heliograph._heliograph import RawSubscription, RawTopic, Sample

_LOG = logging.getLogger("heliograph")

_SECONDS_MAX = 3e9
"""The latest expiry in seconds from now: a century, within 64 bits of nanoseconds."""

_FENCE_POLL_INTERVAL_S = 0.01
"""How often a fence behind the acknowledgements is polled for a command that is to be sent."""

_SCHEMA = "helio-schema"
"""The header with the schema of a command inside another sample."""


@dataclass(frozen=True, eq=False)
class _Order:
    """A command, or a control request, that is to be sent."""

    call: CommandCall
    topic: TopicType | None
    action: str
    argument: float
    target: CommandCall | None
    """The call to cancel; its number is known once it is sent."""
    value: Any
    timeout: float | None
    expiry: int | None
    key: str | None
    time: int | None


class CallerEngine:
    """The caller's side of the protocol, driven by the event loop; one for each remote."""

    def __init__(
        self,
        bus: Bus,
        interface: ComponentInterface,
        index: int,
        identity: str,
        caller: str | None,
        lead: float,
        key: str | PathLike[str] | None,
    ) -> None:
        self._bus = bus
        self._interface = interface
        self._index = index
        self._identity = identity
        self._origin = os.getpid()
        name = f"{interface.name}:{index}" if interface.indexed else interface.name
        self.name = name
        self._caller = Caller(
            name, identity, self._origin, caller, secrets.randbits(128), lead, key
        )
        self._sender = Sender(bus._finish)
        self._probe: PresenceProbe | None = None
        self._last_presence = "unknown"
        self._ending: tuple[str, int, float] | None = None
        """The presence that would end calls, and how long to wait for the acknowledgements that
        were stored when it was first seen: a fence is behind them."""
        self._acks: Dispatcher | None = None
        self._topics: dict[str, RawTopic] = {}
        self._control: RawTopic | None = None
        self._calls: dict[int, tuple[CommandCall, TopicType | None, Any]] = {}
        self._queued: deque[_Order] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._querying: asyncio.Task[None] | None = None
        self._unsent: HelioError | None = None
        """Why the command that is being sent cannot be."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def late_sent(self) -> int:
        """The number of stream commands that were sent too late before their time."""
        return self._caller.late_sent

    def presence(self) -> str:
        """Query the presence: here, gone or unknown; away if the bus does not answer. Blocks."""
        self._check_open()
        known, instance = self._query()
        self._update_presence(known, instance)
        return known

    async def apresence(self) -> str:
        """Query the presence without blocking the loop."""
        self._check_open()
        known, instance = await in_thread(self._query)
        self._update_presence(known, instance)
        return known

    def send(
        self,
        topic: TopicType | None,
        action: str,
        value: Any,
        *,
        argument: float = 0.0,
        target: CommandCall | None = None,
        timeout: float | None = None,
        expiry: float | None = None,
        key: str | None = None,
        time: int | None = None,
        until_done: bool = True,
        progress: Callable[[Ack], object] | None = None,
    ) -> CommandCall:
        """Send a command, or a control request if `action` is not to run it."""
        self._check_open()
        if expiry is not None and not abs(expiry) < _SECONDS_MAX:
            raise ValueError(f"{expiry} s from now is not a valid expiry of a command")
        limit = self._caller.check(timeout, key)
        expires = None if expiry is None else self._now() + round(expiry * 1e9)
        title = f"{self.name}.{action if topic is None else topic.name}"
        call = CommandCall(self, title, until_done, progress)
        order = _Order(call, topic, action, argument, target, value, timeout, expires, key, time)
        known = None if self._queued or not self._is_open(order) else self._known()
        if known is None or not self._update_presence(*known):
            loop = asyncio.get_running_loop()
            self._queued.append(order)
            loop.call_later(limit, self._give_up, order, limit)
            if self._sending is None:
                self._sending = loop.create_task(self._send_queued())
        else:
            self._send(order)
        return call

    def _send(self, order: _Order, failure: HelioError | None = None) -> None:
        """Send a command now, or end it with the reason why it cannot be sent."""
        argument = order.argument if order.target is None else float(order.target.number)
        command = "" if order.topic is None else order.topic.name
        what = (order.action, argument)
        number = self._caller.send(
            self._now(), what, command, order.timeout, order.expiry, order.key, order.time
        )
        self._calls[number] = (order.call, order.topic, order.value)
        self._unsent = failure
        try:
            self._drain()
        finally:
            self._unsent = None

    async def _send_queued(self) -> None:
        """Open what queued commands need, query the presence, and send them in order."""
        try:
            while self._queued and not self._closed:
                order, failure = self._queued[0], None
                try:
                    if not self._is_open(order):
                        acks = await in_thread(self._open, order)
                        self._adopt(acks)
                    known = await self._refreshed()
                    while not self._update_presence(*known):
                        await asyncio.sleep(_FENCE_POLL_INTERVAL_S)
                        known = await self._refreshed()
                except HelioError as error:
                    failure = error
                # It may have been given up meanwhile.
                if self._queued and self._queued[0] is order:
                    self._queued.popleft()
                    self._send(order, failure)
        finally:
            self._sending = None

    def _give_up(self, order: _Order, limit: float) -> None:
        """End a command that is still queued."""
        if order in self._queued:
            self._queued.remove(order)
            missing = "deliver its stored acknowledgements" if self._ending else "open its topics"
            self._send(order, HelioError(f"the bus did not {missing} within {limit} s"))

    def cancel(self, call: CommandCall, timeout: float | None) -> CommandCall:
        """Request the cancellation of a call."""
        return self.send(None, "cancel", None, target=call, timeout=timeout)

    # Inputs and effects of the protocol.

    def _now(self) -> int:
        return self._bus._raw.now_ns()

    def _check_open(self) -> None:
        if self._closed or self._bus._closed:
            raise ClosedError(f"the remote of {self.name} is closed")
        if self._interface.indexed and not self._index:
            raise ValueError(
                f"a remote of all instances of {self._interface.name} reads only: name an index to "
                "send commands"
            )

    def _is_open(self, order: _Order) -> bool:
        """Whether all that a command needs is open."""
        if self._acks is None or (order.action != "run" and self._control is None):
            return False
        return order.topic is None or order.topic.name in self._topics

    def _open(self, order: _Order) -> RawSubscription | None:
        """Open what a command needs; return new acknowledgements. For a thread."""
        acks = None
        if self._acks is None:
            kind = self._interface.get("ack_ackcmd")
            assert kind is not None, "every component has acknowledgements"
            keys = [kind.schema.key(self._index)] if self._interface.indexed else None
            wanted = subscribe_options(latest(), keys, lagging=("lossless", 0))
            acks = kind.open(self._bus._raw).subscribe(wanted)
        if order.action != "run" and self._control is None:
            interface = self._interface
            control = service_topic(
                self._bus._raw, "control", interface.name, interface.indexed, None
            )
            control.claim()
            self._control = control
        if order.topic is not None and order.topic.name not in self._topics:
            # A command whose topic cannot be opened is invalid. Opening it also registers the
            # schema, which the component needs to validate a command.
            opened = order.topic.open(self._bus._raw)
            opened.claim()
            self._topics[order.topic.name] = opened
        return acks

    def _adopt(self, acks: RawSubscription | None) -> None:
        if acks is None:
            return
        if self._closed or self._bus._closed:
            in_background(acks.close)
            return
        self._acks = Dispatcher(self._bus, self._drain, self._on_read_failure)
        self._acks.add(acks, self._on_ack)

    def _known(self) -> tuple[str, int] | None:
        """Return the presence if no query is needed to know it."""
        return None if self._probe is None else self._probe.known()

    async def _refreshed(self) -> tuple[str, int]:
        """Return the presence, queried in a thread if it is not known."""
        known = self._known()
        return await in_thread(self._query) if known is None else known

    def _query(self) -> tuple[str, int]:
        """Query the presence; blocks."""
        if self._probe is None:
            interface = self._interface
            self._probe = PresenceProbe(self._bus._raw, interface.raw, interface.name, self._index)
        return self._probe.query()

    def _on_ack(self, sample: Sample[Any]) -> None:
        if self._calls:
            self._caller.acknowledged(self._now(), sample, sample.value)

    def _on_read_failure(self, _source: object, _at: object, error: HelioError) -> None:
        """End the calls, whose acknowledgements are lost; the next call reopens."""
        self._acks = None
        self._end_calls(str(error))

    def _end_calls(self, why: str) -> None:
        self._caller.unheard(why)
        self._drain()

    def _update_presence(self, known: str, instance: int) -> bool:
        """Pass the presence to the protocol; return False if stored acknowledgements come first."""
        if known == "away":
            if self._last_presence != "gone":
                return True
            # A component that was gone may have started.
            known = "unknown"
        if self._caller.would_end(known, instance) and not self._has_read_stored(known, instance):
            return False
        self._ending = None
        self._last_presence = known
        self._caller.presence(known, instance)
        return True

    def _has_read_stored(self, known: str, instance: int) -> bool:
        """Read the acknowledgements: those from before the end of a component count.

        Return whether all have arrived that were stored when this presence was first seen.
        """
        acks = self._acks
        if acks is None:
            return True
        if self._ending is None or self._ending[:2] != (known, instance):
            self._ending = (known, instance, time.monotonic() + STORED_TIMEOUT_S)
            acks.set_fence()
        until = self._ending[2]
        acks.poll()
        # The calls may have ended meanwhile, or their acknowledgements cannot be read.
        if acks.has_passed_fence() or not self._caller.would_end(known, instance):
            return True
        if time.monotonic() < until:
            return False
        self._end_calls(f"its acknowledgements did not arrive within {STORED_TIMEOUT_S:g} s")
        return True

    def _drain(self) -> None:
        for effect, *rest in self._caller.effects():
            getattr(self, f"_on_{effect}")(*rest)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._caller.wake_at()
        if due is not None and not self._closed:
            after = max(0.0, (due - self._now()) * 1e-9)
            if self._caller.pending:
                after = min(after, PRESENCE_POLL_INTERVAL_S)
            self._timer = asyncio.get_running_loop().call_later(after, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._bus._closed:
            self._end_calls("the bus was closed")
            return
        if self._caller.pending:
            if (known := self._known()) is not None:
                self._update_presence(*known)
            elif self._querying is None:
                self._querying = asyncio.get_running_loop().create_task(self._refresh())
        self._caller.tick(self._now())
        self._drain()

    async def _refresh(self) -> None:
        """Query the presence for pending commands."""
        try:
            known = await in_thread(self._query)
            if not self._closed:
                self._update_presence(*known)
                self._drain()
        except HelioError as error:
            _LOG.warning("the presence of %s cannot be queried: %s", self.name, error)
        finally:
            self._querying = None

    def _on_publish(
        self,
        number: int,
        what: str,
        argument: float,
        sequence: int,
        trace: bytes,
        headers: dict[str, bytes],
    ) -> None:
        call, topic, value = self._calls[number]
        call.number = sequence

        def failed(error: HelioError) -> None:
            self._caller.publish_failed(number, str(error))
            asyncio.get_running_loop().call_soon(self._drain)

        if self._unsent is not None:
            failed(self._unsent)
            return
        missing = None
        if topic is not None and self._probe is not None:
            missing = self._probe.missing_command(topic.name)
        if missing is not None:
            failed(HelioError(missing))
            return
        target: RawTopic | None
        try:
            if what == "run":
                assert topic is not None, "what is run is a command"
                target = self._topics[topic.name]
                value = self._stamped(topic, value, sequence)
            else:
                target = self._control
                if what == "validate":
                    assert topic is not None, "what is validated is a command"
                    headers[_SCHEMA] = bytes.fromhex(topic.schema.id)[::-1]
                inside, value = value, self._control_record(what, argument, topic, value, sequence)
            if self._caller.has_key:
                values = inside if what == "validate" else value if what == "run" else None
                request = (sequence, trace, headers)
                self._sign((what, argument), topic, values, request)
        except HelioError as error:
            failed(error)
            return
        assert target is not None, "it was opened before the command was sent"
        beside = publish_options(trace=trace, headers=headers or None)
        self._sender.send(target, value, beside, SendPolicy(failed=failed))

    def _sign(
        self,
        what: tuple[str, float],
        topic: TopicType | None,
        values: TopicData | None,
        publish: tuple[int, bytes, dict[str, bytes]],
    ) -> None:
        """Add the signature to the headers of a request."""
        command = "" if topic is None else topic.name
        arguments = "" if topic is None or values is None else topic.arguments(values)
        header = self._caller.sign(what, command, publish, arguments)
        if header is not None:
            publish[2][header[0]] = header[1]

    def _stamped(self, topic: TopicType, value: TopicData, sequence: int) -> TopicData:
        sent, utc = self._bus._raw.stamps()
        stamp = object.__setattr__
        if self._interface.indexed:
            stamp(value, "salIndex", self._index)
        stamp(value, "private_sndStamp", sent)
        stamp(value, "private_efdStamp", utc)
        stamp(value, "private_kafkaStamp", sent)
        stamp(value, "private_seqNum", sequence)
        stamp(value, "private_revCode", topic.revcode)
        stamp(value, "private_identity", self._identity)
        stamp(value, "private_origin", self._origin)
        return value

    def _control_record(
        self, what: str, argument: float, topic: TopicType | None, value: Any, sequence: int
    ) -> dict[str, Any]:
        payload = b""
        if what == "validate":
            assert topic is not None, "what is validated is a command"
            payload = topic.schema.encode(self._stamped(topic, value, sequence))
        return {
            "salIndex": self._index,
            "action": what,
            "command": "" if topic is None else topic.name,
            "target": int(argument) if what == "cancel" else 0,
            "seconds": argument if what == "lock" else 0.0,
            "payload": payload,
            "seqNum": sequence,
            "identity": self._identity,
            "origin": self._origin,
        }

    def _on_progress(self, number: int, row: tuple[Any, ...]) -> None:
        self._calls[number][0]._on_row(row)

    def _on_done(self, number: int, row: tuple[Any, ...], _cause: str) -> None:
        call, _, _ = self._calls.pop(number)
        call._on_row(row)

    def _on_warn(self, text: str) -> None:
        _LOG.warning("%s", text)

    def close(self) -> None:
        """Close all topics; pending calls end as not acknowledged."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._sending, self._querying):
            if task is not None:
                task.cancel()
        if self._acks is not None:
            self._acks.close()
        while self._queued:
            self._send(self._queued.popleft(), ClosedError("the remote was closed"))
        self._end_calls("the remote was closed")
