"""Every value of SAL's `byte` on Kafka and DDS, also with salobj's serializer at either end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from engines import TIMEOUT_S, Plain, shared_kafka, url
from heater import ALL, SOME, every_value, fans, heating, no_other_value, write_heater
from probe import asynchronous
from test_salobj import Sal

import heliograph as helio
from heliograph import AckCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def interfaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_heater(tmp_path / "heater")
    monkeypatch.setenv("HELIO_INTERFACES", str(folder))
    return folder


@pytest.fixture
def sal(interfaces: Path) -> Iterator[Sal]:
    with Plain(url("kafka"), url("apicurio")) as plain:
        yield Sal(plain, helio.load_interfaces(interfaces))


@asynchronous
async def test_every_value_of_a_byte_arrives_on_kafka() -> None:
    async with helio.connect(shared_kafka()) as bus, heating(bus) as (component, remote):
        await every_value(remote, ALL)
        await no_other_value(component, remote)


@asynchronous
async def test_bytes_of_dds_have_no_sign_and_say_so(dds_url: str) -> None:
    async with helio.connect(dds_url) as bus, heating(bus) as (component, remote):
        await every_value(remote, range(256))
        for value in range(-128, 0):
            with pytest.raises(helio.CommandError, match=f"power: the number {value} does not fit"):
                await remote.cmd_demand.set_start(fans=fans(0), power=value, timeout=TIMEOUT_S)
            with pytest.raises(helio.HelioError, match=rf"fans\[1\]: the number {value} does not"):
                await component.tel_power.set_write(fans=fans(value), power=0)
        await no_other_value(component, remote)


@asynchronous
async def test_salobj_commands_our_heater_with_every_byte(sal: Sal) -> None:
    async with helio.connect(sal.bus_url) as bus, heating(bus) as (_component, remote):
        await remote.evt_summaryState.aget(timeout=TIMEOUT_S)

        def command_all() -> list[tuple[int, list[int]]]:
            for number, (power, all_fans) in enumerate(SOME, 1):
                fields = {"fans": all_fans, "power": power, "private_seqNum": number}
                sal.write("Heater/command/demand", **fields)
            told = [value for _, value in sal.read("Heater/telemetry/power", len(SOME))]
            return [(each["power"], each["fans"]) for each in told]

        assert await asyncio.to_thread(command_all) == SOME


@asynchronous
async def test_our_remote_commands_and_reads_a_heater_of_salobj(sal: Sal) -> None:
    async with helio.connect(sal.bus_url) as bus, helio.Remote(bus, "Heater") as remote:

        def heat() -> None:
            """Answer each command as a component of salobj does, with its telemetry."""
            commands = sal.follow("Heater/command/demand")
            for asked, (_, command) in zip(SOME, commands, strict=False):
                assert (command["power"], command["fans"]) == asked
                sal.write("Heater/telemetry/power", fans=command["fans"], power=command["power"])
                answer = {
                    "private_seqNum": command["private_seqNum"],
                    "identity": command["private_identity"],
                    "origin": command["private_origin"],
                    "ack": 303,
                }
                sal.write("Heater/ackcmd", **answer)

        async def beat() -> None:
            while True:
                await asyncio.to_thread(sal.write, "Heater/event/heartbeat")
                await asyncio.sleep(1.0)

        beating = asyncio.ensure_future(beat())
        assert remote.tel_power.get() is None
        heater = None
        for power, all_fans in SOME:
            call = remote.cmd_demand.set_start(fans=all_fans, power=power, timeout=TIMEOUT_S)
            heater = heater or asyncio.ensure_future(asyncio.to_thread(heat))
            assert (await call).ack is AckCode.COMPLETE
            told = await remote.tel_power.next(timeout=TIMEOUT_S)
            assert (told.power, told.fans.tolist()) == (power, all_fans)
        assert heater is not None
        await heater
        beating.cancel()
