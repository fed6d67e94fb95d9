"""A client's handle to a component: its commands, events and telemetry."""

from __future__ import annotations

import asyncio
import getpass
import math
import os
import socket
from functools import cache
from typing import TYPE_CHECKING, Any

from heliograph._component._caller import CallerEngine
from heliograph._component._codes import Ack, AckCode, State
from heliograph._component._data import given
from heliograph._component._interface import find_interface
from heliograph._component._topics import ReadTopic, missing_fields, unknown_field
from heliograph._errors import ExpectedError, NobodyThere, WaitTimeout
from heliograph._heliograph import (
    PRESENCE_POLL_INTERVAL_S,
    STATE_TIMEOUT_S,
    STREAM_LEAD_S,
    sends_defaults,
    state_path,
)
from heliograph._heliograph import make_caller_key as _make_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from types import TracebackType
    from typing import Literal, Self

    from heliograph._bus import Bus
    from heliograph._common import Evolution
    from heliograph._component._call import CommandCall
    from heliograph._component._data import Enums, TopicData
    from heliograph._component._interface import TopicType


class RemoteCommand:
    """A command of a remote component: ``await remote.cmd_move.set_start(azimuth=10.0)``.

    It is sent with a value for every field, unless the interface declares a default for it. Zeros
    are values; a field that was not set, or to None, has none.
    """

    def __init__(self, calling: CallerEngine, topic: TopicType, sends_defaults: bool) -> None:
        self.type = topic
        self._calling = calling
        self._sends_defaults = sends_defaults
        self._names = frozenset(field.name for field in topic.info.fields)
        self._stream: str | None = None
        self.data: TopicData = topic.data_type()
        """The value that :meth:`start` sends; change it with :meth:`set` or by its attributes."""

    def __repr__(self) -> str:
        return f"<{self.type.attribute} of {self._calling.name}>"

    @property
    def data_type(self) -> type[TopicData]:
        """The class of its values."""
        return self.type.data_type

    def set(self, **fields: Any) -> None:
        """Set fields of the value that :meth:`start` sends.

        Raises :class:`EncodeError`, which names an unknown field or one whose value does not fit.
        """
        made = self._made(fields)
        for name, value in fields.items():
            if value is not None:
                setattr(self.data, name, getattr(made, name))

    def _made(self, fields: dict[str, Any]) -> TopicData:
        if not self._names.issuperset(fields):
            stranger = next(name for name in fields if name not in self._names)
            raise unknown_field(self.type, stranger)
        self.type.check(fields)
        made = self.type.data_type(**{k: v for k, v in fields.items() if v is not None})
        self._check(made)
        return made

    def _whole(self, value: TopicData) -> TopicData:
        """Return a value whose required fields were all set."""
        known = given(value)
        if known is not None and not self._sends_defaults:
            missing = [name for name in self.type.required if name not in known]
            if missing:
                raise missing_fields(self.type, missing)
        return value

    def _check(self, value: TopicData) -> None:
        # The component checks fields that are not set: SAL's own callers send 0 then, whatever the
        # labels are.
        kind, known = self.type, given(value)
        unset = [] if known is None else [name for name in self._names if name not in known]
        refusal = kind.checks.refusal(kind.schema.encode(value), unset)
        if refusal is not None:
            raise kind.refused(refusal)

    def stream(self, field: str) -> None:
        """Set the field that has each command's time, in TAI seconds.

        A command sent less than 50 ms before its time is logged and counted: ``remote.late_sent``.
        """
        if field not in self._names:
            raise unknown_field(self.type, field)
        self._stream = field

    def set_start(
        self,
        *,
        timeout: float | None = None,
        expiry: float | None = None,
        key: str | None = None,
        validate: bool = False,
        wait_done: bool = True,
        progress: Callable[[Ack], object] | None = None,
        **fields: Any,
    ) -> CommandCall:
        """Send the command with these values of its fields. Await the result.

        ``timeout`` is the time in seconds to wait for the end; the default is the protocol's. Each
        acknowledgement that the command is in progress extends the wait to its own estimate plus
        this timeout. ``expiry`` is the time in seconds after which the command must not run.
        ``key`` is an idempotency key: commands with the same key run once. With ``validate`` the
        component only checks the command. Without ``wait_done``, awaiting ends at the first
        acknowledgement. ``progress(ack)`` is called for each acknowledgement that is not final.

        Raises :class:`EncodeError`, which names a field that does not fit or was left out, or
        ValueError for an invalid time or key; then nothing is sent. Awaiting raises a
        :class:`CommandError`. A field with the name of one of these options is set by :meth:`set`
        or ``data``, and sent by :meth:`start`.
        """
        value = self._whole(self._made(fields))
        return self._send(value, timeout, expiry, key, validate, wait_done, progress)

    def start(
        self,
        data: TopicData | None = None,
        *,
        timeout: float | None = None,
        expiry: float | None = None,
        key: str | None = None,
        validate: bool = False,
        wait_done: bool = True,
        progress: Callable[[Ack], object] | None = None,
    ) -> CommandCall:
        """Send ``data``, by default the fields that were set; see :meth:`set_start`."""
        value = self.data if data is None else data
        self._check(self._whole(value))
        value = value.__copy__()
        return self._send(value, timeout, expiry, key, validate, wait_done, progress)

    def _send(
        self,
        value: TopicData,
        timeout: float | None,
        expiry: float | None,
        key: str | None,
        validate: bool,
        wait_done: bool,
        progress: Callable[[Ack], object] | None,
    ) -> CommandCall:
        time = None
        if self._stream is not None:
            seconds = float(getattr(value, self._stream))
            time = round(seconds * 1e9) if math.isfinite(seconds) else None
        return self._calling.send(
            self.type,
            "validate" if validate else "run",
            value,
            timeout=timeout,
            expiry=expiry,
            key=key,
            time=time,
            until_done=wait_done,
            progress=progress,
        )


class Remote:
    """A client's handle to a component: send ``cmd_…``, read ``evt_…`` and ``tel_…``.

    ::

        async with heliograph.Remote(bus, "MTMount") as mount:
            await mount.cmd_moveToTarget.set_start(azimuth=10.0, elevation=70.0, timeout=60)
            print(mount.evt_summaryState.get(), mount.tel_azimuth.get())

    ``name`` is the component's name, or ``name:index``. With the index 0, the events and telemetry
    of all instances of an indexed component are read. Creating a remote is cheap: topics are opened
    at their first use. ``identity`` is the sender of commands
    (user@host by default; a component gives its own name), ``caller`` the one on whose behalf they
    are sent. ``caller_key`` is the file with the caller's private key, which signs the commands:
    see :func:`make_caller_key`. ``evolution`` is the required compatibility of the schemas: see
    :meth:`heliograph.Bus.topic`.

    ``missing_fields`` decides about commands with fields that were left out: ``refuse`` does not
    send them; ``default`` sends zeros, as SAL's own callers do, and a device moves to 0. Without it
    the environment's ``HELIO_MISSING_FIELDS`` decides, else they are refused.
    """

    def __init__(
        self,
        bus: Bus,
        name: str,
        index: int | None = None,
        *,
        interface: Any = None,
        identity: str | None = None,
        caller: str | None = None,
        caller_key: str | PathLike[str] | None = None,
        stream_lead: float = STREAM_LEAD_S,
        evolution: Evolution | None = None,
        missing_fields: Literal["refuse", "default"] | None = None,
    ) -> None:
        name, colon, number = name.partition(":")
        if colon and (index is not None or not number.isdigit()):
            raise ValueError(f"{name}:{number} is not a component's name with its index")
        self.index = int(number) if colon else (index or 0)
        self._interface = find_interface(interface, name, evolution)
        if self.index < 0 or (self.index and not self._interface.indexed):
            raise ValueError(f"{name} has no index {self.index}")
        self._sends_defaults = sends_defaults(missing_fields)
        self.bus = bus
        self._opened = bus._raw.now_ns()
        who = identity or user_at_host()
        self._calling = CallerEngine(
            bus, self._interface, self.index, who, caller, stream_lead, caller_key
        )

    def __repr__(self) -> str:
        return f"<Remote {self._calling.name} on {self.bus.url}>"

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        topic = self._interface.get(attribute)
        if topic is None:
            raise AttributeError(f"{self._interface!r} has no {attribute}")
        made: Any
        if topic.kind == "command":
            made = RemoteCommand(self._calling, topic, self._sends_defaults)
        else:
            made = ReadTopic(self.bus, topic, self.index, self._opened)
        # Later accesses find the attribute without this call.
        self.__dict__[attribute] = made
        return made

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._interface.attributes]

    @property
    def name(self) -> str:
        """The component's name."""
        return self._interface.name

    @property
    def enums(self) -> Enums:
        """The enumerations of its interface: ``remote.enums.AxisState.Moving``."""
        return self._interface.enums

    @property
    def late_sent(self) -> int:
        """The number of stream commands that were sent too late before their time."""
        return self._calling.late_sent

    def presence(self) -> str:
        """Query the component's presence: ``here``, ``gone`` or ``unknown``.

        A component without a lease is unknown: it is not one of ours. During an outage of the bus
        every component is unknown. The loop stands still for as long as the bus takes to answer;
        :meth:`apresence` does not block it.
        """
        known = self._calling.presence()
        return "unknown" if known == "away" else known

    async def apresence(self) -> str:
        """Query the presence without blocking the loop; see :meth:`presence`."""
        known = await self._calling.apresence()
        return "unknown" if known == "away" else known

    def lock(self, seconds: float, *, timeout: float | None = None) -> CommandCall:
        """Lock the component for this caller, for that many seconds (at most an hour)."""
        return self._calling.send(None, "lock", None, argument=float(seconds), timeout=timeout)

    def unlock(self, *, timeout: float | None = None) -> CommandCall:
        """Release the lock: the component accepts commands of all callers again."""
        return self._calling.send(None, "unlock", None, timeout=timeout)

    def close(self) -> None:
        """Close all topics and end all waits."""
        for made in list(self.__dict__.values()):
            if isinstance(made, ReadTopic):
                made.close()
        self._calling.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def set_summary_state(
    remote: Remote, state: State, override: str = "", *, timeout: float = STATE_TIMEOUT_S
) -> list[State]:
    """Bring a component to a state by the fewest commands; return the states on the way.

    ``override`` is the configuration of the command start, ``timeout`` the limit of each command in
    seconds.

    Raises :class:`CommandError` if a command fails or the component is not running,
    :class:`WaitTimeout` if it reports no state, :class:`ExpectedError` if no command leads there.
    """
    if await _presence(remote, timeout) == "gone":
        # Its last published state is no longer valid.
        text = f"nobody there: {remote.name} is not running"
        raise NobodyThere(text, Ack(AckCode.NO_ACK, 0, text, 0.0, None, None))
    states = [await _current_state(remote, timeout)]
    commands = state_path(int(states[0]), int(state))
    if commands is None:
        raise ExpectedError(f"no command leads from {states[0].name} to {State(state).name}")
    for command in commands:
        fields = {"configurationOverride": override} if command == "start" else {}
        await getattr(remote, f"cmd_{command}").set_start(timeout=timeout, **fields)
        states.append(_AFTER[command])
    return states


async def _presence(remote: Remote, timeout: float) -> str:
    """Query a component's presence; retry until the timeout while the bus does not answer."""
    now = asyncio.get_running_loop().time
    until = now() + timeout
    while (known := await remote._calling.apresence()) == "away":
        if now() >= until:
            raise WaitTimeout(
                f"the bus did not report within {timeout} s whether {remote.name} runs"
            )
        await asyncio.sleep(PRESENCE_POLL_INTERVAL_S)
    return known


async def _current_state(remote: Remote, timeout: float) -> State:
    """Return the last state of the live instance; wait for its first one.

    The last state of an earlier instance does not count.
    """
    topic, now = remote.evt_summaryState, asyncio.get_running_loop().time
    until = now() + timeout
    while True:
        told = await topic._first(max(0.0, until - now()))
        if await _presence(remote, until - now()) != "here" or await topic._is_of_living(told):
            return State(told.value.summaryState)
        if now() >= until:
            raise WaitTimeout(f"{remote.name} runs and published no state within {timeout} s")
        await topic._wait_newer(min(PRESENCE_POLL_INTERVAL_S, until - now()))


_AFTER = {
    "start": State.DISABLED,
    "enable": State.ENABLED,
    "disable": State.DISABLED,
    "standby": State.STANDBY,
    "exitControl": State.OFFLINE,
    "enterControl": State.STANDBY,
}


def make_caller_key(path: str | PathLike[str]) -> str:
    """Make a private key for a caller in a new file; return the public key.

    Only its owner may read the file: it is what proves the caller. The public key is for the
    authorization file, under ``keys``. ``openssl genpkey -algorithm ed25519`` makes such files.

    Raises OSError, also if the file exists.
    """
    return _make_key(path)


@cache
def user_at_host() -> str:
    """Return the user and host of this program, SAL's identity of a caller without a component."""
    try:
        user = os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        user = "user"
    return f"{user}@{socket.gethostname()}"
