"""A component on a real broker: it creates all its topics at its start, many at a time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from engines import shared_kafka
from probe import Probe, asynchronous, send
from processes import TIMEOUT_S, program, started

import heliograph as helio
from heliograph import State, testing

if TYPE_CHECKING:
    from pathlib import Path


@asynchronous
async def test_all_topics_are_there_when_it_has_started(interfaces: Path) -> None:
    wanted = {name for name in helio.load_interfaces(interfaces) if name.startswith("Probe/")}
    assert wanted
    address = shared_kafka()
    async with (
        helio.connect(address) as bus,
        testing.component(Probe, bus=bus),
        # Another connection, as this one caches its topics.
        helio.connect(address) as other,
    ):
        made = set(await other.topics())
        assert wanted | {"Probe/audit", "Probe/control"} <= made


@asynchronous
async def test_stored_samples_that_were_not_fetched_yet_count(interfaces: Path) -> None:
    assert interfaces
    address = shared_kafka()
    async with (
        helio.connect(address) as bus,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, _),
        helio.connect(address) as other,
    ):
        for number in range(5):
            event = probe.evt_position
            async with helio.Remote(other, "Probe") as remote:
                # Events between the remote's opening and its first use.
                for older in range(3):
                    await event.set_write(value=float(older), force_output=True)
                if number % 2:
                    remote.evt_position.flush()
                    newest = asyncio.create_task(remote.evt_position.next(timeout=TIMEOUT_S))
                else:
                    # Else it is opened first, in a thread, and flushed then.
                    await remote.evt_position.aopen()
                    flushed = remote.evt_position.next(flush=True, timeout=TIMEOUT_S)
                    newest = asyncio.create_task(flushed)
                    await asyncio.sleep(0)
                await event.set_write(value=10.0 + number)
                assert (await newest).value == 10.0 + number
                if number % 2:
                    # The first use: it waits for what is stored.
                    assert remote.evt_position.get().value == 10.0 + number
                await send(remote.cmd_move, axis=1, timeout=TIMEOUT_S)
        audit = ("component", "audit", "Probe", "--json", "--command", "move", "--url", address)
        process = started(program(), *audit)
        out, errors = await asyncio.to_thread(process.communicate)
        phases = [json.loads(line)["phase"] for line in out.splitlines()]
        assert phases == ["received", "finished"] * 5, errors
