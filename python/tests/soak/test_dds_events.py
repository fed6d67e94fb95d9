"""Events of a component on DDS outlive it, in a durability service."""

from __future__ import annotations

import pytest
from probe import TIMEOUT_S, Probe, asynchronous

import heliograph as helio
from heliograph import State, testing

pytestmark = pytest.mark.usefixtures("interfaces")


@asynchronous
async def test_a_component_runs_unchanged_and_its_events_outlive_it(dds_url: str) -> None:
    async with helio.connect(dds_url) as bus, testing.component(Probe, bus=bus) as (probe, remote):
        assert await remote.evt_softwareVersions.aget(timeout=TIMEOUT_S)
        await testing.check_standard_state_transitions(remote, ["move"])
        await probe.done_task
    async with helio.connect(dds_url) as bus, helio.Remote(bus, "Probe") as late:
        state = await late.evt_summaryState.aget(timeout=TIMEOUT_S)
        assert state is not None
        assert state.summaryState == State.OFFLINE
