"""The engine of a component: drives the protocol's controller in the event loop.

Constraints: the controller in the extension decides each step of a command and does no I/O. This
module decodes values, runs handlers and hooks as tasks, and publishes. Receiving a command never
waits: samples that cannot be published at once are queued.

Operation: each input is followed by :meth:`Engine._drain`, which carries out the controller's
effects in their order and sets the timer for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from heliograph._component._codes import AckCode, State
from heliograph._component._commands import CommandOptions, options_of
from heliograph._component._data import encodable
from heliograph._component._dispatch import Dispatcher
from heliograph._component._send import AckOrder, Sender, SendPolicy, TopicQueue, publish_options
from heliograph._component._service_topics import service_topic
from heliograph._component._topics import WriteTopic, subscribe_options
from heliograph._errors import (
    DecodeError,
    ExpectedError,
    HelioError,
    IncompatibleSchema,
    LeaseError,
    NotLive,
    StorageError,
)
from heliograph._events import Gap, Undecodable
from heliograph._heliograph import (
    TYPED_BYTES_MAX,
    Checks,
    Controller,
    Lease,
    create_topics,
    sends_defaults,
)
from heliograph._start import latest
from heliograph._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from heliograph._bus import Bus
    from heliograph._component._component import Component
    from heliograph._component._dispatch import CallbackSubscription, Positions
    from heliograph._component._interface import ComponentInterface, TopicType
    from heliograph._component._topics import Identity
    from heliograph._heliograph import RawSubscription, RawTopic, Sample

_LOG = logging.getLogger("heliograph")
_SEND_LOG = logging.getLogger("heliograph.send")

STATE_COMMANDS = ("start", "enable", "disable", "standby", "exitControl", "enterControl")
"""The commands that change the state."""

ENGINE_EVENTS = (
    "summaryState",
    "errorCode",
    "logLevel",
    "logMessage",
    "simulationMode",
    "softwareVersions",
    "heartbeat",
    "configurationsAvailable",
    "configurationApplied",
)
"""The events that the engine itself writes, if the interface has them."""

DISCARDABLE_EVENTS = frozenset(("heartbeat", "logMessage"))
"""Engine events that are discarded rather than retried."""

FAILED, ABORTED, TIMED_OUT = "failed", "aborted", "timeout"


@dataclass
class _Command:
    """A command of the interface, with its handler and options."""

    topic: TopicType
    options: CommandOptions
    handler: Callable[[Any], Any] | None
    validate: Callable[[Any], Any] | None
    checks: Checks
    number: int
    raw: RawTopic | None = None

    def arguments(self, payload: bytes) -> str:
        """Return the public fields as JSON, for the audit."""
        return self.checks.arguments(payload, self.topic.public.start, self.topic.public.stop)


@dataclass
class _Call:
    """A received command that has not ended."""

    command: _Command | None
    value: Any
    task: asyncio.Task[Any] | None = None


class Engine:
    """A component's engine; the API for authors of components is :class:`Component`."""

    def __init__(
        self, component: Component, bus: Bus, interface: ComponentInterface, who: Identity
    ) -> None:
        self.component = component
        self.bus = bus
        self.interface = interface
        self.who = who
        self.sender = Sender(bus._finish, self._on_queue)
        self.lease: Lease | None = None
        self._reads_defaults = sends_defaults(component.missing_fields)
        """Whether zeros stand for fields that a caller's interface does not have."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # An error that is not retrieved must not be reported by the garbage collector.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.commands = self._commands()
        self.controller = Controller(
            interface.name,
            who.index,
            [self._spec(name, command) for name, command in self.commands.items()],
            int(component._initial),
        )
        self.events: dict[str, WriteTopic] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._calls: dict[int, _Call] = {}
        self._by_value: dict[int, int] = {}
        self._waiting: dict[int, asyncio.Future[tuple[int, str]]] = {}
        self._dispatcher = Dispatcher(bus, self._drain, self._on_read_failure)
        self._sources: dict[CallbackSubscription, tuple[_Command | None, Positions]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._changed = False
        self._lapses = 0
        self._is_unconfirmed = False
        """Whether the controller has been notified that the lease is unconfirmed."""
        self._acks: RawTopic | None = None
        self._ack_type = interface.get("ack_ackcmd")
        self._audit: RawTopic | None = None
        self._final_ack_policy, self._progress_ack_policy = (
            SendPolicy(keep=keep, ack_order=AckOrder.ACKS, refusal=self.refusal)
            for keep in (True, False)
        )
        self._audit_policy = SendPolicy(keep=True, ack_order=AckOrder.AUDIT, refusal=self.refusal)

    @property
    def state(self) -> State:
        """The summary state."""
        return State(self.controller.summary_state)

    # Commands and their handlers.

    def _commands(self) -> dict[str, _Command]:
        sal_names = sorted(
            topic.info.sal_name for kind in _KINDS for topic in self.interface.of_kind(kind)
        )
        component, found = self.component, {}
        for topic in self.interface.of_kind("command"):
            name = topic.name
            handler = getattr(component, f"do_{name}", None)
            options = component.command_options.get(name) or options_of(handler)
            if name in STATE_COMMANDS:
                handler = None
            found[name] = _Command(
                topic=topic,
                options=options,
                handler=handler,
                validate=getattr(component, f"validate_{name}", None),
                checks=checks_of(topic, options),
                number=sal_names.index(topic.info.sal_name),
            )
        self._check_handlers(found)
        return found

    def _check_handlers(self, known: dict[str, _Command]) -> None:
        named = {name[3:] for name in dir(type(self.component)) if name.startswith("do_")}
        named |= set(self.component.command_options)
        # The base class has its handler, even if the interface lacks the command.
        named.discard("setLogLevel")
        strangers = named - set(known) - set(self.component.extra_commands)
        if strangers:
            name = sorted(strangers)[0]
            raise TypeError(
                f"{type(self.component).__name__} has a handler for {name!r}, and the interface of "
                f"{self.interface.name} no such command; correct the name, or list it in "
                "extra_commands if it will come with a later interface"
            )

    @staticmethod
    def _spec(name: str, command: _Command) -> tuple[str, bool, bool, float | None]:
        stream = command.options.stream
        margin = None if stream is None else stream.margin
        there = command.handler is not None or name in STATE_COMMANDS
        return (name, there, command.options.concurrent, margin)

    # Opening.

    async def open(self) -> None:
        """Take the lease, open topics, and accept commands.

        Raises :class:`LeaseError` if another instance runs.
        """
        opening = asyncio.ensure_future(in_thread(self._open))
        try:
            subscriptions = await asyncio.shield(opening)
            for name, event in self.events.items():
                event.adopt(self.bus._adopt(self._raw_events[name]))
            for command, raw in subscriptions:
                self._dispatch(command, raw)
        except BaseException:
            # The thread continues if its caller was cancelled, and then holds the lease.
            await asyncio.wait([opening])
            lease, self.lease = self.lease, None
            if lease is not None:
                await in_thread(lease.release)
            raise

    def begin(self) -> None:
        """Publish the state, and answer commands from now on."""
        self.check_lease()
        self._carry_out()
        self._changed = False
        self._schedule()

    def _open(self) -> list[tuple[_Command | None, RawSubscription]]:
        interface, who, bus = self.interface, self.who, self.bus._raw
        # On brokers, creating them one by one takes several times as long.
        create_topics(bus, interface.raw, interface.name, who.index)
        # Subscribe before taking the lease: a caller that sees the lease may send.
        opened = self._listen()
        self.lease = Lease(bus, interface.raw, interface.name, who.index, self._software())
        assert self._ack_type is not None, "every component has acknowledgements"
        kind = self._ack_type
        self._acks = kind.open(bus, producer=who.producer)
        self._acks.claim()
        self._audit = service_topic(bus, "audit", interface.name, interface.indexed, who.producer)
        self._audit.claim()
        self._raw_events: dict[str, RawTopic] = {}
        for name in ENGINE_EVENTS:
            topic = interface.get(f"evt_{name}")
            if topic is not None:
                with self._skip_incompatible(topic):
                    event = self.component._writer(topic)
                    self._raw_events[name] = event.open_now()
                    self.events[name] = event
        return opened

    def _listen(self) -> list[tuple[_Command | None, RawSubscription]]:
        opened: list[tuple[_Command | None, RawSubscription]] = [(None, self._subscribe(None))]
        for command in self.commands.values():
            with self._skip_incompatible(command.topic):
                opened.append((command, self._subscribe(command)))
        return opened

    def _subscribe(self, command: _Command | None) -> RawSubscription:
        """Subscribe to a command, or to control requests.

        If its schema does not resolve with another release's, and no policy was chosen, the
        commands of that release are rejected with an acknowledgement each.
        """
        interface, bus, kind = self.interface, self.bus._raw, self._ack_type
        assert kind is not None, "every component has acknowledgements"
        keys = [kind.schema.key(self.who.index)] if interface.indexed else None
        # Each command is answered, not only the first that cannot be decoded.
        wanted = subscribe_options(latest(), keys, lagging=("lossless", 0), each_undecodable=True)
        if command is None:
            control = service_topic(bus, "control", interface.name, interface.indexed, None)
            return control.subscribe(wanted)
        topic = command.topic
        required = None if self._reads_defaults else topic.required
        command.raw = topic.open(bus, required=required)
        try:
            # Incompatible callers are refused when they open it.
            command.raw.declare()
        except IncompatibleSchema as error:
            if self.interface.evolution is not None:
                raise
            self.component.log.error("%r: %s", topic, error)
        return command.raw.subscribe(wanted)

    @contextlib.contextmanager
    def _skip_incompatible(self, topic: TopicType) -> Iterator[None]:
        """Skip a topic whose schema does not resolve with another release's."""
        try:
            yield
        except IncompatibleSchema as error:
            self.component.log.error("%r is skipped, the others continue: %s", topic, error)

    def _software(self) -> str:
        kind = type(self.component)
        return f"{kind.__module__}.{kind.__qualname__} {self.component.version}".strip()

    def _dispatch(
        self, command: _Command | None, raw: RawSubscription, resumed: Positions | None = None
    ) -> None:
        handle = self._control if command is None else partial(self._received, command)
        source = self._dispatcher.add(raw, handle, partial(self._event, command))
        self._sources[source] = (command, resumed or [])

    # Topics that cannot be read.

    def _on_read_failure(
        self, source: CallbackSubscription, at: Positions, error: HelioError
    ) -> None:
        """Continue without a topic that cannot be read, unless it was the last one."""
        command, resumed = self._sources.pop(source)
        if not len(self._dispatcher):
            self.stop(error)
            return
        what = _title(command)
        self.component.log.error("%s cannot be read: %s; all others are", what, error)
        # A position that fails again is skipped.
        stuck = [place[:2] for place in resumed] == [place[:2] for place in at]
        self.spawn(self._reopen(command, [] if stuck else at))

    async def _reopen(self, command: _Command | None, at: Positions) -> None:
        """Retry a failed subscription each second, and resume at its positions."""
        lapses = self._lapses
        while True:
            await asyncio.sleep(REOPEN_INTERVAL_S)
            if lapses != self._lapses:
                # Callers were notified meanwhile that the component is gone.
                lapses, at = self._lapses, []
            try:
                raw = await in_thread(self._resume, command, at)
                if lapses != self._lapses:
                    raw.close()
                    continue
                self._dispatch(command, raw, at)
            except HelioError:
                continue
            left = "" if at else "; stored requests are skipped"
            self.component.log.info("%s are read again%s", _title(command), left)
            return

    def _resume(self, command: _Command | None, at: Positions) -> RawSubscription:
        raw = self._subscribe(command)
        for partition, following, _ in at:
            raw.seek(partition, following)
        return raw

    # Inputs.

    def _now(self) -> int:
        return self.bus._raw.now_ns()

    def refusal(self) -> NotLive | StorageError | None:
        """Return why this is not certainly the live instance; None if it is.

        During an outage the owner is unknown, and the instance continues.
        """
        if self.lease is None:
            return NotLive(_ENDED if self._stopping is not None else _NOT_STARTED)
        standing, _ = self.lease.standing()
        if standing == "held":
            return None
        return StorageError(self.lease.outage()) if standing == "lapsed" else NotLive(_LOST)

    def check_lease(self) -> bool:
        """Check the lease; if it is lost, end the component. Return whether it is not lost.

        The controller is notified at once when the lease is not held. :meth:`admits` notifies it
        when the lease is held again.
        """
        standing, instance = ("lost", 0) if self.lease is None else self.lease.standing()
        if standing == "held" and self._is_unconfirmed:
            return True
        if standing == "lapsed" and self.lease is not None and not self._is_unconfirmed:
            self._is_unconfirmed = True
            self.component.log.warning("no command runs for now: %s", self.lease.outage())
        self.controller.lease(self._now(), standing, instance)
        is_lost = standing == "lost"
        if is_lost and self._stopping is None and self.lease is not None:
            text = f"{self.who.identity} has lost its lease: another instance has taken over"
            self.stop(LeaseError(self.lease.foreign() or text))
        return not is_lost

    def admits(self, at_hand: int = 0) -> bool:
        """Return whether this instance answers a received request.

        If the lease lapsed and no instance took over, callers were notified that the component is
        gone: the requests that its topics store now are dropped, also those that were not fetched
        yet. A component that was running meanwhile, and could not confirm its lease, first answers
        the available ones as not run.
        """
        if not self.check_lease():
            return False
        lapses = self._lapses if self.lease is None else self.lease.lapses
        regained = self._is_unconfirmed
        if regained:
            if at_hand or not self._holds_lease():
                return True
            self._dispatcher.poll()
        slept = lapses != self._lapses
        if slept:
            self._lapses = lapses
            dropped = self._dispatcher.skip(self._is_cancellation, self._dropped) + at_hand
            self.component.log.warning("the lease had lapsed; %d requests are dropped", dropped)
        if regained:
            self._is_unconfirmed = False
            self.begin()
        return not slept

    def _is_cancellation(self, source: CallbackSubscription, sample: Sample[Any]) -> bool:
        """Return whether a request is a cancellation: it is processed, however late it arrives."""
        command, _ = self._sources[source]
        return command is None and bool(sample.value["action"] == "cancel")

    def _dropped(self, count: int) -> None:
        self.component.log.warning("%d more requests that were stored are dropped", count)

    def _holds_lease(self) -> bool:
        return self.lease is not None and self.lease.standing()[0] == "held"

    def _received(self, command: _Command, sample: Sample[Any], refused: str | None = None) -> None:
        if not self.admits(1):
            return
        value, refusal, head = self._decoded(command, sample)
        refusal = refused or refusal
        time, no_time = self._stream_time(command, value)
        call = self.controller.received(
            self._now(),
            sample,
            command.topic.name,
            head,
            time,
            refusal or no_time,
            "" if value is None else command.arguments(sample.payload),
        )
        self._calls[call] = _Call(command, value)

    def _answer(self, command: _Command, event: Undecodable) -> None:
        """Reject a command that cannot be decoded, or lacks fields; its head names the sender."""
        if event.sample.schema_id == command.topic.schema.id:
            # Converted: its values are known, for its signature and for the audit.
            self._received(command, event.sample, f"{command.topic.topic}: {event.reason}")
            return
        head = self._head(command, event.payload)
        if self.admits(1):
            name, now = command.topic.name, self._now()
            call = self.controller.received(now, event.sample, name, head, None, event.reason, "")
            self._calls[call] = _Call(command, None)

    @staticmethod
    def _head(command: _Command, payload: bytes) -> tuple[int, str, int]:
        names = command.topic.schema.field_names
        first = command.topic.schema.decode_first(payload, names.index(_LAST) + 1)
        known = dict(zip(names, first, strict=False))
        return known[_NUMBER], known[_IDENTITY], known[_LAST]

    def _decoded(
        self, command: _Command, sample: Sample[Any]
    ) -> tuple[Any, str | None, tuple[int, str, int]]:
        """Return the values, the reason to reject them if any, and sender and number."""
        try:
            value = sample.value
            object.__setattr__(value, "private_rcvStamp", self.bus._raw.stamps()[0])
        except DecodeError as error:
            return None, str(error), self._head(command, sample.payload)
        head = (value.private_seqNum, value.private_identity, value.private_origin)
        return value, command.checks.refusal(sample.payload), head

    @staticmethod
    def _stream_time(command: _Command, value: Any) -> tuple[int | None, str | None]:
        """Return the time of a stream's command, or why it has none and must not run."""
        stream = command.options.stream
        if stream is None or value is None:
            return None, None
        seconds = float(getattr(value, stream.field))
        if not abs(seconds) < _SECONDS_MAX:
            return None, f"{stream.field} is {seconds:g}, which is not a valid time"
        return round(seconds * 1e9), None

    def _control(self, sample: Sample[Any]) -> None:
        """Process a request of the topic `control`."""
        asked = sample.value
        if not self.admits(1):
            return
        if asked["action"] == "cancel":
            # The command to cancel may be unread in its own topic.
            self._dispatcher.poll()
        value, refusal, arguments = None, None, ""
        command = self.commands.get(asked["command"])
        if asked["action"] == "validate" and command is not None:
            try:
                value, refusal, arguments = self._embedded(command, sample, asked["payload"])
            except HelioError as error:
                refusal = str(error)
        time, no_time = (None, None) if command is None else self._stream_time(command, value)
        call = self.controller.control(
            self._now(),
            sample,
            asked,
            time,
            refusal or no_time,
            arguments,
        )
        self._calls[call] = _Call(command, value)

    @staticmethod
    def _embedded(
        command: _Command, sample: Sample[Any], payload: bytes
    ) -> tuple[Any, str | None, str]:
        """Return the command inside a control request, in this interface's schema."""
        if command.raw is not None:
            payload = command.raw.resolve(sample, payload)
        value = command.topic.schema.decode(payload)
        return value, command.checks.refusal(payload), command.arguments(payload)

    def _event(self, command: _Command | None, event: Any) -> None:
        """Process an event of a command subscription that is not a sample."""
        name = "control" if command is None else command.topic.name
        if isinstance(event, Gap) and command is not None:
            self.controller.lost(name, event.lost)
        if isinstance(event, Undecodable) and command is not None:
            with contextlib.suppress(DecodeError):
                self._answer(command, event)
                return
        if isinstance(event, (Gap, Undecodable)):
            self.component.log.warning("a command %s was not received: %s", name, event)

    def tick(self) -> None:
        """Process the passing of time."""
        if self.bus._closed:
            return
        self.controller.tick(self._now())
        self._drain()

    # Effects.

    def _drain(self) -> None:
        self._carry_out()
        if self._changed:
            # No hook of a command reports this change.
            self._changed = False
            self.spawn(self._notify_state())
        self._schedule()

    def _carry_out(self) -> None:
        for effect, *rest in self.controller.effects():
            getattr(self, f"_on_{effect}")(*rest)

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.controller.wake_at()
        if due is not None and self._stopping is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, (due - self._now()) * 1e-9), self.tick)

    def _on_run(self, number: int) -> None:
        call = self._calls[number]
        assert call.command is not None, "only commands are run"
        assert call.command.handler is not None, "one without a handler is refused"
        work = partial(self._handle, call.command.handler, call.value)
        self._begin_task(number, call, self._taken_up(number, work))

    def _on_validate(self, number: int) -> None:
        call = self._calls[number]
        check = None if call.command is None else call.command.validate
        work = partial(self._check, check, call.value)
        self._begin_task(number, call, self._taken_up(number, work))

    def _begin_task(self, number: int, call: _Call, work: Any) -> None:
        self._by_value[id(call.value)] = number
        call.task = self.spawn(work)
        call.task.add_done_callback(partial(self._on_handler_end, number))

    async def _taken_up(self, number: int, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a handler or a check, unless the call has ended in the meantime."""
        # This task may have waited long for other tasks of the loop.
        self.check_lease()
        return await work() if self.controller.take_up(self._now(), number) else None

    @staticmethod
    async def _handle(handler: Callable[[Any], Any], value: Any) -> Any:
        outcome = handler(value)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _check(self, check: Callable[[Any], Any] | None, value: Any) -> str:
        if check is not None:
            told = await self._handle(check, value)
            return told if isinstance(told, str) else "valid"
        return "valid"

    def _on_begin(self, number: int, command: str, _old: int, _new: int) -> None:
        call = self._calls[number]
        self._by_value[id(call.value)] = number
        work = partial(self.component._begin_state, command, call.value)
        call.task = self.spawn(self._taken_up(number, work))
        call.task.add_done_callback(partial(self._on_begin_end, number))

    def _on_end(self, number: int, command: str, old: int, _new: int) -> None:
        self._changed = False
        call = self._calls[number]
        self._by_value[id(call.value)] = number
        call.task = self.spawn(self.component._end_state(command, State(old), call.value))
        call.task.add_done_callback(partial(self._on_handler_end, number))

    def _on_discard(self, number: int) -> None:
        self._forget(number)

    def _on_interrupt(self, number: int) -> None:
        call = self._calls.get(number)
        if call is not None and call.task is not None:
            call.task.cancel()

    def _on_ack(self, address: tuple[Any, ...], said: tuple[Any, ...]) -> None:
        sequence, identity, origin, trace, command = address
        code, error, result, timeout, headers = said
        known = None if command is None else self.commands.get(command)
        kind, acks = self._ack_type, self._acks
        assert kind is not None, "every component has acknowledgements"
        assert acks is not None, "it is open"
        sent, utc = self.bus._raw.stamps()
        value = {
            "private_sndStamp": sent,
            "private_efdStamp": utc,
            "private_kafkaStamp": sent,
            "private_seqNum": sequence,
            "private_revCode": kind.revcode,
            "private_identity": self.who.identity,
            "private_origin": self.who.origin,
            "ack": code,
            "error": error,
            "result": result,
            "identity": identity,
            "origin": origin,
            "cmdtype": -1 if known is None else known.number,
            "timeout": timeout,
        }
        key = None
        if self.interface.indexed:
            value["salIndex"] = self.who.index
            key = kind.schema.key(self.who.index)
        policy = self._final_ack_policy if AckCode(code).final else self._progress_ack_policy
        self.sender.send(
            acks, value, publish_options(key=key, trace=trace, headers=headers), policy
        )

    def _on_answer(self, number: int, code: int, text: str) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result((code, text))

    def _on_state(self, state: int) -> None:
        self._changed = True
        self.put("summaryState", summaryState=state)

    def _on_audit(self, entry: dict[str, Any]) -> None:
        assert self._audit is not None, "it is open"
        value = {**entry, "component": self.interface.name, "index": self.who.index}
        # Also without the lease: the commands that ran until its loss are recorded.
        self.sender.send(self._audit, value, policy=self._audit_policy)

    def _on_error(self, code: int, report: str) -> None:
        self.put("errorCode", errorCode=code, errorReport=report, traceback="")

    def _on_warn(self, text: str) -> None:
        self.component.log.warning("%s", text)

    def _on_quit(self) -> None:
        self.stop(None)

    # How handlers end.

    def _on_handler_end(self, number: int, task: asyncio.Task[Any]) -> None:
        self._forget(number)
        failure = self._failure(task)
        if failure is None:
            try:
                text, typed = _outcome(task.result())
                self.controller.done(self._now(), number, text, typed)
            except (TypeError, ValueError, HelioError) as error:
                self.component.log.exception("the result of a handler cannot be sent")
                self.controller.failed(self._now(), number, FAILED, 1, f"no result: {error}")
        else:
            self.controller.failed(self._now(), number, *failure)
        self._drain()

    def _on_begin_end(self, number: int, task: asyncio.Task[Any]) -> None:
        self.controller.begun(self._now(), number, self._failure(task))
        self._drain()
        call = self._calls.get(number)
        if call is not None and call.task is task:
            # No end hook follows: the call has failed.
            self._forget(number)

    def _failure(self, task: asyncio.Task[Any]) -> tuple[str, int, str] | None:
        """Return a handler's failure; an unexpected error is logged with its traceback."""
        if task.cancelled():
            return (ABORTED, 0, "cancelled")
        error = task.exception()
        if error is None:
            return None
        if isinstance(error, ExpectedError):
            return (FAILED, error.code, encodable(error))
        if isinstance(error, TimeoutError):
            return (TIMED_OUT, 0, encodable(error) or "timed out")
        self.component.log.error("a handler failed", exc_info=error)
        return (FAILED, 1, encodable(f"{type(error).__name__}: {error}"))

    def _forget(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            self._by_value.pop(id(call.value), None)

    async def fault(self, code: int, report: str) -> None:
        """Go to FAULT, and notify the component."""
        self.controller.fault(self._now(), code, report)
        self._carry_out()
        self._changed = False
        self._schedule()
        await self._notify_state()

    async def _notify_state(self) -> None:
        try:
            await self.component.handle_summary_state()
        except Exception:
            self.component.log.exception("handle_summary_state failed")

    # Calls of the component.

    def in_progress(
        self, value: Any, timeout: float, text: str, progress: float | None, result: Any
    ) -> None:
        """Report the progress of a running command to its caller."""
        number = self._by_value.get(id(value))
        if number is None:
            raise RuntimeError("in_progress: this command is not running")
        typed = None if result is None else _dump(result)
        self.controller.progress(self._now(), number, timeout, text, progress, typed)
        self._drain()

    def put(self, event: str, *, force: bool = False, **fields: Any) -> bool:
        """Write one of the engine's events, if the interface has it."""
        topic = self.events.get(event)
        if topic is None or not topic.is_open:
            return False
        return topic.put(self.sender, force=force, keep=event not in DISCARDABLE_EVENTS, **fields)

    def beat(self) -> None:
        """Write the heartbeat, unless one is queued: a late heartbeat has no value."""
        topic = self.events.get("heartbeat")
        if topic is not None and not topic.is_held_up(self.sender):
            self.put("heartbeat", force=True)

    def _on_queue(self, queue: TopicQueue) -> None:
        """Process the start or the end of a queue."""
        if queue.ack_order is AckOrder.AUDIT:
            # Deferred, because effects may be executing.
            asyncio.get_running_loop().call_soon(self._check_audit)
        if queue.discarded + queue.shed and not self.sender.is_queued(queue.topic):
            name, discarded, shed = queue.topic.name, queue.discarded, queue.shed
            text = "%s could not be published: %d discarded, %d over the limit"
            # Records about the topic of log messages must not go to that topic.
            log = _SEND_LOG if queue.ack_order is AckOrder.UNORDERED else self.component.log
            log.warning(text, name, discarded, shed)

    def _check_audit(self) -> None:
        assert self._audit is not None, "it is open"
        if self._stopping is not None:
            return
        if self.sender.is_queued(self._audit):
            self.controller.audit_lost(self._now())
        else:
            self.controller.audit_back()
        self._drain()

    async def ask(self, command: str, **fields: Any) -> None:
        """Run a state command as if it had been received; for the component's own use.

        Raises :class:`ExpectedError` if it fails.
        """
        known = self.commands.get(command)
        if known is None:
            raise ExpectedError(f"{self.interface.name} has no command {command}")
        current = asyncio.current_task()
        for other in self._calls.values():
            if other.task is current and other.command is not None:
                running = other.command.topic.name
                if running in STATE_COMMANDS:
                    raise RuntimeError(
                        f"{command} cannot be awaited in the hooks of {running}: it would wait for "
                        "itself; start a task for it"
                    )
        value = known.topic.data_type(**fields)
        number = self.controller.ask(self._now(), command)
        self._calls[number] = _Call(known, value)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._drain()
            code, text = await waiting
        finally:
            del self._waiting[number]
        if code != AckCode.COMPLETE:
            raise ExpectedError(text)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Start a task that the component keeps until it ends."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # Ending.

    def stop(self, error: BaseException | None) -> asyncio.Task[None]:
        """End the component; one of its own tasks may call this."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(error))
        return self._stopping

    async def _stop(self, error: BaseException | None) -> None:
        try:
            for step in (self._end_calls, self._close_tasks, self._release_topics):
                try:
                    await step()
                except Exception:
                    self.component.log.exception("a step of closing failed; the others follow")
        finally:
            # The lease is released last: then another instance may run.
            lease, self.lease = self.lease, None
            try:
                if lease is not None:
                    await in_thread(lease.release)
            finally:
                if not self.done.done():
                    if error is None:
                        self.done.set_result(None)
                    else:
                        self.done.set_exception(error)

    async def _end_calls(self) -> None:
        self._dispatcher.close()
        self.controller.close(self._now())
        self._carry_out()
        if self._timer is not None:
            self._timer.cancel()
        running = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_TIMEOUT_S)
            # Their callbacks run in the next iteration of the loop.
            await asyncio.sleep(0)
        self.controller.give_up(self._now())
        self._carry_out()

    async def _close_tasks(self) -> None:
        # A separate task: it may be cancelled or hang, and the lease must be released anyway.
        closing = asyncio.ensure_future(self.component.close_tasks())
        done, _ = await asyncio.wait([closing], timeout=STOP_TIMEOUT_S)
        if not done:
            closing.cancel()
            self.component.log.error(
                "close_tasks takes more than %g s; closing continues", STOP_TIMEOUT_S
            )
        elif closing.cancelled():
            self.component.log.error("close_tasks was cancelled: it awaited a cancelled task?")
        elif (failure := closing.exception()) is not None:
            self.component.log.error("close_tasks failed", exc_info=failure)

    async def _release_topics(self) -> None:
        self.component._release_topics()
        if not self.bus._closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.sender.drained(), STOP_TIMEOUT_S)
        self.sender.close()


REOPEN_INTERVAL_S = 1.0
"""The retry interval of a subscription that cannot be read."""

STOP_TIMEOUT_S = 5.0
"""The timeout of an ending component for its tasks, for `close_tasks` and for its queues, each."""

_SECONDS_MAX = 9e9
"""The latest time in TAI seconds, the year 2255: slightly less than 64 bits of nanoseconds."""

_KINDS = ("command", "event", "telemetry", "ackcmd")
_NUMBER, _IDENTITY, _LAST = "private_seqNum", "private_identity", "private_origin"

_NOT_STARTED = "it has not started"
_LOST = "its lease is lost, and another instance may run"
_ENDED = "it has ended, and its lease is given back"


def _title(command: _Command | None) -> str:
    return "control requests" if command is None else f"commands {command.topic.name}"


def checks_of(topic: TopicType, options: CommandOptions) -> Checks:
    """Return the checks of a command's values.

    Raises :class:`TypeError` if a limit names an unknown field or one that is not a number.
    """
    names = [*options.limits, *(n for n in options.refuse_nan if n not in options.limits)]
    none = (None, None)
    limits = [(n, *options.limits.get(n, none), n in options.refuse_nan) for n in names]
    stream = options.stream
    if stream is not None and stream.field not in topic.data_type._public:
        raise TypeError(f"{topic!r} has no field {stream.field!r} to be a stream's time")
    try:
        return Checks(topic.schema, limits)
    except ValueError as error:
        raise TypeError(f"limits of {topic!r}: {error}") from None


def _outcome(result: Any) -> tuple[str, str | None]:
    """Return a handler's result as text and as JSON."""
    if result is None:
        return "", None
    if isinstance(result, str):
        return encodable(result), None
    typed = _dump(result)
    if len(typed) > TYPED_BYTES_MAX:
        return (
            f"Done; its result of {len(typed)} bytes is not told: at most {TYPED_BYTES_MAX} can be",
            None,
        )
    return "", typed


def _dump(value: Any) -> str:
    return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")
