"""Topics exactly as in salobj 8: its names, keys, schemas and serializer, on a real broker.

salobj itself is not used (it is not on PyPI). The tests do the same with Confluent's client and
fastavro: one registration a topic, the JSON key of component, index and topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest
from engines import TIMEOUT_S, Plain, url
from probe import Multi, Probe, asynchronous, send
from values import plain as comparable

import heliograph as helio
from heliograph import AckCode, State, sync, testing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

GOLDEN = ("Test",)


def golden(folder: Path, name: str) -> Iterator[Any]:
    with gzip.open(folder / "sal-golden" / "v27.1.1" / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


class Sal:
    """salobj's behaviour for the topics of one sub-name."""

    def __init__(self, plain: Plain, interfaces: Any) -> None:
        self.plain = plain
        self.subname = f"t{secrets.token_hex(4)}"
        self.interfaces = interfaces

    @property
    def bus_url(self) -> str:
        options = f"naming=sal&subname={self.subname}&schema.registry.url={url('apicurio')}"
        return f"{url('kafka')}?{options}"

    def name(self, topic: str) -> str:
        kafka: str = self.interfaces[topic].kafka_name(self.subname)
        return kafka

    def schema(self, topic: str) -> Any:
        return json.loads(self.interfaces[topic].sal_schema.text)

    def write(self, topic: str, index: int = 0, **fields: Any) -> None:
        """Write a sample with its private fields, as a WriteTopic does."""
        found = self.interfaces[topic]
        schema = self.schema(topic)
        now = time.time() + 37.0
        private = {
            "private_sndStamp": now,
            "private_kafkaStamp": now,
            "private_efdStamp": now - 37.0,
            "private_origin": os.getpid(),
            "private_identity": f"user@{self.subname}",
        }
        value = {field["name"]: field["default"] for field in schema["fields"]} | private
        if found.indexed:
            value["salIndex"] = index
        self.plain.register(self.name(topic), schema)
        self.plain.write(self.name(topic), schema, value | fields, found.kafka_key(index))

    def follow(self, topic: str) -> Iterator[tuple[bytes | None, Any]]:
        return self.plain.follow(self.name(topic))

    def read(self, topic: str, count: int) -> list[tuple[bytes | None, Any]]:
        return self.plain.read(self.name(topic), count)


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    with Plain(url("kafka"), url("apicurio")) as client:
        yield client


@pytest.fixture
def sal(plain: Plain, interfaces: Path) -> Sal:
    return Sal(plain, helio.load_interfaces(interfaces))


def test_golden_values_go_both_ways(plain: Plain, shared_data: Path) -> None:
    release = shared_data / "sal-interfaces" / "v27.1.1" / "sal_interfaces"
    sal = Sal(plain, helio.load_interfaces(release))
    topics = {topic.kafka_name(): topic for topic in sal.interfaces.values()}
    lines = golden(shared_data, "schemas.jsonl.gz")
    schemas = {line["kafka_name"]: line["schema"] for line in lines}
    messages = [
        message
        for message in golden(shared_data, "messages.jsonl.gz")
        if topics[message["kafka_name"]].component in GOLDEN
    ]
    assert len(messages) > 20
    with sync.connect(sal.bus_url) as bus:
        for message in messages:
            topic, value = topics[message["kafka_name"]], message["value"]
            schema, name = schemas[message["kafka_name"]], sal.name(topic.name)
            index = value.get("salIndex", 0)
            number = plain.register(name, schema)
            plain.write(name, schema, value, topic.kafka_key(index))
            opened = bus.topic(topic.name, topic.schema, qos=topic.qos)
            opened.publish(value, key=topic.schema.key(index) if topic.indexed else None)
            # As salobj reads it: the same key, the same schema identifier, the values.
            ours = plain.messages(name, 2)[1]
            assert ours.key() == topic.kafka_key(index).encode()
            assert ours.value()[:5] == b"\0" + number.to_bytes(4, "big")
            theirs, back = plain.read(name, 2)
            assert comparable(back) == comparable(theirs)
            with opened.subscribe(start=helio.earliest()) as samples:
                for _ in range(2):
                    sample = samples.next(timeout=TIMEOUT_S)
                    assert comparable(sample.value) == comparable(theirs[1])
                    assert sample.key == (topic.schema.key(index) if topic.indexed else b"")
            with opened.subscribe(start=helio.last(1)) as samples:
                assert comparable(samples.next(timeout=TIMEOUT_S).value) == comparable(theirs[1])


@asynchronous
async def test_salobj_reads_and_commands_our_component(sal: Sal) -> None:
    async with (
        helio.connect(sal.bus_url) as bus,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, _),
    ):
        await probe.evt_position.set_write(value=1.5, forces=[1, 2, 3, 4], text="é", ok=True)
        await probe.tel_sample.set_write(values=[1, 2, 3, 4], number=7)
        ((key, event),) = await asyncio.to_thread(sal.read, "Probe/event/position", 1)
        assert key == b'{ "name": "Probe", "topic": "logevent_position" }'
        assert (event["value"], event["forces"]) == (1.5, [1, 2, 3, 4])
        assert (event["text"], event["ok"]) == ("é", True)
        assert event["private_revCode"] == sal.interfaces["Probe/event/position"].revcode
        assert event["private_identity"] == "Probe"
        ((key, telemetry),) = await asyncio.to_thread(sal.read, "Probe/telemetry/sample", 1)
        assert (key, telemetry["values"], telemetry["number"]) == (b"", [1, 2, 3, 4], 7)

        fields = {"position": 2.5, "axis": 1, "name": "x", "private_seqNum": 77}
        await asyncio.to_thread(sal.write, "Probe/command/move", **fields)
        acks = await asyncio.to_thread(sal.read, "Probe/ackcmd", 1)
        (ack,) = [ack for _, ack in acks]
        assert acks[0][0] == b'{ "name": "Probe", "topic": "ackcmd" }'
        assert (ack["private_seqNum"], ack["ack"], ack["result"]) == (77, 303, "Done")
        assert (ack["identity"], ack["origin"]) == (f"user@{sal.subname}", os.getpid())
        assert (probe.ran[0].position, probe.ran[0].name) == (2.5, "x")


@contextlib.asynccontextmanager
async def remote_of(sal: Sal, component: str, index: int = 0) -> AsyncIterator[Any]:
    async with helio.connect(sal.bus_url) as bus, helio.Remote(bus, component, index) as remote:
        yield remote


@asynchronous
async def test_our_remote_reads_and_commands_a_component_of_salobj(sal: Sal) -> None:
    sal.write("Multi/event/position", 2, value=-1.0, text="other")
    sal.write("Multi/event/position", 3, value=2.5, forces=[4, 3, 2, 1], private_seqNum=5)
    sal.write("Multi/telemetry/sample", 3, values=[4, 3, 2, 1], number=9)
    async with remote_of(sal, "Multi", 3) as remote:
        event = await remote.evt_position.aget(timeout=TIMEOUT_S)
        assert (event.value, event.forces.tolist()) == (2.5, [4, 3, 2, 1])
        assert (event.salIndex, event.private_seqNum) == (3, 5)
        sample = await remote.tel_sample.aget(timeout=TIMEOUT_S)
        assert (sample.number, sample.values.tolist()) == (9, [4, 3, 2, 1])
        await asyncio.to_thread(sal.write, "Multi/event/heartbeat", 3)
        call = send(remote.cmd_move, axis=1, position=3.0, timeout=TIMEOUT_S)
        ((key, command),) = await asyncio.to_thread(sal.read, "Multi/command/move", 1)
        assert key == b'{ "name": "Multi", "index": 3, "topic": "command_move" }'
        assert (command["salIndex"], command["position"], command["axis"]) == (3, 3.0, 1)
        answer = {
            "private_seqNum": command["private_seqNum"],
            "identity": command["private_identity"],
            "origin": command["private_origin"],
            "ack": 303,
            "result": "Done.",
        }
        await asyncio.to_thread(sal.write, "Multi/ackcmd", 3, **answer)
        ack = await call
        assert (ack.ack, ack.result) == (AckCode.COMPLETE, "Done.")


@asynchronous
async def test_our_component_and_remote_meet_under_salobj_s_names(sal: Sal) -> None:
    async with (
        helio.connect(sal.bus_url) as bus,
        testing.component(Multi, bus=bus, index=2, initial_state=State.ENABLED) as made,
    ):
        _, remote = made
        assert (await remote.evt_summaryState.aget(timeout=TIMEOUT_S)).salIndex == 2
        ack = await send(remote.cmd_move, axis=1, timeout=TIMEOUT_S)
        assert ack.ack is AckCode.COMPLETE
        names = {str(name) for name in await bus.topics()}
        assert {"Multi/event/summaryState", "Multi/command/move", "Multi/ackcmd"} <= names
