"""Components on DDS, with a durability service for their events."""

from __future__ import annotations

import pytest
from probe import TIMEOUT_S, Probe, asynchronous, send

import heliograph as helio
from heliograph import AckCode, State, testing

pytestmark = pytest.mark.usefixtures("interfaces")


@asynchronous
async def test_commands_events_and_telemetry_reach_who_comes_late(dds_url: str) -> None:
    async with (
        helio.connect(dds_url) as bus,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, remote),
    ):
        ack = await send(remote.cmd_move, axis=1, position=3.0, timeout=TIMEOUT_S)
        assert ack.ack is AckCode.COMPLETE
        assert [command.position for command in probe.ran] == [3.0]
        await probe.evt_position.set_write(value=7.0, text="here")
        await probe.tel_sample.set_write(number=5)
        async with helio.connect(dds_url) as other, helio.Remote(other, "Probe") as late:
            event = await late.evt_position.aget(timeout=TIMEOUT_S)
            assert event is not None
            assert (event.value, event.text) == (7.0, "here")
            telemetry = await late.tel_sample.aget(timeout=TIMEOUT_S)
            assert telemetry is not None
            assert telemetry.number == 5
            await send(late.cmd_move, axis=2, timeout=TIMEOUT_S)
        assert [command.axis for command in probe.ran] == [1, 2]
