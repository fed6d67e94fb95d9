"""Components in the tests of applications: with a remote, on a bus in memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from heliograph._component._codes import State
from heliograph._component._data import same
from heliograph._component._remote import Remote
from heliograph._errors import CommandError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from heliograph._bus import Bus
    from heliograph._component._component import Component
    from heliograph._component._remote import RemoteCommand
    from heliograph._component._topics import ReadTopic

_C = TypeVar("_C", bound="Component")

PATIENCE_S = 10.0
"""The default timeout of an assertion, in seconds."""

STATE_COMMANDS = ("start", "enable", "disable", "standby", "exitControl")


@contextlib.asynccontextmanager
async def component(
    kind: type[_C], index: int = 0, *, bus: Bus | None = None, **options: Any
) -> AsyncIterator[tuple[_C, Remote]]:
    """Make a component and a remote of it, on a new bus in memory unless one is given.

    ``options`` are the component's: ``initial_state``, ``config_dir`` and so on. The remote is
    opened first, so that it misses nothing.
    """
    from heliograph.testing import memory_bus

    async with contextlib.AsyncExitStack() as stack:
        if bus is None:
            bus = await stack.enter_async_context(memory_bus())
        made = kind(bus, index, **options)
        remote = Remote(bus, made._interface.name, index, interface=made._interface)
        await stack.enter_async_context(remote)
        await stack.enter_async_context(made)
        yield made, remote


async def assert_next_sample(
    topic: ReadTopic, *, flush: bool = False, timeout: float = PATIENCE_S, **wanted: Any
) -> Any:
    """Assert that the next value of a topic has the ``wanted`` fields, and return the value."""
    try:
        value = await topic.next(flush=flush, timeout=timeout)
    except WaitTimeout:
        raise AssertionError(f"no value of {topic!r} within {timeout} s") from None
    for name, item in wanted.items():
        found = getattr(value, name)
        if not same(found, item):
            raise AssertionError(f"{name} is {found!r}, not {item!r}, in {value!r}")
    return value


async def assert_next_summary_state(
    remote: Remote, state: State, *, flush: bool = False, timeout: float = PATIENCE_S
) -> None:
    """Assert that the remote receives this summary state next."""
    value = await assert_next_sample(remote.evt_summaryState, flush=flush, timeout=timeout)
    found = State(value.summaryState)
    if found is not state:
        raise AssertionError(f"the summary state is {found.name}, not {state.name}")


async def check_standard_state_transitions(
    remote: Remote,
    enabled_commands: Iterable[str] = (),
    *,
    override: str = "",
    timeout: float = PATIENCE_S,
) -> None:
    """Walk a component from STANDBY through all states; check that each rejects other commands.

    ``enabled_commands`` must be rejected, too, unless the state is ENABLED.
    """
    enabled = tuple(enabled_commands)
    await assert_next_summary_state(remote, State.STANDBY, timeout=timeout)
    walk = [
        ("start", State.DISABLED),
        ("enable", State.ENABLED),
        ("disable", State.DISABLED),
        ("standby", State.STANDBY),
        ("exitControl", State.OFFLINE),
    ]
    allowed = {
        State.STANDBY: ("start", "exitControl"),
        State.DISABLED: ("enable", "standby"),
        State.ENABLED: ("disable",),
    }
    state = State.STANDBY
    for command, following in walk:
        bad = [name for name in STATE_COMMANDS if name not in allowed[state]]
        bad += [] if state is State.ENABLED else enabled
        await check_bad_commands(remote, bad, timeout=timeout)
        fields = {"configurationOverride": override} if command == "start" else {}
        await getattr(remote, f"cmd_{command}").set_start(timeout=timeout, **fields)
        await assert_next_summary_state(remote, following, timeout=timeout)
        state = following


async def check_bad_commands(
    remote: Remote, commands: Iterable[str], *, timeout: float = PATIENCE_S
) -> None:
    """Assert that a component rejects each of these commands in its current state."""
    for command in commands:
        sender = getattr(remote, f"cmd_{command}")
        try:
            await sender.start(sender.data_type(**_legal(sender)), timeout=timeout)
        except CommandError:
            continue
        raise AssertionError(f"{command} was not refused")


def _legal(command: RemoteCommand) -> dict[str, Any]:
    """Return a valid value for each field: its first label, else zero, false or empty."""
    fields = command.data_type().as_dict()
    for field in command.type.info.fields:
        if field.enumeration is not None:
            label = field.enumeration[1][0][1]
            fields[field.name] = label if field.count == 1 else [label] * field.count
    fields.pop("salIndex", None)
    return fields
