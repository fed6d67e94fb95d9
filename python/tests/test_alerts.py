"""Alerts: published from bytes, values and arrays, and read as batches, dictionaries and bytes."""

from __future__ import annotations

import asyncio
import inspect
import io
from typing import TYPE_CHECKING, Any

import fastavro
import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from probe import asynchronous

import heliograph as helio
from heliograph import alerts, sync, testing

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 60.0
COLUMNS = ["diaSource.diaSourceId", "diaSource.snr", "diaObject.diaObjectId"]

SMALL = {
    "type": "record",
    "name": "alert",
    "fields": [
        {"name": "candid", "type": "long"},
        {"name": "flux", "type": ["null", "float"]},
        {
            "name": "past",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "point",
                    "fields": [
                        {"name": "mjd", "type": "double"},
                        {"name": "band", "type": "string"},
                        {"name": "flags", "type": ["null", "int"]},
                    ],
                },
            },
        },
        {"name": "cutoutScience", "type": ["null", "bytes"]},
    ],
}


def small(count: int, first: int = 0) -> list[dict[str, Any]]:
    points = [{"mjd": 0.5, "band": "r", "flags": 7}, {"mjd": 1.5, "band": "i", "flags": None}]
    return [
        {"candid": first + n, "flux": n / 2, "past": points[: n % 3], "cutoutScience": b"s" * n}
        for n in range(count)
    ]


async def published(bus: helio.Bus, visits: int = 1, count: int = 20, **options: Any) -> list[int]:
    """Publish generated visits of two detectors; return the visits' identifiers."""
    producer = alerts.CcdProducer(bus, "alerts", partitions=2, **options)
    found = []
    for number in range(visits):
        packets = [
            testing.alert_packets(number, ccd, alerts_per_visit=2 * count, detectors=2, history=3)
            for ccd in range(2)
        ]
        visit = packets[0][0]
        await producer.open_visit(visit, detectors=range(2), shutter_close=helio.Time.now())
        for ccd, (_, datums) in enumerate(packets):
            outcome = await producer.publish(visit=visit, detector=ccd, packets=datums)
            assert outcome.is_published
            assert outcome.manifest.alerts.startswith(f"{count}:")
        found.append(visit)
    return found


@asynchronous
async def test_batches_are_arrow_s(url: str) -> None:
    async with helio.connect(url) as bus:
        [visit] = await published(bus)
        columns = [*COLUMNS, "prvDiaSources[].psfFlux"]
        stream = alerts.open(bus, "alerts")
        async with stream.subscribe(columns=columns, start="earliest", batch_alerts=15) as batches:
            found = []
            while sum(map(len, found)) < 40:
                batch = await batches.batch(timeout=TIMEOUT_S)
                assert batch is not None
                found.append(batch)
        assert all(len(batch) <= 15 for batch in found)
        table = pa.Table.from_batches([pa.record_batch(batch) for batch in found])
        assert table.column_names == [*COLUMNS, "prvDiaSources"]
        ids = table["diaSource.diaSourceId"].to_pylist()
        assert ids == [number for batch in found for number in batch.ids.tolist()]
        assert len(set(ids)) == 40
        assert set(np.concatenate([batch.visits for batch in found])) == {visit}
        assert sorted(set(np.concatenate([batch.detectors for batch in found]))) == [0, 1]
        histories = table["prvDiaSources"].to_pylist()
        assert all(len(history) == 3 for history in histories)
        # Each capsule owns its columns: a batch is read again, and outlives the subscription.
        assert na.Array(found[0]).to_pylist() == pa.record_batch(found[0]).to_pylist()
        again = pa.record_batch(found[0])
        assert again.equals(pa.record_batch(found[0]))
        assert again.schema == pa.schema(found[0])
        assert again.schema.field("diaSource.snr").type == pa.float32()


@asynchronous
async def test_values_arrays_and_bytes_give_equal_packets(url: str) -> None:
    producer = alerts.CcdProducer
    async with helio.connect(url) as bus:
        values = small(7)
        by_values = producer(bus, "alerts", schema=SMALL)
        datums = by_values.encode(values)
        lengths = [len(value["past"]) for value in values]
        points = [point for value in values for point in value["past"]]
        flags = [-1 if point["flags"] is None else point["flags"] for point in points]
        columns = {
            "candid": np.arange(7),
            "flux": np.arange(7) / 2,
            "past": np.concatenate([[0], np.cumsum(lengths)]),
            "past[].mjd": np.array([point["mjd"] for point in points]),
            "past[].band": [point["band"] for point in points],
            "past[].flags": np.ma.masked_less(flags, 0),
            "cutoutScience": [value["cutoutScience"] for value in values],
        }
        assert by_values.encode(columns) == datums
        assert by_values.encode([memoryview(datum) for datum in datums]) == datums
        mixed = [datums[0], *values[1:]]
        assert by_values.encode(mixed) == datums
        parsed = fastavro.parse_schema(SMALL)
        read = [fastavro.schemaless_reader(io.BytesIO(datum), parsed, None) for datum in datums]
        assert read == values
        for kind in (values, columns, datums):
            outcome = await by_values.publish(visit=1, detector=0, packets=kind)
            assert outcome.is_published
        async with alerts.open(bus).subscribe(start="earliest", stamps="inline") as packets:
            found = []
            async for packet in packets.packets():
                found.append(packet)
                if len(found) == 7:
                    break
            assert found == values
            # The second and the third time they are repetitions, which are dropped by identifier.
            assert await packets.alert(timeout=1.0) is None
            assert packets.dropped == {"duplicate": 14}


def test_a_wrong_column_is_named() -> None:
    with testing.sync_memory_bus() as bus:
        producer = alerts.sync.CcdProducer(bus, schema=SMALL)
        good: dict[str, Any] = {
            "candid": np.arange(3),
            "past": [0, 0, 1, 2],
            "past[].mjd": [0.5, 1.5],
            "past[].band": "r",
        }
        assert len(producer.encode(good)) == 3
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"fluks": [1.0] * 3}, "no field for the column fluks"),
            ({"flux": [1.0] * 2}, "flux has 2 values where 3 are expected"),
            ({"flux": ["a"] * 3}, "the column flux: "),
            ({"candid": [0.5] * 3}, "the column candid: Cannot cast"),
            ({"candid": np.array([2**63] * 3, dtype=np.uint64)}, "candid: .* 64 bits"),
            ({"candid": np.ma.masked_less([1, 2, 3], 2)}, "candid has a null at 0"),
            ({"past[].flags": [1 << 40, 0]}, "1099511627776 does not fit 32 bits"),
            ({"past": [0, 2, 1, 2]}, "offsets past are not in order at 2"),
            ({"past[].band": ["r", 5]}, "the column past\\[\\].band"),
            ({"cutoutScience": np.zeros((3, 30))}, "alerts, rows, columns"),
        ]
        for change, message in wrong:
            with pytest.raises(helio.EncodeError, match=message):
                producer.encode({**good, **change})
        with pytest.raises(helio.EncodeError, match="the column candid is missing"):
            producer.encode({"flux": [1.0]})
        with pytest.raises(helio.EncodeError, match=r"field past\[0\].mjd"):
            producer.encode([{"candid": 1, "flux": None, "past": [{}], "cutoutScience": None}])


def test_images_become_fits_files() -> None:
    with testing.sync_memory_bus() as bus:
        producer = alerts.sync.CcdProducer(bus, schema=SMALL)
        pixels = np.arange(2 * 30 * 30, dtype=np.float32).reshape(2, 30, 30)
        columns = {
            "candid": [1, 2],
            "past": [0, 0, 0],
            "past[].mjd": [],
            "past[].band": [],
            "cutoutScience": pixels,
            "cutoutScience.variance": pixels + 0.5,
            "cutoutScience.psf": np.full((41, 41), 0.25),
        }
        values = [producer.schema.decode(datum) for datum in producer.encode(columns)]
        for row, value in enumerate(values):
            with fits.open(io.BytesIO(value["cutoutScience"])) as file:
                file.verify("exception")
                assert [hdu.name for hdu in file] == ["PRIMARY", "UNCERT", "PSFIMAGE"]
                np.testing.assert_array_equal(file[0].data, pixels[row])
                np.testing.assert_array_equal(file["UNCERT"].data, pixels[row] + 0.5)
                assert file["PSFIMAGE"].data.shape == (41, 41)


@asynchronous
async def test_one_bad_packet_drops_only_itself(url: str) -> None:
    async with helio.connect(url) as bus:
        producer = alerts.CcdProducer(bus, schema=SMALL, partitions=1)
        await producer.publish(visit=1, detector=0, packets=small(100))
        await bus.topic("alerts", bytes).publish(b"no packet", partition=0)
        await producer.publish(visit=2, detector=0, packets=small(155, first=1_000))
        seen: list[helio.Event] = []
        stream = alerts.open(bus)
        async with stream.subscribe(columns=["candid"], start="earliest") as whole:
            count = 0
            async for item in whole.events():
                if isinstance(item, alerts.Batch):
                    count += len(item)
                elif isinstance(item, alerts.Dropped):
                    seen.append(item)
                if count == 255 and seen:
                    break
            assert whole.dropped == {"damaged": 1}
        [dropped] = seen
        assert isinstance(dropped, alerts.Dropped)
        assert (dropped.partition, dropped.offset, dropped.cause) == (0, 100, "damaged")


@asynchronous
async def test_a_visit_is_opened_decided_and_audited(url: str) -> None:
    async with helio.connect(url) as bus:
        [visit] = await published(bus)
        async with alerts.open(bus).subscribe(columns=COLUMNS, start="earliest") as whole:
            items = []
            async for item in whole.events():
                items.append(item)
                if isinstance(item, alerts.VisitDecided):
                    break
            kinds = [type(item) for item in items if type(item) is not helio.Assigned]
            assert alerts.VisitOpened in kinds
            [opened] = [item for item in items if isinstance(item, alerts.VisitOpened)]
            assert (opened.visit, opened.detectors, opened.window) == (visit, [0, 1], 60.0)
            decided = items[-1]
            assert isinstance(decided, alerts.VisitDecided)
            assert decided.is_complete
            assert decided.totals.startswith("40:")
            audit = await whole.audit(visit)
            assert audit.is_equal
            assert (audit.found, audit.decided) == (decided.totals, decided.totals)
            assert [row.finding for row in audit.detectors] == ["equal", "equal"]
            assert await whole.lag() == 0
            with pytest.raises(helio.SubscribeError, match="visit 5"):
                await whole.audit(5)


@asynchronous
async def test_starts_commits_and_checkpoints(url: str) -> None:
    async with helio.connect(url) as bus:
        visits = await published(bus, visits=3)
        stream = alerts.open(bus)

        async def first(**options: Any) -> alerts.Alert:
            async with stream.subscribe(**options) as found:
                alert = await found.alert(timeout=TIMEOUT_S)
                assert alert is not None
                return alert

        second = await first(start=f"visit:{visits[1]}")
        assert second.visit == visits[1]
        assert (await first(start=f"alert:{second.id}")).id == second.id
        assert (await first(start=helio.since(helio.Time(0)))).visit == visits[0]
        with pytest.raises(helio.SubscribeError, match="visit 5"):
            await first(start="visit:5")
        with pytest.raises(ValueError, match="latest, earliest, committed, visit:3"):
            await first(start="visit:one")
        with pytest.raises(ValueError, match="only latest"):
            stream.subscribe(start=helio.last(1))

        async with stream.subscribe(start="earliest", group="g") as member:
            returned = []
            async for alert in member.alerts():
                returned.append(alert.id)
                if len(returned) == 50:
                    break
            # 70 more are read already, and not returned: they are not committed.
            assert await member.lag() == 70
            await member.commit()
            await member.checkpoint("fifty")
        async with stream.subscribe(group="g") as member:
            rest = [alert.id async for alert in _first(member, 70)]
        assert len(set(returned) | set(rest)) == 120
        async with stream.subscribe(start="checkpoint:fifty") as again:
            assert {alert.id async for alert in _first(again, 70)} == set(rest)
            await again.rewind("earliest")
            assert len({alert.id async for alert in _first(again, 120)}) == 120
        await stream.rewind("g", f"visit:{visits[2]}")
        assert (await first(group="g")).visit == visits[2]
        async with stream.subscribe() as nobody:
            with pytest.raises(helio.SubscribeError, match="group"):
                await nobody.commit()


async def _first(found: alerts.AlertSubscription, count: int) -> Any:
    for _ in range(count):
        alert = await found.alert(timeout=TIMEOUT_S)
        assert alert is not None, "an alert is missing"
        yield alert


@pytest.mark.parametrize("layout", ["inline", "split", "packed"])
@asynchronous
async def test_stamps_come_as_wanted_from_each_layout(url: str, layout: str) -> None:
    async with helio.connect(url) as bus:
        await published(bus, stamps=layout, count=5)
        _, datums = testing.alert_packets(0, 0, alerts_per_visit=10, detectors=2, history=3)
        schema = alerts.rubin_schema("11.1")
        wanted = {packet["diaSourceId"]: packet for packet in map(schema.decode, datums)}
        names = ["cutoutDifference", "cutoutScience", "cutoutTemplate"]
        stream = alerts.open(bus)
        async with stream.subscribe(start="earliest", stamps="inline") as whole:
            async for alert in _first(whole, 10):
                if alert.detector == 0:
                    assert alert.payload in datums
                    assert alert.view == alert.payload
        async with stream.subscribe(start="earliest", stamps="linked") as linked:
            async for alert in _first(linked, 10):
                if alert.detector == 0:
                    packet = wanted[alert.id]
                    assert alert.stamps == {name: packet[name] for name in names}
                    assert alert.value["cutoutScience"] is None
        async with stream.subscribe(start="earliest", stamps="linked", columns=COLUMNS) as linked:
            batch = await linked.batch(timeout=TIMEOUT_S)
            assert batch is not None
            row = batch.ids.tolist().index(next(number for number in batch.ids if number in wanted))
            stamps = batch.stamps(row)
            assert stamps == {name: wanted[batch.ids[row]][name] for name in names}
            with pytest.raises(IndexError):
                batch.stamps(len(batch))
        async with stream.subscribe(start="earliest") as bare:
            async for alert in _first(bare, 10):
                assert alert.stamps is None
                assert alert.value["cutoutScience"] is None
        with pytest.raises(ValueError, match=r"none, linked, inline or url"):
            async with stream.subscribe(stamps="some"):  # type: ignore[arg-type]
                pass


@asynchronous
async def test_stamps_by_url_are_where_the_stream_s_service_announces_them(url: str) -> None:
    fields = [("name", "string"), ("url", "string"), ("since_ns", "long")]
    service = {
        "type": "record",
        "name": "helio.alerts.ServiceAddress",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }
    async with helio.connect(url) as bus:
        await published(bus, count=5)
        stream = alerts.open(bus)
        with pytest.raises(helio.SubscribeError, match="helio-alerts serve"):
            async with stream.subscribe(stamps="url"):
                pass
        topic = bus.topic("alerts/services", service, qos=helio.EVENT)
        for host in ("old", "new"):
            template = f"http://{host}/stamps/{{alert}}/{{stamp}}"
            value = {"name": "stamps", "url": template, "since_ns": 0}
            await topic.publish(value, key="stamps")
            await topic.publish({**value, "name": "other", "url": "x"}, key="other")
        found = stream.subscribe(stamps="url", start="earliest", columns=COLUMNS)
        with pytest.raises(RuntimeError, match="once something was read"):
            found.stamp_url(1, "cutoutScience")
        async with found:
            batch = await found.batch(timeout=TIMEOUT_S)
            assert batch is not None
            alert = int(batch.ids[0])
            address = found.stamp_url(alert, "cutoutScience")
            assert address == f"http://new/stamps/{alert}/cutoutScience"
            assert batch.stamps(0) is None


@asynchronous
async def test_raw_packets_are_bytes_or_pinned(tmp_path: Path) -> None:
    async with helio.connect(f"journal:{tmp_path / 'journal'}") as bus:
        await published(bus, count=5)
        stream = alerts.open(bus)
        async with stream.subscribe(start="earliest", stamps="inline") as copied:
            raw = []
            async for packet in copied.raw():
                assert type(packet) is bytes
                raw.append(packet)
                if len(raw) == 10:
                    break
        async with stream.subscribe(
            start="earliest", stamps="inline", pinned_bytes=1 << 30
        ) as pinned:
            views = []
            async for packet in pinned.raw():
                assert isinstance(packet, memoryview)
                assert packet.readonly
                views.append(packet)
                if len(views) == 10:
                    break
        # They outlive the subscription.
        assert [bytes(view) for view in views] == raw
        # The same of any topic's samples.
        topic = bus.topic("alerts", bytes)
        async with topic.subscribe(start=helio.earliest(), pinned_bytes=1 << 30) as samples:
            found = [await samples.next(timeout=TIMEOUT_S) for _ in range(10)]
        assert all(sample.is_pinned and sample.view == sample.payload for sample in found)
        assert sorted(bytes(sample.view) for sample in found) == sorted(raw)
        typed = bus.topic("alerts")
        async with typed.subscribe(start=helio.earliest(), pinned_bytes=1 << 30) as values:
            value = (await values.next(timeout=TIMEOUT_S)).value
            assert value["diaSourceId"] > 0
        async with topic.subscribe(start=helio.earliest()) as samples:
            sample = await samples.next(timeout=TIMEOUT_S)
            assert not sample.is_pinned
            assert sample.view == sample.payload


@asynchronous
async def test_what_a_cancelled_wait_has_read_is_not_lost() -> None:
    async with testing.memory_bus() as bus:
        producer = alerts.CcdProducer(bus, schema=SMALL)
        await producer.publish(visit=1, detector=0, packets=small(1))
        async with alerts.open(bus).subscribe(columns=["candid"], start="earliest") as found:
            ids: list[int] = []
            for number in range(20):
                waiting = asyncio.ensure_future(found.batch())
                await asyncio.sleep(0)
                waiting.cancel()
                packets = small(1, first=number + 1)
                await producer.publish(visit=1, detector=0, packets=packets)
                # What was in the queue already comes at once: there was no wait to cancel.
                [came] = await asyncio.gather(waiting, return_exceptions=True)
                if isinstance(came, alerts.Batch):
                    ids += came.ids.tolist()
            while len(ids) < 21:
                batch = await found.batch(timeout=TIMEOUT_S)
                assert batch is not None
                ids += batch.ids.tolist()
            assert ids == list(range(21))
            with pytest.raises(RuntimeError, match="read as batches: open another one for alerts"):
                await found.alert()
            # A call is not held up by a task that waits.
            waiting = asyncio.ensure_future(found.batch())
            assert await asyncio.wait_for(found.lag(), TIMEOUT_S) == 0
            found.close()
            with pytest.raises(helio.ClosedError):
                await waiting


@asynchronous
async def test_alerts_whose_columns_no_schema_has_are_not_lost() -> None:
    async with testing.memory_bus() as bus:
        # It has no schema yet, in which the columns could be found at once.
        bus.topic("alerts", bytes, qos=helio.STREAM)
        stream = alerts.open(bus)
        async with stream.subscribe(columns=["nowhere"], start="earliest", group="g") as found:
            await alerts.CcdProducer(bus, schema=SMALL).publish(
                visit=1, detector=0, packets=small(3)
            )
            for _ in range(2):
                with pytest.raises(helio.SchemaError, match="nowhere"):
                    await found.batch(timeout=TIMEOUT_S)
            assert await found.lag() == 3
            await found.commit()
        async with stream.subscribe(columns=["candid"], group="g") as found:
            batch = await found.batch(timeout=TIMEOUT_S)
            assert batch is not None
            assert batch.ids.tolist() == [0, 1, 2]


@asynchronous
async def test_columns_of_schemas_that_change_in_mid_night(url: str) -> None:
    async with helio.connect(url) as bus:
        for number, version in enumerate(["9.0", "10.0", "11.1"]):
            _, packets = testing.alert_packets(
                number, 0, version=version, alerts_per_visit=4, detectors=1, stamps="none"
            )
            producer = alerts.CcdProducer(bus, schema=version, partitions=1)
            outcome = await producer.publish(visit=number, detector=0, packets=packets)
            assert outcome.is_published
        columns = ["diaSource.exposureTime", "diaSource.psfNdata", "diaSourceId"]
        async with alerts.open(bus).subscribe(columns=columns, start="earliest") as found:
            rows: list[dict[str, Any]] = []
            while len(rows) < 12:
                batch = await found.batch(timeout=TIMEOUT_S)
                rows += pa.record_batch(batch).to_pylist()
            assert found.dropped == {}
        assert len({row["diaSourceId"] for row in rows}) == 12
        # The newest version only has it.
        assert all(row["diaSource.exposureTime"] is None for row in rows[:8])
        with pytest.raises(helio.SchemaError, match=r"diaSource\.snrr"):
            async with alerts.open(bus).subscribe(columns=["diaSource.snrr"]):
                pass


@asynchronous
async def test_a_type_that_becomes_wider_starts_another_batch() -> None:
    async with testing.memory_bus() as bus:
        stream = alerts.open(bus)
        narrow = {**SMALL, "fields": [SMALL["fields"][0], {"name": "flux", "type": "float"}]}
        wide = {**SMALL, "fields": [SMALL["fields"][0], {"name": "flux", "type": "double"}]}
        await alerts.CcdProducer(bus, schema=narrow, partitions=1).publish(
            visit=1, detector=0, packets={"candid": [1], "flux": [0.5]}
        )
        async with stream.subscribe(columns=["flux"], start="earliest") as found:
            first = await found.batch(timeout=TIMEOUT_S)
            await alerts.CcdProducer(bus, schema=wide, partitions=1).publish(
                visit=1, detector=0, packets={"candid": [2, 3], "flux": [1.5, 2.5]}
            )
            second = await found.batch(timeout=TIMEOUT_S)
            assert pa.record_batch(first)["flux"].type == pa.float32()
            assert pa.record_batch(second)["flux"].to_pylist() == [1.5, 2.5]
            assert pa.record_batch(second)["flux"].type == pa.float64()
            assert found.dropped == {}


@asynchronous
async def test_what_the_bus_does_not_accept_is_named_spilled_and_replayed(tmp_path: Path) -> None:
    url = testing.memory_url()
    async with helio.connect(testing.fault_url(url, doubt=1, seed=1)) as bus:
        producer = alerts.CcdProducer(
            bus, schema=SMALL, retry_for=0.2, spill=tmp_path / "spill", partitions=2
        )
        outcome = await producer.publish(visit=7, detector=3, packets=small(5))
        assert not outcome.is_published
        assert outcome.failed == [0, 1, 2, 3, 4]
        assert outcome.cause
        assert outcome.spilled is not None
    with outcome.spilled.open("rb") as file:
        assert list(fastavro.reader(file)) == small(5)
    async with helio.connect(url) as bus:
        producer = alerts.CcdProducer(bus, schema=SMALL, partitions=2)
        replayed = await producer.replay(outcome.spilled)
        assert replayed.is_published
        assert replayed.manifest.alerts == outcome.manifest.alerts
        assert not outcome.spilled.exists()
        with pytest.raises(OSError, match="visit-7"):
            await producer.replay(outcome.spilled)
        async with alerts.open(bus).subscribe(start="earliest", stamps="inline") as found:
            values = [alert.value async for alert in _first(found, 5)]
            assert values == small(5)


def test_the_synchronous_twin(url: str) -> None:
    with sync.connect(url) as bus:
        producer = alerts.sync.CcdProducer(bus, schema=SMALL, partitions=1)
        producer.open_visit(1, detectors=[0], shutter_close=helio.Time.now(), window=600.0)
        assert producer.publish(visit=1, detector=0, packets=small(9)).is_published
        stream = alerts.sync.open(bus)
        with stream.subscribe(start="earliest", group="g", stamps="inline") as found:
            packets = found.packets()
            assert [next(packets) for _ in range(4)] == small(4)
            found.commit()
            assert found.lag() == 5
            found.checkpoint("four")
        with stream.subscribe(group="g", stamps="inline") as found:
            assert [bytes(next(found.raw())) for _ in range(1)] == producer.encode(small(5))[4:]
        stream.rewind("g", "earliest")
        with stream.subscribe(start="earliest", columns=["candid"]) as whole:
            for item in whole.events():
                if isinstance(item, alerts.VisitDecided):
                    break
            assert whole.audit(1).is_equal
            whole.rewind("checkpoint:four")
            assert next(whole).ids.tolist() == [4, 5, 6, 7, 8]
            assert whole.batch(timeout=0.01) is None
        assert list(whole) == []
        with pytest.raises(helio.ClosedError):
            whole.batch()


def test_the_twins_have_equal_signatures() -> None:
    for name in alerts.sync.__all__:
        ours, theirs = getattr(alerts, name), getattr(alerts.sync, name)
        if inspect.isfunction(ours):
            assert ours.__name__ == theirs.__name__
            continue
        members = {member for member in vars(ours) | vars(theirs) if not member.startswith("_")}
        for member in members:
            parameters = [
                list(inspect.signature(getattr(kind, member)).parameters) for kind in (ours, theirs)
            ]
            assert parameters[0] == parameters[1], f"{name}.{member}"
