"""`helio registry` with Kafka, and after kill -9."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest
from engines import TIMEOUT_S, Plain, registry, url
from registry_server import SCHEMA, WIDER, Served, avro, level

import heliograph as helio
from heliograph import sync

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "journal")


def test_kill_9_takes_back_nothing(served: Served, tmp_path: Path) -> None:
    numbers = {}
    with registry.SchemaRegistryClient({"url": served.url}) as client:
        for n in range(20):
            schema = SCHEMA | {"name": f"W{n}"}
            numbers[n] = client.register_schema(f"s{n}", avro(schema))
        client.set_config("s3", level("FULL"))
        served.kill()
    again = Served(tmp_path / "journal")
    with registry.SchemaRegistryClient({"url": again.url}) as client:
        assert len(client.get_subjects()) == len(numbers)
        for n, number in numbers.items():
            assert json.loads(client.get_schema(number).schema_str)["name"] == f"W{n}"
        assert client.get_config("s3").compatibility_level == "FULL"
        fresh = client.register_schema("fresh", avro(SCHEMA))
        assert fresh not in numbers.values()


def test_our_kafka_and_confluent_s_client_meet_at_it(served: Served) -> None:
    name = f"meet.{secrets.token_hex(4)}"
    with (
        Plain(url("kafka"), served.url) as plain,
        sync.connect(f"{url('kafka')}?schema.registry.url={served.url}") as bus,
    ):
        schema = helio.schema(json.dumps(SCHEMA))
        topic = bus.topic(name, schema, qos=helio.EVENT)
        topic.publish({"a": 7}, key=b"k")
        plain.write(name, SCHEMA, {"a": 8}, key="k")
        assert plain.read(name, 2) == [(b"k", {"a": 7}), (b"k", {"a": 8})]
        with topic.subscribe(start=helio.earliest()) as samples:
            values = [samples.next(timeout=TIMEOUT_S).value for _ in range(2)]
        assert values == [{"a": 7}, {"a": 8}]
        wider = helio.schema(json.dumps(WIDER))
        bus.topic(name, wider, evolution="none").publish({"a": 0.5})
        text = json.dumps(SCHEMA).replace('"int"', '"string"').replace("0", '""')
        other = bus.topic(name, helio.schema(text), evolution="none")
        with pytest.raises(helio.IncompatibleSchema, match="409"):
            other.publish({"a": "x"})
