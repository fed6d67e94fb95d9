"""Applications whose samples are lost, late, damaged or refused."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import heliograph as helio
from heliograph import sync, testing


@helio.record
class Wind:
    speed: helio.Float64
    place: helio.String = "mast"


def fill(bus: sync.Bus, count: int) -> sync.Topic[Wind]:
    wind = bus.topic("wind", Wind, qos=helio.STREAM)
    for number in range(count):
        wind.publish(Wind(speed=number))
    return wind


def test_lost_samples_are_counted_and_told() -> None:
    with testing.sync_memory_bus(testing.fault_url(drop=0.2, seed=3)) as bus:
        wind = fill(bus, 100)
        wind.publish(Wind(speed=-1.0))
        heard: list[helio.Event] = []
        with wind.subscribe(start=helio.earliest(), on_event=heard.append) as samples:
            found = samples.batch(1000, timeout=1.0)
            stats = samples.stats
        lost = sum(event.lost for event in heard if isinstance(event, helio.Gap))
        assert lost == stats.lost > 0
        assert 101 - len(found) - lost in (0, 1)  # the very last one may be missing without a gap
        assert {event.cause for event in heard if isinstance(event, helio.Gap)} == {"sequence"}
        assert {event.producer for event in heard if isinstance(event, helio.Gap)} == {bus.producer}


def test_repeated_and_reordered_samples_come_once() -> None:
    with testing.sync_memory_bus(testing.fault_url(duplicate=0.5, seed=1)) as bus:
        wind = fill(bus, 100)
        with wind.subscribe(start=helio.earliest()) as samples:
            speeds: list[float] = []
            while len(speeds) < 100:
                speeds += [each.value.speed for each in samples.batch(timeout=1.0)]
            assert speeds == list(range(100))
            assert samples.stats.duplicates > 0


def test_a_damaged_sample_is_an_error_of_its_own_and_not_of_the_iteration() -> None:
    with testing.sync_memory_bus(testing.fault_url(corrupt=1.0, seed=5)) as bus:
        wind = fill(bus, 200)
        bad = seen = 0
        with wind.subscribe(start=helio.earliest()) as samples:
            while seen < 200:
                sample = samples.next(timeout=testing.PATIENCE_S)
                seen += 1
                try:
                    assert isinstance(sample.value, Wind)
                except helio.DecodeError:
                    bad += 1
        assert 0 < bad < 200


def test_a_full_queue_and_a_doubt_are_errors() -> None:
    with testing.sync_memory_bus(testing.fault_url(refuse=1.0)) as bus:
        wind = bus.topic("wind", Wind, qos=helio.COMMAND)
        with pytest.raises(helio.OverloadError, match="queue"):
            wind.publish(Wind(speed=1.0))
        assert wind.publisher_stats["refused"] == 1
    with testing.sync_memory_bus(testing.fault_url(doubt=1.0)) as bus:
        wind = bus.topic("wind", Wind, qos=helio.STREAM)
        with pytest.raises(helio.PublishError, match="outcome of the publish is unknown"):
            wind.publish(Wind(speed=1.0))


def test_late_receipts_are_awaited() -> None:
    async def main() -> None:
        async with testing.memory_bus(testing.fault_url(pending=1)) as bus:
            wind = bus.topic("wind", Wind, qos=helio.STREAM)
            receipts = [await wind.publish(Wind(speed=number)) for number in range(10)]
            assert [receipt.sequence for receipt in receipts] == list(range(1, 11))
            tasks = [asyncio.create_task(wind.publish(Wind(speed=0.0))) for _ in range(10)]
            assert {(await task).sequence for task in tasks} == set(range(11, 21))
            assert (await wind.publish_many([Wind(speed=0.0)] * 5))[-1].sequence == 25
            assert bus._waiting == {}
            late = asyncio.create_task(wind.publish(Wind(speed=0.0)))
            await asyncio.sleep(0)
            late.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # unless the receipt was faster
                await late
            assert bus._waiting == {}

    asyncio.run(main())
    with testing.sync_memory_bus(testing.fault_url(pending=1)) as bus:
        wind = bus.topic("wind", Wind, qos=helio.STREAM)
        assert wind.publish(Wind(speed=1.0)).sequence == 1
        assert wind.publish_many([Wind(speed=1.0)] * 3)[-1].sequence == 4


def test_an_outage_is_told() -> None:
    with testing.sync_memory_bus(testing.fault_url(disconnect=0.3, seed=2)) as bus:
        wind = fill(bus, 50)
        heard: list[helio.Event] = []
        with wind.subscribe(start=helio.earliest(), on_event=heard.append) as samples:
            for number in range(50):
                assert samples.next(timeout=testing.PATIENCE_S).value.speed == number
        kinds = [type(event) for event in heard]
        assert helio.Outage in kinds
        assert helio.Restored in kinds
