"""A command is sent with a value for every field, or not at all."""

from __future__ import annotations

import copy
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from probe import TIMEOUT_S, Multi, Probe, asynchronous

import heliograph as helio
from heliograph import State, testing
from heliograph._component._interface import find_interface
from heliograph.testing._component import _legal

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples" / "interfaces"

OPTIONS = frozenset(inspect.signature(helio.RemoteCommand.set_start).parameters)
"""Fields of these names can be set by `set` only."""


def _zeros(command: helio.RemoteCommand) -> dict[str, Any]:
    """Zero, false or empty for each field; a label where it has labels."""
    return _legal(command)


def _ways(
    command: helio.RemoteCommand, fields: dict[str, Any]
) -> dict[str, Callable[[], helio.CommandCall]]:
    """The ways to send a command with these fields."""

    def set_and_start() -> helio.CommandCall:
        command.data = command.data_type()
        command.set(**fields)
        return command.start()

    def assigned() -> helio.CommandCall:
        command.data = command.data_type()
        for name, value in fields.items():
            setattr(command.data, name, value)
        return command.start()

    ways = {
        "set and start": set_and_start,
        "assigned": assigned,
        "data": lambda: command.start(command.data_type(**fields)),
    }
    if OPTIONS.isdisjoint(fields):
        ways["set_start"] = lambda: command.set_start(**fields)
        ways["validate"] = lambda: command.set_start(validate=True, **fields)
    return ways


async def _try_all(folder: Path, every_way: bool) -> int:
    """Leave out each field of each command, by each way; return the number of fields."""
    tried = 0
    interfaces = helio.load_interfaces(folder)
    for name in interfaces.components:
        async with testing.memory_bus() as bus:
            multiple = find_interface(interfaces, name).indexed
            remote = helio.Remote(bus, name, int(multiple), interface=interfaces)
            commands = [getattr(remote, each) for each in dir(remote) if each.startswith("cmd_")]
            for command in commands:
                zeros = _zeros(command)
                for left_out in zeros:
                    tried += 1
                    fields = {name: value for name, value in zeros.items() if name != left_out}
                    for way in list(_ways(command, fields).values())[: None if every_way else 1]:
                        with pytest.raises(helio.EncodeError) as caught:
                            way()
                        assert caught.value.path == left_out
                        assert f"{command.type.attribute}: no value for {left_out};" in str(
                            caught.value
                        )
            assert await bus.topics() == [], "nothing is on the wire"
            if every_way:
                kind = type(name, (helio.Component,), {"component": name})
                async with kind(bus, int(multiple), interface=interfaces):
                    # After exitControl the component is gone.
                    commands.sort(key=lambda each: each.type.name == "exitControl")
                    for command in commands:
                        await _sent(bus, command, int(multiple))
            remote.close()
    return tried


async def _sent(bus: helio.Bus, command: helio.RemoteCommand, index: int) -> None:
    """Send a command with explicit zeros, by each way; check that it is on the wire."""
    topic, expected = command.type, command.data_type(**_zeros(command))
    if index:
        expected.salIndex = index
    ways = _ways(command, _zeros(command))
    ways.pop("validate", None)
    calls = [way() for way in ways.values()]
    async with bus.topic(topic.topic, topic.schema).subscribe(start=helio.earliest()) as samples:
        for _call in calls:
            assert (await testing.next_value(samples)) == expected


@asynchronous
async def test_each_field_left_out_is_named_and_nothing_is_sent() -> None:
    assert await _try_all(EXAMPLES, every_way=True) > 20


@asynchronous
async def test_each_field_of_the_observatory_is_named(shared_data: Path) -> None:
    folder = shared_data / "sal-interfaces" / "v27.1.1" / "sal_interfaces"
    assert await _try_all(folder, every_way=False) > 700


@pytest.mark.usefixtures("interfaces")
@asynchronous
async def test_zero_counts_as_set_and_none_does_not() -> None:
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        whole = _zeros(remote.cmd_move)
        await remote.cmd_move.set_start(**whole, timeout=TIMEOUT_S)
        with pytest.raises(helio.EncodeError, match="no value for position;"):
            remote.cmd_move.set_start(**{**whole, "position": None})
        # Elements that are written one by one do not set an array.
        data = remote.cmd_move.data_type(**{n: v for n, v in whole.items() if n != "forces"})
        data.forces[0] = 1.0
        for same in (data, copy.copy(data), copy.deepcopy(data)):
            with pytest.raises(helio.EncodeError, match="no value for forces;"):
                remote.cmd_move.start(same)
        data.forces = data.forces
        await remote.cmd_move.start(data, timeout=TIMEOUT_S)
        # A received command has all its fields; it can be sent on.
        await remote.cmd_move.start(probe.ran[1], timeout=TIMEOUT_S)
        assert [each.forces[0] for each in probe.ran] == [0.0, 1.0, 1.0]
        # What was set stays set.
        remote.cmd_move.set(**whole)
        for position in (0.0, 2.0):
            remote.cmd_move.set(position=position)
            await remote.cmd_move.start(timeout=TIMEOUT_S)
        assert [each.position for each in probe.ran[3:]] == [0.0, 2.0]


@pytest.mark.usefixtures("interfaces")
@asynchronous
async def test_a_remote_may_send_zeros_as_salobj_does() -> None:
    async with (
        testing.memory_bus() as bus,
        testing.component(Multi, 1, bus=bus, initial_state=State.ENABLED) as (probe, _),
        helio.Remote(bus, "Multi", 1, missing_fields="default") as lax,
    ):
        await lax.cmd_move.set_start(axis=1, timeout=TIMEOUT_S)
        lax.cmd_move.set(axis=2)
        await lax.cmd_move.start(timeout=TIMEOUT_S)
        assert [(each.axis, each.position) for each in probe.ran] == [(1, 0.0), (2, 0.0)]
        with pytest.raises(ValueError, match='missing_fields is "zeros"'):
            helio.Remote(bus, "Multi", 1, missing_fields="zeros")  # type: ignore[arg-type]


SCRIPT = """
import asyncio, json, sys
import heliograph as helio
from heliograph import testing

async def main():
    async with testing.memory_bus() as bus:
        remote = helio.Remote(bus, "Probe")
        strict = helio.Remote(bus, "Probe", missing_fields="refuse")
        told = []
        for each in (remote, strict):
            try:
                each.cmd_move.set_start(axis=1)
                told.append("sent")  # or it would be, if one ran
            except helio.EncodeError:
                told.append("refused")
        print(json.dumps(told))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("value", "told"),
    [("default", ["sent", "refused"]), ("refuse", ["refused", "refused"])],
)
def test_the_environment_decides_where_the_program_does_not(
    probes: Path, value: str, told: Any
) -> None:
    environment = {"HELIO_INTERFACES": str(probes), "HELIO_MISSING_FIELDS": value}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True, text=True
    )
    assert json.loads(ran.stdout) == told


def test_an_unknown_value_of_the_environment_is_refused(probes: Path) -> None:
    environment = {"HELIO_INTERFACES": str(probes), "HELIO_MISSING_FIELDS": "zero"}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert 'HELIO_MISSING_FIELDS is "zero"; it may be refuse or default' in ran.stderr
