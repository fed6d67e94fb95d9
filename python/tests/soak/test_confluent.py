"""Confluent's own Python client beside the bus, on a real broker with a real registry."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from engines import TIMEOUT_S, Plain, registry, url

import heliograph as helio
from heliograph import sync

if TYPE_CHECKING:
    from collections.abc import Iterator


@helio.record
class Wind:
    """The record that the tests write."""

    speed: helio.Float64 = helio.field(unit="m/s")
    gusts: helio.Array[helio.Float32, 3] = helio.field(unit="m/s")
    site: str = ""


SCHEMA = json.loads(helio.schema(Wind).text)


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    with Plain(url("kafka"), url("apicurio")) as client:
        yield client


@pytest.fixture
def bus(plain: Plain) -> Iterator[sync.Bus]:
    options = f"schema.registry.url={url('apicurio')}"
    with sync.connect(f"{url('kafka')}?{options}") as connected:
        yield connected


def value(n: int) -> dict[str, Any]:
    return {"speed": n / 2, "gusts": [n, 0.5, -0.25], "site": "é"}


def test_confluent_s_deserializer_reads_what_the_bus_writes(bus: sync.Bus, plain: Plain) -> None:
    name = f"ours.{secrets.token_hex(4)}"
    topic = bus.topic(name, Wind, qos=helio.EVENT)
    for n in range(3):
        topic.publish(Wind(speed=n / 2, gusts=np.array([n, 0.5, -0.25], "f4"), site="é"), key=b"k")
    assert plain.read(name, 3) == [(b"k", value(n)) for n in range(3)]
    latest = plain.registry.get_latest_version(f"{name}-value")
    assert json.loads(latest.schema.schema_str) == SCHEMA


def test_the_bus_reads_what_confluent_s_serializer_writes(bus: sync.Bus, plain: Plain) -> None:
    name = f"theirs.{secrets.token_hex(4)}"
    for n in range(3):
        plain.write(name, SCHEMA, value(n), key="k")
    with bus.topic(name, Wind).subscribe(start=helio.earliest()) as samples:
        for n in range(3):
            sample = samples.next(timeout=TIMEOUT_S)
            assert (sample.value.speed, sample.value.site) == (n / 2, "é")
            assert sample.value.gusts.tolist() == [n, 0.5, -0.25]
            assert sample.key == b"k"
        assert (samples.stats.lost, samples.stats.undecodable) == (0, 0)


def test_plain_records_are_bytes_on_both_sides(bus: sync.Bus, plain: Plain) -> None:
    name = f"bytes.{secrets.token_hex(4)}"
    topic = bus.topic(name, qos=helio.STREAM)
    topic.publish(b"\0\1 ours", key=b"k")
    plain.producer.produce(name, value=b"theirs", key=b"k")
    plain.producer.flush(TIMEOUT_S)
    found = [(message.key(), message.value()) for message in plain.messages(name, 2)]
    assert found == [(b"k", b"\0\1 ours"), (b"k", b"theirs")]
    with topic.subscribe(start=helio.earliest()) as samples:
        for payload in (b"\0\1 ours", b"theirs"):
            assert samples.next(timeout=TIMEOUT_S).payload == payload


def test_a_level_that_confluent_s_client_sets_refuses_ours(bus: sync.Bus, plain: Plain) -> None:
    name = f"level.{secrets.token_hex(4)}"
    plain.register(name, SCHEMA)
    level = registry.ServerConfig(compatibility=registry.ConfigCompatibilityLevel.FULL)
    plain.registry.set_config(f"{name}-value", level)

    @helio.record
    class Other:
        """Its only field has another type, and no default."""

        speed: str

    with pytest.raises(helio.IncompatibleSchema, match="409"):
        bus.topic(name, Other, qos=helio.EVENT, evolution="none").publish(Other(speed="7"))
