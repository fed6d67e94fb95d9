"""Remotes and samples that are not of a live component of this package."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from probe import TIMEOUT_S, asynchronous

import heliograph as helio
from heliograph import State, sync, testing
from heliograph._component._remote import _current_state
from heliograph._heliograph import Lease

pytestmark = pytest.mark.usefixtures("interfaces")


@asynchronous
async def test_losses_of_a_foreign_writer_are_counted_by_its_numbers(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with helio.connect(url) as bus:
        remote = helio.Remote(bus, "Probe")
        event = remote.evt_position
        assert event.nqueued == 0
        bridge = bus.topic(event.type.topic, event.type.schema, qos=event.type.qos)

        async def bring(number: int, sent_s: float, origin: int = 7) -> None:
            sample = event.type.data_type(value=float(number))
            sample.private_identity, sample.private_origin = "Probe", origin
            sample.private_seqNum, sample.private_sndStamp = number, sent_s
            await bridge.publish(sample)

        with caplog.at_level(logging.WARNING, logger="heliograph"):
            # Gaps, a late one, a repeat, another process, and the same one again.
            for number in (5, 6, 9, 12, 10, 12):
                await bring(number, float(number))
            await bring(1, 20.0, origin=8)
            await bring(1, 30.0)
            await bring(3, 32.0)
            read = [await event.next(timeout=TIMEOUT_S) for _ in range(9)]
        assert [value.private_seqNum for value in read] == [5, 6, 9, 12, 10, 12, 1, 1, 3]
        assert event.lost == 2 + 1 + 1
        assert event._subscription is not None
        assert event._subscription.raw.stats.duplicates == 1
        warned = [record.getMessage() for record in caplog.records]
        assert len(warned) == 1, warned
        assert warned[0].endswith("from Probe did not arrive: number 9 arrived, 7 was expected")


@asynchronous
async def test_the_first_state_of_a_new_instance_is_waited_for(url: str) -> None:
    """The last state of a dead instance is not its successor's."""
    if url.startswith("memory"):
        # It must outlive its first bus.
        keeper = await helio.connect(url)
    else:
        keeper = None

    def lease_of(bus: helio.Bus) -> Lease:
        return Lease(bus._raw, remote._interface.raw, "Probe", 0, "test")

    async def tell(bus: helio.Bus, state: State) -> Any:
        topic = remote.evt_summaryState.type
        writer = bus.topic(topic.topic, topic.schema, qos=topic.qos, producer="Probe")
        await writer.publish(topic.data_type(summaryState=state))
        return writer

    async with helio.connect(url) as bus:
        remote = helio.Remote(bus, "Probe")
        async with helio.connect(url) as died:
            first = lease_of(died), await tell(died, State.ENABLED)
            assert remote.presence() == "here"
            assert await _current_state(remote, TIMEOUT_S) is State.ENABLED
        # Gone is its last known presence.
        assert remote.presence() == "gone"
        assert await _current_state(remote, TIMEOUT_S) is State.ENABLED
        second = lease_of(bus)
        with pytest.raises(helio.WaitTimeout, match="published no state"):
            await _current_state(remote, 0.01)
        asked = asyncio.ensure_future(_current_state(remote, TIMEOUT_S))
        await asyncio.sleep(0)
        writer = await tell(bus, State.STANDBY)
        assert await asked is State.STANDBY
        del first, second, writer
    if keeper is not None:
        await keeper.close()


@asynchronous
async def test_values_that_were_not_fetched_yet_are_not_missing() -> None:
    """The reader's transport delivers nothing at the first polls, as a broker's client may."""
    url = testing.memory_url()
    async with helio.connect(url) as bus:
        topic = helio.Remote(bus, "Probe").evt_position.type
        writer = bus.topic(topic.topic, topic.schema, qos=topic.qos)

        async def publish(value: float) -> None:
            await writer.publish(topic.data_type(value=value))

        await publish(-1.0)
        for seed in range(5):
            late = testing.fault_url(url, delay=1.0, seed=seed)
            async with helio.connect(late) as reading, helio.Remote(reading, "Probe") as remote:
                for value in (1.0, 2.0, 3.0):
                    await publish(value)
                event = remote.evt_position
                assert event.get().value == 3.0
                assert (await event.aget(timeout=TIMEOUT_S)).value == 3.0
                # On first use it drops the events since the remote was opened.
                if seed == 1:
                    event.flush()
                    await publish(4.0)
                    assert (await event.next(timeout=TIMEOUT_S)).value == 4.0
                elif seed % 2:
                    await event.aflush()
                    await publish(4.0)
                    assert (await event.next(timeout=TIMEOUT_S)).value == 4.0
                else:
                    # Else it is opened first, in a thread, and flushed then.
                    await event.aopen()
                    waiting = asyncio.create_task(event.next(flush=True, timeout=TIMEOUT_S))
                    # It begins, and may still be waiting for the older ones.
                    await asyncio.sleep(0)
                    await publish(4.0)
                    assert (await waiting).value == 4.0
                await publish(5.0)
                if seed % 2:
                    await event.aflush()
                else:
                    event.flush()
                assert event.nqueued == 0
                await publish(6.0)
                assert (await event.next(timeout=TIMEOUT_S)).value == 6.0


def test_a_synchronous_reader_waits_for_stored_values() -> None:
    url = testing.memory_url()
    with (
        sync.connect(url) as bus,
        sync.connect(testing.fault_url(url, delay=1.0, seed=2)) as reading,
        sync.Remote(reading, "Probe") as remote,
    ):
        topic = remote.evt_position._topic.type
        writer = bus.topic(topic.topic, topic.schema, qos=topic.qos)
        writer.publish(topic.data_type(value=1.0))
        assert remote.evt_position.get().value == 1.0
        remote.evt_position.flush()
        writer.publish(topic.data_type(value=2.0))
        assert remote.evt_position.next(timeout=TIMEOUT_S).value == 2.0
