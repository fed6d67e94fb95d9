"""A component as others see it: its commands to send, its events and telemetry to read."""

from __future__ import annotations

import asyncio
import getpass
import math
import os
import socket
from functools import cache
from typing import TYPE_CHECKING, Any

from heliograph._component._caller import Calling
from heliograph._component._codes import Ack, AckCode, State
from heliograph._component._data import same
from heliograph._component._interface import find_interface
from heliograph._component._topics import ReadTopic, unknown_field
from heliograph._errors import ExpectedError, NobodyThere, WaitTimeout
from heliograph._heliograph import state_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from heliograph._bus import Bus
    from heliograph._common import Evolution
    from heliograph._component._call import CommandCall
    from heliograph._component._data import Enums, TopicData
    from heliograph._component._interface import TopicType

LOOK_S = 0.05
"""How often it is looked whether a component is still there while its state is waited for."""

STATE_TIMEOUT_S = 60.0
"""How long a change of state may take where nothing is said: configuring takes a while."""


class RemoteCommand:
    """A command of a component elsewhere: ``await remote.cmd_move.set_start(azimuth=10.0)``."""

    def __init__(self, calling: Calling, topic: TopicType) -> None:
        self.type = topic
        self._calling = calling
        self._names = frozenset(field.name for field in topic.info.fields)
        self._stream: str | None = None
        self.data: TopicData = topic.data_type()
        """What :meth:`start` sends: to be changed by :meth:`set` or field by field."""

    def __repr__(self) -> str:
        return f"<{self.type.attribute} of {self._calling.name}>"

    @property
    def data_type(self) -> type[TopicData]:
        """The class of its values."""
        return self.type.data_type

    def set(self, **fields: Any) -> None:
        """Set fields of what :meth:`start` sends.

        Raises :class:`EncodeError` naming the field that is not there, or whose value does not fit.
        """
        made = self._made(fields)
        for name in fields:
            object.__setattr__(self.data, name, getattr(made, name))

    def _made(self, fields: dict[str, Any]) -> TopicData:
        if not self._names.issuperset(fields):
            stranger = next(name for name in fields if name not in self._names)
            raise unknown_field(self.type, stranger)
        self.type.check(fields)
        made = self.type.data_type(**{k: v for k, v in fields.items() if v is not None})
        self._check(made)
        return made

    def _check(self, value: TopicData) -> None:
        # What nobody set is the component's to judge: SAL's own callers send 0 then, whatever the
        # labels are.
        kind = self.type
        defaults = kind.data_type()
        unset = [n for n in kind.unlabelled if same(getattr(value, n), getattr(defaults, n))]
        refusal = kind.checks.refusal(kind.schema.encode(value), unset)
        if refusal is not None:
            raise kind.refused(refusal)

    def stream(self, field: str) -> None:
        """Say which field has the time that each command is for, in TAI seconds.

        One that is sent less than 50 ms before it is warned of and counted: ``remote.late_sent``.
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
        """Send the command, fields that are not given at their defaults; await what it returns.

        ``timeout`` is how many seconds to wait for the end, or for an acknowledgement that says how
        long it takes (10). ``expiry`` is after how many seconds it must not be run any more.
        ``key`` is a name for what is asked: it is done once, however often it is sent under it.
        With ``validate`` the component says whether it would run it, and does not. Without
        ``wait_done`` awaiting ends at the first acknowledgement. ``progress(ack)`` is called for
        each that is not final.

        Raises :class:`EncodeError` naming a field that does not fit, and ValueError for times and
        keys that are none: then nothing is sent. Awaiting raises a :class:`CommandError`.
        """
        return self._send(self._made(fields), timeout, expiry, key, validate, wait_done, progress)

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
        """Send ``data``, or what was set; see :meth:`set_start`."""
        value = self.data if data is None else data
        self._check(value)
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
            ("validate" if validate else "run", 0.0),
            value,
            timeout=timeout,
            expiry=expiry,
            key=key,
            time=time,
            until_done=wait_done,
            progress=progress,
        )


class Remote:
    """A component elsewhere: ``cmd_…`` to send, ``evt_…`` and ``tel_…`` to read.

    ::

        async with heliograph.Remote(bus, "MTMount") as mount:
            await mount.cmd_moveToTarget.set_start(azimuth=10.0, elevation=70.0, timeout=60)
            print(mount.evt_summaryState.get(), mount.tel_azimuth.get())

    ``name`` is the component's, or ``name:index``. With the index 0 an indexed component's events
    and telemetry of all indices are read. Making one costs little: topics are opened when they are
    first used, which takes up to milliseconds. ``identity`` is who sends commands (user@host unless
    given; a component gives its own name), ``caller`` on whose behalf. ``evolution`` is what must
    hold between the schemas here and there: see :meth:`heliograph.Bus.topic`.
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
        stream_lead: float = 0.05,
        evolution: Evolution | None = None,
    ) -> None:
        name, colon, number = name.partition(":")
        if colon and (index is not None or not number.isdigit()):
            raise ValueError(f"{name}:{number} is no component's name with its index")
        self.index = int(number) if colon else (index or 0)
        self._interface = find_interface(interface, name, evolution)
        if self.index < 0 or (self.index and not self._interface.indexed):
            raise ValueError(f"{name} has no index {self.index}")
        self.bus = bus
        self._opened = bus._raw.now_ns()
        self._calling = Calling(
            bus, self._interface, self.index, identity or user_at_host(), caller, stream_lead
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
            made = RemoteCommand(self._calling, topic)
        else:
            made = ReadTopic(self.bus, topic, self.index, self._opened)
        # From now on it is found without coming here.
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
        """Number of commands of streams that were sent too short a time before their time."""
        return self._calling.late_sent

    def presence(self) -> str:
        """Look whether the component is there: ``here``, ``gone``, or ``unknown``.

        Unknown is what has never had a lease: it is no component of ours. So is everybody while the
        bus does not answer.
        """
        known = self._calling.presence()
        return "unknown" if known == "away" else known

    def lock(self, seconds: float, *, timeout: float | None = None) -> CommandCall:
        """Have the component take commands of this caller only, for so long (at most an hour)."""
        return self._calling.send(None, ("lock", float(seconds)), None, timeout=timeout)

    def unlock(self, *, timeout: float | None = None) -> CommandCall:
        """Have the component take commands of everybody again."""
        return self._calling.send(None, ("unlock", 0.0), None, timeout=timeout)

    def close(self) -> None:
        """Let go of all topics; whoever waits is told."""
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
    """Bring a component to a state by the fewest commands; return the states it went through.

    ``override`` is the configuration that it starts with, ``timeout`` the seconds that each command
    may take.

    Raises :class:`CommandError` where one fails or nobody is there, :class:`WaitTimeout` where the
    component tells no state, :class:`ExpectedError` where no command leads to the state.
    """
    if await _presence(remote, timeout) == "gone":
        # The state that it told last is not its state any more.
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
    """Look whether a component is there; a bus that does not answer is asked again, for so long."""
    now = asyncio.get_running_loop().time
    until = now() + timeout
    while (known := remote._calling.presence()) == "away":
        if now() >= until:
            raise WaitTimeout(f"the bus has not told within {timeout} s whether {remote.name} runs")
        await asyncio.sleep(LOOK_S)
    return known


async def _current_state(remote: Remote, timeout: float) -> State:
    """Return the state that the instance which is there told last, waiting for its first one.

    What one before it said last, when it died, is no state of this one's.
    """
    topic, now = remote.evt_summaryState, asyncio.get_running_loop().time
    until = now() + timeout
    while True:
        told = await topic.aget(timeout=max(0.0, until - now()))
        if await _presence(remote, until - now()) != "here" or topic._is_of_living():
            return State(told.summaryState)
        if now() >= until:
            raise WaitTimeout(f"{remote.name} is there, and told no state within {timeout} s")
        await topic._wait_newer(min(LOOK_S, until - now()))


_AFTER = {
    "start": State.DISABLED,
    "enable": State.ENABLED,
    "disable": State.DISABLED,
    "standby": State.STANDBY,
    "exitControl": State.OFFLINE,
    "enterControl": State.STANDBY,
}


@cache
def user_at_host() -> str:
    """Return who runs this program, as SAL names whoever is no component."""
    try:
        user = os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        user = "user"
    return f"{user}@{socket.gethostname()}"
