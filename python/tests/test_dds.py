"""Components on DDS, whose events a durability service keeps."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from probe import PATIENCE_S, Probe, asynchronous
from processes import program, started

import heliograph as helio
from heliograph import AckCode, State, testing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


@pytest.fixture
def domain(tmp_path: Path) -> str:
    """A DDS domain of its own on the loopback, with a durability service."""
    url = f"dds://{os.getpid() % 231}?interface=lo&multicast=false"
    arguments = ["dds", "durability", "--json", "--url", url, "--dir", str(tmp_path / "kept")]
    service = started(program(), *arguments)
    assert service.stdout is not None
    line = service.stdout.readline()
    assert line, service.communicate()[1]
    assert json.loads(line)["keeps"] == url
    return url


@asynchronous
async def test_a_component_runs_unchanged_and_its_events_outlive_it(domain: str) -> None:
    async with helio.connect(domain) as bus, testing.component(Probe, bus=bus) as (probe, remote):
        assert await remote.evt_softwareVersions.aget(timeout=PATIENCE_S)
        await testing.check_standard_state_transitions(remote, ["move"])
        await probe.done_task
    async with helio.connect(domain) as bus, helio.Remote(bus, "Probe") as late:
        state = await late.evt_summaryState.aget(timeout=PATIENCE_S)
        assert state is not None
        assert state.summaryState == State.OFFLINE


@asynchronous
async def test_commands_events_and_telemetry_reach_who_comes_late(domain: str) -> None:
    async with (
        helio.connect(domain) as bus,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, remote),
    ):
        ack = await remote.cmd_move.set_start(axis=1, position=3.0, timeout=PATIENCE_S)
        assert ack.ack is AckCode.COMPLETE
        assert [command.position for command in probe.ran] == [3.0]
        await probe.evt_position.set_write(value=7.0, text="here")
        await probe.tel_sample.set_write(number=5)
        async with helio.connect(domain) as other, helio.Remote(other, "Probe") as late:
            event = await late.evt_position.aget(timeout=PATIENCE_S)
            assert event is not None
            assert (event.value, event.text) == (7.0, "here")
            telemetry = await late.tel_sample.aget(timeout=PATIENCE_S)
            assert telemetry is not None
            assert telemetry.number == 5
            await late.cmd_move.set_start(axis=2, timeout=PATIENCE_S)
        assert [command.axis for command in probe.ran] == [1, 2]
