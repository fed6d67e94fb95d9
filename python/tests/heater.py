"""A component with bytes, and the test that every value of a byte arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from processes import TIMEOUT_S

import heliograph as helio
from heliograph import State, testing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ALL = range(-128, 256)
"""The values of a byte."""

FANS = 48
"""The length of the array."""

SOME = [
    (power, [*ALL[FANS * place : FANS * (place + 1)]])
    for place, power in enumerate((-128, -1, 0, 127, 128, 200, 254, 255))
]
"""Few commands with all values among their fans, and a power each."""

HEATER = """
name: Heater
description: One heater and its fans.
generics: [csc]
commands:
  demand:
    fields:
      - {name: fans, type: byte, count: 48}
      - {name: power, type: byte}
telemetry:
  power:
    fields:
      - {name: fans, type: byte, count: 48}
      - {name: power, type: byte}
"""


class Heater(helio.Component):
    """Heats as it is told, and reports it."""

    component = "Heater"

    async def do_demand(self, command: Any) -> list[int]:
        await self.tel_power.set_write(fans=command.fans, power=command.power)
        return [*map(int, command.fans), command.power]


def write_heater(folder: Path) -> Path:
    """Write the interface into a folder."""
    folder.mkdir()
    (folder / "Heater.yaml").write_text(HEATER)
    return folder


def heating(bus: helio.Bus) -> Any:
    """A heater and a remote of it."""
    return testing.component(Heater, bus=bus, initial_state=State.ENABLED)


def fans(value: int, first: int = 0) -> list[int]:
    """An array of bytes with one value, behind a first one."""
    return [first] + [value] * (FANS - 1)


async def every_value(remote: helio.Remote, values: Iterable[int]) -> None:
    """Send each value there, and read it back by acknowledgement and telemetry."""
    for value in values:
        ack = await remote.cmd_demand.set_start(fans=fans(value), power=value, timeout=TIMEOUT_S)
        assert ack.value == [*fans(value), value]
        power = await remote.tel_power.next(timeout=TIMEOUT_S)
        assert (power.fans.tolist(), power.power) == (fans(value), value)


async def no_other_value(component: helio.Component, remote: helio.Remote) -> None:
    """What is no byte is refused by either side, with the field's name."""
    for wrong in (-129, 256):
        allowed = f"power is {wrong}; it must be -128 to 255"
        with pytest.raises(helio.EncodeError, match=allowed):
            remote.cmd_demand.set_start(fans=fans(0), power=wrong)
        with pytest.raises(helio.EncodeError, match=allowed):
            await component.tel_power.set_write(power=wrong)
        with pytest.raises(helio.EncodeError, match=rf"fans\[1\] is {wrong}"):
            await component.tel_power.set_write(fans=fans(wrong))
