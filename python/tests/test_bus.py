"""The asynchronous and the synchronous bus, on every transport that this machine has."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import threading
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from probe import asynchronous
from processes import TIMEOUT_S

import heliograph as helio
from heliograph import sync, testing
from heliograph._common import report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@helio.record
class Wind:
    """Wind at a mast."""

    mast: helio.Int32 = helio.field(key=True, default=0)
    speed: helio.Float64 = helio.field(unit="m/s")
    gusts: helio.Array[helio.Float32, 4] = helio.field(default=np.zeros(4, dtype="f4"))


@pytest.fixture
def bus(url: str) -> Iterator[sync.Bus]:
    with sync.connect(url) as opened:
        yield opened


@asynchronous
async def test_the_readme_s_example(url: str) -> None:
    gusts = np.arange(4, dtype="f4")
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        receipt = await wind.publish(Wind(speed=7.5, gusts=gusts))
        assert (receipt.partition, receipt.offset, receipt.sequence) == (0, 0, 1)
        assert receipt.guarantee is helio.Guarantee.STORED
        async with wind.subscribe(start=helio.last(1)) as samples:
            async for s in samples:
                assert s.value.speed == 7.5
                assert np.array_equal(s.value.gusts, gusts)
                assert s.value is s.value
                assert s.topic == "weather/wind"
                assert (s.key, s.offset, s.sequence, s.partition) == (wind.key(0), 0, 1, 0)
                assert s.producer == bus.producer
                assert s.incarnation >= 1
                assert s.time.tai_ns == s.time_ns
                assert abs(s.time - helio.Time.now()) < 60
                assert s.payload == helio.schema(Wind).encode(s.value)
                assert s.schema_id == helio.schema(Wind).id
                assert s.level == 0
                assert s.trace is None
                assert samples.stats.lost == 0
                break


@asynchronous
async def test_waiting_and_publishing_in_one_loop(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        count = 2000

        async def read() -> list[float]:
            async with wind.subscribe() as samples:
                ready.set()
                return [(await samples.next()).value.speed for _ in range(count)]

        ready = asyncio.Event()
        reader = asyncio.create_task(read())
        await ready.wait()
        for number in range(count):
            await wind.publish(Wind(speed=number))
            if number % 7 == 0:
                await asyncio.sleep(0)
        assert await reader == list(range(count))


@asynchronous
async def test_many_subscriptions_wait_on_one_descriptor(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        before = len(os.listdir("/proc/self/fd"))
        subscriptions = [wind.subscribe() for _ in range(100)]
        tasks = [asyncio.create_task(each.next()) for each in subscriptions]
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) < before + 20
        await wind.publish(Wind(speed=1.0))
        samples = await asyncio.gather(*tasks)
        assert {sample.value.speed for sample in samples} == {1.0}


@asynchronous
async def test_a_busy_reader_or_writer_lets_other_tasks_run(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        value = Wind(speed=1.0)
        for _ in range(2000):
            await wind.publish(value)
        written = turns
        assert written >= 3
        async with wind.subscribe(start=helio.earliest()) as samples:
            count = 0
            async for _ in samples:
                count += 1
                if count == 2000:
                    break
        assert turns >= written + 3
        task.cancel()


@asynchronous
async def test_cancelling_a_wait_loses_nothing_and_leaves_nothing(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        async with wind.subscribe() as samples:
            for number in range(20):
                task = asyncio.create_task(samples.next())
                await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await wind.publish(Wind(speed=number))
                if number % 2:
                    assert (await samples.next(timeout=0.0)).value.speed == number
                else:
                    assert [each.value.speed for each in await samples.batch()] == [number]
            assert bus._waiting == {}
            assert samples.stats.received == 20
            assert samples.stats.lost == 0


@asynchronous
async def test_cancelling_a_busy_iteration_loses_nothing(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        await wind.publish_many([Wind(speed=number) for number in range(3000)])
        found: list[float] = []

        async def read(samples: helio.Subscription[Wind]) -> None:
            async for sample in samples:
                found.append(sample.value.speed)

        async with wind.subscribe(start=helio.earliest()) as samples:
            while len(found) < 3000:
                task = asyncio.create_task(read(samples))
                await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        assert found == list(range(3000))


@asynchronous
async def test_a_wait_may_end_by_time(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        async with wind.subscribe() as samples:
            with pytest.raises(helio.WaitTimeout):
                await samples.next(timeout=0.01)
            with pytest.raises(TimeoutError):
                await samples.next(timeout=0.01)
            assert await samples.batch(timeout=0.01) == []
            await testing.assert_silent(samples)


@asynchronous
async def test_closing_ends_iterations(url: str) -> None:
    bus = await helio.connect(url)
    wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)

    async def read(samples: helio.Subscription[Wind]) -> int:
        return len([sample async for sample in samples])

    one, two = wind.subscribe(), wind.subscribe()
    tasks = [asyncio.create_task(read(each)) for each in (one, two)]
    events = asyncio.create_task(anext(aiter(wind.subscribe().events()), None))
    await asyncio.sleep(0.01)
    one.close()
    assert await tasks[0] == 0
    await bus.close()
    await bus.close()
    assert await tasks[1] == 0
    assert await events is None
    with pytest.raises(helio.ClosedError):
        await one.next()
    with pytest.raises(helio.ClosedError):
        await wind.publish(Wind(speed=1.0))
    with pytest.raises(helio.ClosedError):
        bus.topic("other", Wind)


@asynchronous
async def test_two_tasks_cannot_wait_on_one_subscription(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        async with wind.subscribe() as samples:
            first = asyncio.create_task(samples.next())
            await asyncio.sleep(0.01)
            with pytest.raises(RuntimeError, match="another task"):
                await samples.next()
            await wind.publish(Wind(speed=3.0))
            assert (await first).value.speed == 3.0


@asynchronous
async def test_batches_and_receipts(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM.replace(partitions=4))
        values = [Wind(mast=number % 8, speed=number) for number in range(1000)]
        receipts = await wind.publish_many(values)
        assert len(receipts) <= 4
        durable = await wind.publish(Wind(mast=3, speed=-1.0), guarantee=helio.Guarantee.DURABLE)
        assert durable.guarantee is helio.Guarantee.DURABLE
        await wind.flush(helio.Guarantee.DURABLE)
        assert wind.publisher_stats["taken"] == 1001
        async with wind.subscribe(start=helio.earliest()) as samples:
            found: list[helio.Sample[Wind]] = []
            while len(found) < 1001:
                found += await samples.batch(100)
        by_mast = {
            mast: [each.value.speed for each in found if each.value.mast == mast]
            for mast in range(8)
        }
        for mast, speeds in by_mast.items():
            wanted = [number for number in range(1000) if number % 8 == mast]
            assert speeds == wanted + ([-1.0] if mast == 3 else [])


@asynchronous
async def test_each_sample_of_a_batch_has_an_outcome(url: str) -> None:
    async with helio.connect(url) as bus:
        qos = helio.STREAM.replace(partitions=2)
        topic = bus.topic("alerts/packets", qos=qos)
        too_large = bytes(64 << 20)
        first = await topic.publish_batch([b"0", b"1", too_large, b"3"], partition=1)
        assert [type(each) for each in first[2:]] == [helio.PublishError] * 2
        assert "limit" in str(first[2])
        assert "earlier sample" in str(first[3])
        second = await topic.publish_batch([b"3"], partition=1)
        receipts = [each for each in first + second if isinstance(each, helio.Receipt)]
        found = [(each.partition, each.offset, each.sequence) for each in receipts]
        assert found == [(1, 0, 1), (1, 1, 2), (1, 2, 3)]
        with pytest.raises(helio.EncodeError):
            await topic.publish_batch([b"4", "text"])
        unknown = await topic.publish_batch([b"5"], partition=7)
        assert "partition 7" in str(unknown[0])
        async with topic.subscribe(start=helio.earliest()) as samples:
            assert [(await samples.next()).value for _ in range(3)] == [b"0", b"1", b"3"]
            await testing.assert_silent(samples)


@asynchronous
async def test_groups_are_listed_with_their_lag(url: str) -> None:
    async with helio.connect(url, producer="Broker") as bus:
        topic = bus.topic("alerts/packets", qos=helio.STREAM.replace(partitions=2))
        async with topic.subscribe(start=helio.earliest(), group="filters") as samples:
            await topic.publish_batch([b"0", b"1", b"2"], partition=1)
            for _ in range(2):
                await samples.next()
            await samples.acommit()
            [group] = await topic.agroups()
        assert (group.name, group.lag) == ("filters", 1)
        [member] = group.members
        assert (member.name, member.process, member.host) == ("Broker", os.getpid(), None)
        assert member.partitions == [0, 1]
        assert [each.committed for each in group.partitions][1] == 2
        assert [each.end for each in group.partitions] == [0, 3]
        assert topic.groups()[0].members == []


@asynchronous
async def test_a_topic_is_granted_and_revoked(tmp_path: Path) -> None:
    async with helio.connect(f"journal:{tmp_path / 'journal'}") as bus:
        topic = bus.topic("results/a", qos=helio.STREAM)
        assert await topic.agrant("nobody") is None
        assert topic.grant("65533") is None
        assert await topic.arevoke("nobody") is True
        assert topic.revoke("nobody") is False
        with pytest.raises(helio.QosRefused, match="password"):
            topic.grant("nobody", password="secret")
        with pytest.raises(helio.StorageError, match="has no user"):
            topic.grant("no such user")
    async with testing.memory_bus() as bus:
        topic = bus.topic("results/a", qos=helio.STREAM)
        with pytest.raises(helio.QosRefused, match="memory cannot grant a topic to a user"):
            await topic.agrant("nobody")


@asynchronous
async def test_keys_choose_and_last_values_wait(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.EVENT)
        for number in range(10):
            await wind.publish(Wind(mast=number % 3, speed=number))
        async with wind.subscribe(start=helio.last(1), keys=[wind.key(1)]) as samples:
            assert (await testing.next_value(samples)).speed == 7
            await testing.assert_silent(samples)
        async with wind.subscribe(start=helio.last(1)) as samples:
            found = {(await samples.next()).value.speed for _ in range(3)}
            assert found == {7, 8, 9}
            await testing.assert_silent(samples)
            await wind.publish(Wind(mast=1, speed=11))
            assert (await testing.next_sample(samples, mast=1)).value.speed == 11


@asynchronous
async def test_what_a_publish_may_say(url: str) -> None:
    async with helio.connect(url, producer="Mast") as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        time = helio.Time.parse("2026-01-01T00:00:00Z")
        await wind.publish(
            Wind(speed=1.0), key="mast", level=7, time=time, trace=bytes(range(16)), partition=0
        )
        async with wind.subscribe(start=helio.earliest(), key_prefix=b"ma") as samples:
            sample = await samples.next()
            assert sample.key == b"mast"
            assert sample.level == 7
            assert sample.time == time
            assert sample.trace == bytes(range(16))
            assert sample.producer == "Mast"
        with pytest.raises(helio.EncodeError, match="bytes or str"):
            await wind.publish(Wind(speed=1.0), key=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="16 bytes"):
            await wind.publish(Wind(speed=1.0), trace=b"short")
        with pytest.raises(helio.PublishError, match="partition"):
            await wind.publish(Wind(speed=1.0), partition=5)
        with pytest.raises(ValueError, match="guarantee"):
            await wind.publish(Wind(speed=1.0), guarantee="certain")
        with pytest.raises(helio.EncodeError, match="field speed"):
            await wind.publish(Wind(speed="fast"))  # type: ignore[arg-type]
        with pytest.raises(helio.EncodeError, match="field speed"):
            await wind.publish_many([Wind(speed=1.0), Wind(speed=None)])  # type: ignore[arg-type]
        assert wind.publisher_stats["taken"] == 1


def test_dictionaries_bytes_and_text_schemas(bus: sync.Bus) -> None:
    with pytest.raises(helio.UnknownTopic):
        bus.topic("weather/none")
    schema = {
        "type": "record",
        "name": "Wind",
        "fields": [
            {"name": "speed", "type": "double", "units": "m/s"},
            {"name": "mast", "type": "string", "default": "west"},
        ],
    }
    wind = bus.topic("weather/wind", schema, qos=helio.TELEMETRY)
    wind.publish({"speed": 1.5})
    again = bus.topic("weather/wind")
    assert again.schema is not None
    assert again.schema.name == "Wind"
    with again.subscribe(start=helio.earliest()) as samples:
        assert samples.next(timeout=TIMEOUT_S).value == {"speed": 1.5, "mast": "west"}
    raw = bus.topic("raw", bytes, qos=helio.STREAM)
    for value in (b"one", bytearray(b"two"), memoryview(b"three")):
        raw.publish(value)  # type: ignore[arg-type]
    with pytest.raises(helio.EncodeError, match="takes bytes, not str"):
        raw.publish("text")  # type: ignore[arg-type]
    with raw.subscribe(start=helio.earliest()) as samples:
        assert [samples.next(timeout=TIMEOUT_S).value for _ in range(3)] == [
            b"one",
            b"two",
            b"three",
        ]
    assert bus.topics() == ["raw", "weather/wind"]
    assert wind.qos == helio.TELEMETRY
    assert "weather/wind" in repr(wind)


def test_a_schema_may_grow_while_readers_of_the_old_one_read_on(bus: sync.Bus) -> None:
    @helio.record(name="Wind")
    class Grown:
        mast: helio.Int32 = helio.field(key=True, default=0)
        speed: helio.Float64 = helio.field(unit="m/s")
        gusts: helio.Array[helio.Float32, 4] = helio.field(default=np.zeros(4, dtype="f4"))
        direction: helio.Float64 = helio.field(unit="deg", default=-1.0)

    old = bus.topic("weather/wind", Wind, qos=helio.STREAM)
    new = bus.topic("weather/wind", Grown, qos=helio.STREAM)
    old.publish(Wind(speed=1.0))
    new.publish(Grown(speed=2.0, direction=90.0))
    with new.subscribe(start=helio.earliest()) as samples:
        found = [samples.next(timeout=TIMEOUT_S).value for _ in range(2)]
        assert found == [Grown(speed=1.0), Grown(speed=2.0, direction=90.0)]
    with old.subscribe(start=helio.earliest()) as others:
        assert [others.next(timeout=TIMEOUT_S).value for _ in range(2)] == [
            Wind(speed=1.0),
            Wind(speed=2.0),
        ]


def test_a_schema_that_readers_cannot_read_is_refused_with_the_field(bus: sync.Bus) -> None:
    @helio.record(name="Wind")
    class Other:
        mast: helio.Int32 = helio.field(key=True, default=0)
        speed: helio.String

    bus.topic("weather/wind", Wind, qos=helio.STREAM).publish(Wind(speed=1.0))
    with pytest.raises(helio.IncompatibleSchema, match="speed"):
        bus.topic("weather/wind", Other, qos=helio.STREAM).publish(Other(speed="fast"))


def test_an_evolution_policy_is_chosen_for_a_topic(bus: sync.Bus) -> None:
    @helio.record(name="Wind")
    class Gone:
        mast: helio.Int32 = helio.field(key=True, default=0)

    @helio.record(name="Wind")
    class Gust:
        gust: helio.Float64

    wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
    wind.publish(Wind(speed=1.0))
    for evolution in ("forward", "full"):
        with pytest.raises(helio.IncompatibleSchema, match="speed: field removed"):
            bus.topic("weather/wind", Gone, evolution=evolution).publish(Gone())
    bus.topic("weather/wind", Gone, evolution="none").publish(Gone())
    with pytest.raises(helio.IncompatibleSchema, match="gust"):
        bus.topic("weather/wind", Gust).subscribe()
    # A reader with one of the topic's schemas continues: the change may be reverted.
    wind.subscribe().close()
    told: list[helio.Event] = []
    still = bus.topic("weather/wind", Wind, evolution="none")
    with still.subscribe(start=helio.earliest(), on_event=told.append) as samples:
        assert samples.next(timeout=TIMEOUT_S).value == Wind(speed=1.0)
        wind.publish(Wind(speed=2.0))
        assert samples.next(timeout=TIMEOUT_S).value == Wind(speed=2.0)
    assert [type(event) for event in told] == [helio.Undecodable]
    with pytest.raises(ValueError, match="backward"):
        bus.topic("weather/wind", Wind, evolution="both")


def test_large_samples_go_in_batches_of_bounded_size(bus: sync.Bus) -> None:
    frames = bus.topic("frames", bytes, qos=helio.STREAM)
    frame = bytes(range(256)) * 4096
    with frames.subscribe() as samples:
        for _ in range(12):
            frames.publish(frame)
        sizes: list[int] = []
        while sum(sizes) < 12:
            batch = samples.batch(timeout=TIMEOUT_S)
            assert all(each.value == frame for each in batch)
            sizes.append(len(batch))
    assert max(sizes) <= 4


def test_the_twin_speaks_the_same_words() -> None:
    for name in ("Bus", "Topic", "Subscription"):
        words = {word for word in dir(getattr(helio, name)) if not word.startswith("_")}
        # In the event loop, those that may block have an awaitable twin.
        words -= {f"a{word}" for word in words}
        assert words == {word for word in dir(getattr(sync, name)) if not word.startswith("_")}
        for word in words:
            one, two = (getattr(getattr(where, name), word) for where in (helio, sync))
            if inspect.isfunction(one):
                assert list(inspect.signature(one).parameters) == list(
                    inspect.signature(two).parameters
                )


def test_a_thread_waits_while_others_run(bus: sync.Bus) -> None:
    wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
    samples = wind.subscribe()
    found: list[float] = []

    def read() -> None:
        for sample in samples:
            if sample.value.speed < 0:
                break
            found.append(sample.value.speed)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(100):
        wind.publish(Wind(speed=number))
    wind.publish(Wind(speed=-1.0))
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert found == list(range(100))


def test_closing_lets_a_waiting_thread_go(bus: sync.Bus) -> None:
    samples = bus.topic("weather/wind", Wind, qos=helio.STREAM).subscribe()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(samples))
    thread.start()
    samples.close()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert found == []


def test_a_synchronous_wait_may_end_by_time(bus: sync.Bus) -> None:
    wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
    with wind.subscribe() as samples:
        with pytest.raises(helio.WaitTimeout):
            samples.next(timeout=0.01)
        assert samples.batch(timeout=0.01) == []
        wind.publish_many([Wind(speed=1.0), Wind(speed=2.0)])
        assert [each.value.speed for each in samples.batch(timeout=TIMEOUT_S)] == [1.0, 2.0]
        wind.publish(Wind(speed=3.0))
        first = next(samples.events())
        assert isinstance(first, helio.Sample)
        assert first.value.speed == 3.0
    with pytest.raises(helio.ClosedError):
        samples.next()


def test_a_gap_is_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with sync.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        heard: list[helio.Event] = []
        told = wind.subscribe(lagging=helio.drop_oldest(10), on_event=heard.append)
        logged = wind.subscribe(lagging=helio.drop_oldest(10))
        in_order = wind.subscribe(lagging=helio.drop_oldest(10))
        for number in range(100):
            wind.publish(Wind(speed=number))
        assert [told.next(timeout=TIMEOUT_S).value.speed for _ in range(10)] == list(range(90, 100))
        assert [type(event) for event in heard] == [helio.Gap]
        assert heard[0] == helio.Gap(0, 90, "overload", 0, 90, None)
        assert told.stats.lost == 90
        with caplog.at_level(logging.WARNING, logger="heliograph"):
            logged.next(timeout=TIMEOUT_S)
        assert "90 samples are lost" in caplog.text
        caplog.clear()
        report(helio.Gap(2, 0, "replaced", 4, 6))
        assert "lost" not in caplog.text
        assert "read from offset 4 on, and samples may be repeated" in caplog.text
        events = in_order.events()
        assert next(events) == heard[0]
        assert isinstance(next(events), helio.Sample)


def test_a_listener_that_fails_costs_no_samples(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: helio.Event) -> None:
        raise RuntimeError("listener")

    with sync.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        with wind.subscribe(lagging=helio.drop_oldest(10), on_event=fail) as samples:
            for number in range(100):
                wind.publish(Wind(speed=number))
            found: list[float] = []
            while len(found) < 10:
                found += [each.value.speed for each in samples.batch(timeout=TIMEOUT_S)]
        assert found == list(range(90, 100))
        assert "on_event failed" in caplog.text


@asynchronous
async def test_a_missed_deadline_is_told_by_the_clock() -> None:
    clock = testing.ManualClock(helio.Time.parse("2026-01-01T00:00:00Z"))
    async with testing.memory_bus(clock=clock) as bus:
        qos = helio.TELEMETRY.replace(deadline=timedelta(seconds=1))
        wind = bus.topic("weather/wind", Wind, qos=qos)
        async with wind.subscribe() as samples:
            await wind.publish(Wind(speed=1.0))
            assert (await samples.next()).time == clock.now()
            clock.advance(1.5)
            async for event in samples.events():
                assert event == helio.DeadlineMissed(wind.key(0), timedelta(seconds=1), 1)
                break
            assert samples.stats.deadlines_missed == 1


def test_quality_of_service_that_cannot_be_is_refused(bus: sync.Bus) -> None:
    with pytest.raises(helio.QosRefused, match="partitions"):
        bus.topic("a", Wind, qos=helio.TELEMETRY.replace(partitions=0))
    bus.topic("b", Wind, qos=helio.TELEMETRY).claim()
    with pytest.raises(helio.QosRefused):
        bus.topic("b", Wind, qos=helio.EVENT)
    with pytest.raises(helio.NameRefused, match="a//b"):
        bus.topic("a//b", Wind)


def test_urls_that_cannot_be_are_refused() -> None:
    with pytest.raises(helio.ConnectError, match='unknown transport "nowhere"'):
        sync.connect("nowhere:x")
    with pytest.raises(helio.ConnectError):
        sync.connect("no url at all")
    with pytest.raises(helio.NameRefused):
        sync.connect("memory:", producer="a b")


def test_without_a_url_the_environment_chooses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HELIO_URL", "memory:from-the-environment")
    with sync.connect() as bus:
        assert bus.url == "memory:from-the-environment"
    monkeypatch.delenv("HELIO_URL")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with sync.connect() as bus:
        assert bus.url == f"journal:{tmp_path}/heliograph/default"


def test_an_exclusive_topic_has_one_owner(url: str) -> None:
    with (
        sync.connect(url, producer="One") as one,
        sync.connect(url, producer="Two") as two,
    ):
        qos = helio.STATE
        first = one.topic("state", Wind, qos=qos)
        assert first.publish(Wind(speed=1.0)).guarantee is helio.Guarantee.DURABLE
        with pytest.raises(helio.Fenced, match="One"):
            two.topic("state", Wind, qos=qos).publish(Wind(speed=2.0))


def test_a_zombie_is_told(url: str) -> None:
    with sync.connect(url, producer="Twin") as old, sync.connect(url, producer="Twin") as new:
        before = old.topic("weather/wind", Wind, qos=helio.EVENT)
        after = new.topic("weather/wind", Wind, qos=helio.EVENT)
        assert before.claim() < after.claim()
        after.publish(Wind(speed=2.0))
        with pytest.raises(helio.Fenced):
            before.publish(Wind(speed=1.0))


def test_groups_share_and_commit(url: str) -> None:
    with sync.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        for number in range(10):
            wind.publish(Wind(speed=number))
        with wind.subscribe(start=helio.earliest(), group="g") as samples:
            assert [samples.next(timeout=TIMEOUT_S).value.speed for _ in range(4)] == [0, 1, 2, 3]
            samples.commit()
        with wind.subscribe(start=helio.earliest(), group="g") as samples:
            assert samples.next(timeout=TIMEOUT_S).value.speed == 4
            with pytest.raises(helio.SubscribeError):
                samples.commit((7, 0))
            samples.commit((0, 8))
        with wind.subscribe(start=helio.earliest(), group="g") as samples:
            assert samples.next(timeout=TIMEOUT_S).value.speed == 8
        with wind.subscribe(start=helio.from_offset(6)) as samples:
            first = samples.next(timeout=TIMEOUT_S)
            assert first.value.speed == 6
            assert samples.positions == [(0, 7, 10)]
            samples.seek(2)
            assert samples.next(timeout=TIMEOUT_S).value.speed == 2
            with pytest.raises(helio.SubscribeError, match="group"):
                samples.commit()
        with wind.subscribe(start=helio.since(first.time)) as samples:
            assert samples.next(timeout=TIMEOUT_S).value.speed <= 6


def test_a_child_that_was_forked_opens_its_own_bus(url: str) -> None:
    with sync.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.STREAM)
        wind.publish(Wind(speed=1.0))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                wind.publish(Wind(speed=2.0))
            except helio.ClosedError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                del wind, bus
                gc.collect()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert wind.publish(Wind(speed=3.0)).sequence == 2


def test_the_fixtures_are_there(helio_bus: sync.Bus, helio_url: str) -> None:
    wind = helio_bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
    wind.publish(Wind(speed=1.0))
    with (
        sync.connect(helio_url) as other,
        other.topic("weather/wind", Wind).subscribe(start=helio.last(1)) as samples,
    ):
        assert samples.next(timeout=TIMEOUT_S).value.speed == 1.0


@asynchronous
async def test_objects_go_when_nobody_holds_them(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        await wind.publish(Wind(speed=1.0))
        samples = wind.subscribe(start=helio.last(1))
        value = (await samples.next()).value
        with contextlib.suppress(helio.WaitTimeout):
            await samples.next(timeout=0.0)
        gone = [weakref.ref(each) for each in (wind, samples, value)]
        del wind, samples, value
        await asyncio.sleep(0)
        gc.collect()
        assert [each() for each in gone] == [None, None, None]


@asynchronous
async def test_headers_come_out_as_they_went_in(url: str) -> None:
    given = {"helio-caller": b"alice@summit1", "a.b_c-9": bytes(range(256)), "none": b""}
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        await wind.publish(Wind(speed=1.0), headers=given)
        await wind.publish(Wind(mast=1, speed=2.0), headers={})
        async with wind.subscribe(start=helio.last(1)) as samples:
            first = await anext(samples)
            assert first.headers == given
            assert list(first.headers) == sorted(given)
            first.headers["mine"] = b""
            assert first.headers == given
            assert (await anext(samples)).headers == {}


@asynchronous
async def test_a_null_deletes_the_last_value_of_its_key(url: str) -> None:
    async with helio.connect(url) as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        key = wind.key(7)
        await wind.publish(Wind(mast=7, speed=1.0))
        await wind.publish(Wind(mast=8, speed=2.0))
        await wind.publish(helio.NULL, key=key, headers={"why": b"moved"})
        with pytest.raises(helio.EncodeError, match="key="):
            await wind.publish(helio.NULL)
        with pytest.raises(helio.EncodeError):
            await wind.publish(None)  # type: ignore[arg-type]
        async with wind.subscribe(start=helio.last(1)) as samples:
            assert (await anext(samples)).value.mast == 8
            with pytest.raises(helio.WaitTimeout):
                await samples.next(timeout=0.0)
        async with wind.subscribe(start=helio.earliest()) as samples:
            seen = [await anext(samples) for _ in range(3)]
    null = seen[2]
    assert [sample.is_null for sample in seen] == [False, False, True]
    assert (null.key, null.value, null.payload, null.headers["why"]) == (key, None, b"", b"moved")
    assert ("why", b"moved") in null.header_items


def test_nulls_go_in_batches_too(bus: sync.Bus) -> None:
    topic = bus.topic("t", qos=helio.TELEMETRY)
    topic.publish_many([b"value", helio.NULL, b""])
    with topic.subscribe(start=helio.earliest()) as samples:
        assert [s.value for s in samples.batch(timeout=0)] == [b"value", None, b""]
    assert repr(helio.NULL) == "heliograph.NULL"


def test_headers_are_refused_by_name(bus: sync.Bus) -> None:
    topic = bus.topic("t", qos=helio.TELEMETRY)
    topic.publish(b"x", headers={"most": bytes(4096 - 7)})
    wrong = [({"Upper": b""}, "Upper"), ({"n": bytes(4096)}, "4096"), ({"n": "text"}, "n is bytes")]
    for headers, told in wrong:
        with pytest.raises(helio.EncodeError, match=told):
            topic.publish(b"x", headers=headers)  # type: ignore[arg-type]
    with topic.subscribe(start=helio.earliest()) as samples:
        assert [s.headers for s in samples.batch(timeout=0)] == [{"most": bytes(4096 - 7)}]


def test_producers_of_one_bus_are_listed(url: str) -> None:
    with sync.connect(url, producer="host") as bus:
        mount = bus.topic("t", qos=helio.TELEMETRY, producer="Mount:1")
        own = bus.topic("t", qos=helio.TELEMETRY)
        assert (mount.producer, own.producer, mount.writers()) == ("Mount:1", "host", [])
        assert (mount.publish(b"1").sequence, own.publish(b"2").sequence) == (1, 1)
        assert own.writers() == [("Mount:1", 1, True), ("host", 1, True)]
        with own.subscribe(start=helio.earliest()) as samples:
            assert [s.producer for s in samples.batch(timeout=0)] == ["Mount:1", "host"]
        with sync.connect(url, producer="Mount:1") as later:
            successor = later.topic("t", qos=helio.TELEMETRY)
            successor.publish(b"3")
            assert own.writers()[0] == helio.Writer("Mount:1", 2, alive=True)
            with pytest.raises(helio.Fenced):
                mount.publish(b"4")
        assert own.writers()[0].alive is False
        with pytest.raises(helio.NameRefused):
            bus.topic("t", qos=helio.TELEMETRY, producer="a name")


def test_the_schema_of_a_topic_s_samples_must_be_there_and_unedited(tmp_path: Path) -> None:
    with sync.connect(f"journal:{tmp_path}") as bus:
        bus.topic("wind", Wind, qos=helio.STREAM).publish(Wind(speed=7.5))
        with bus.topic("wind").subscribe(start=helio.earliest()) as samples:
            assert samples.next(timeout=TIMEOUT_S).value["speed"] == 7.5
        (file,) = (tmp_path / "schemas").iterdir()
        text = file.read_text()
        file.write_text(text.replace("m/s", "km/h"))
        with pytest.raises(helio.HelioError, match=f"{file}: was edited"):
            bus.topic("wind")
        file.unlink()
        with pytest.raises(helio.SchemaError, match=file.stem):
            bus.topic("wind")
        bus.topic("wind", Wind).publish(Wind(speed=8.5))
        assert file.read_text() == text
        bus.topic("wind")


@asynchronous
async def test_a_timeout_is_a_number(tmp_path: Path) -> None:
    nan = float("nan")
    async with helio.connect(f"journal:{tmp_path}") as bus:
        wind = bus.topic("wind", Wind, qos=helio.STREAM)
        async with wind.subscribe() as samples:
            with pytest.raises(ValueError, match="timeout=nan"):
                await samples.next(timeout=nan)
            with pytest.raises(ValueError, match="timeout=nan"):
                await samples.batch(timeout=nan)
        with pytest.raises(ValueError, match="NaN s"):
            await wind.flush("stored", timeout=nan)
    with sync.connect(f"journal:{tmp_path}") as other:
        again = other.topic("wind", Wind)
        with again.subscribe() as samples_:
            with pytest.raises(ValueError, match="timeout=nan"):
                samples_.next(timeout=nan)
            with pytest.raises(ValueError, match="timeout=nan"):
                samples_.batch(timeout=nan)
        with pytest.raises(ValueError, match="NaN s"):
            again.flush("stored", timeout=nan)


def test_partitions_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with sync.connect(f"journal:{tmp_path}") as bus:
        wind = bus.topic("wind", Wind, qos=helio.STREAM)
        with pytest.raises(helio.QosRefused, match="receives nothing"):
            wind.subscribe(partitions=[])
        for options in ({"partitions": [1]}, {"start": helio.from_offset(0, partition=1)}):
            with pytest.raises(helio.QosRefused, match="no such partition"):
                wind.subscribe(**options)
