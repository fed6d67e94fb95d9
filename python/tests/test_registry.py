"""`helio registry`, by Confluent's own Python client and by the transport of ours."""

from __future__ import annotations

import json
import secrets
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from engines import PATIENCE_S, Plain, registry, url
from processes import program, started

import heliograph as helio
from heliograph import sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_FOUND, CONFLICT, UNPROCESSABLE = 404, 409, 422
SCHEMA = {"type": "record", "name": "W", "fields": [{"name": "a", "type": "int", "default": 0}]}
WIDER = {"type": "record", "name": "W", "fields": [{"name": "a", "type": "double", "default": 0}]}


class Served:
    """A registry of its own process."""

    def __init__(self, folder: Path) -> None:
        arguments = ["registry", "--listen", "127.0.0.1:0", "--json", f"journal:{folder}"]
        self.process = started(program(), *arguments)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.url: str = json.loads(line)["url"]

    def kill(self) -> None:
        """End it as power loss ends a process."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "journal")


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with registry.SchemaRegistryClient({"url": served.url}) as made:
        yield made


def avro(schema: Any) -> Any:
    return registry.Schema(json.dumps(schema), "AVRO")


def level(word: str) -> Any:
    return registry.ServerConfig(compatibility=registry.ConfigCompatibilityLevel[word])


def refused(status: int, call: Any, *arguments: Any, **options: Any) -> int:
    with pytest.raises(registry.SchemaRegistryError) as told:
        call(*arguments, **options)
    assert told.value.http_status_code == status
    return int(told.value.error_code)


def test_confluent_s_client_finds_what_it_registered(client: Any) -> None:
    assert client.get_subjects() == []
    number = client.register_schema("a/b c-value", avro(SCHEMA))
    client.set_config("a/b c-value", level("BACKWARD"))
    assert client.register_schema("other", avro(SCHEMA)) == number
    client.clear_caches()
    assert json.loads(client.get_schema(number).schema_str) == SCHEMA
    assert client.get_subjects() == ["a/b c-value", "other"]
    second = client.register_schema("a/b c-value", avro(WIDER))
    assert client.get_versions("a/b c-value") == [1, 2]
    latest = client.get_latest_version("a/b c-value")
    assert (latest.schema_id, latest.version) == (second, 2)
    found = client.lookup_schema("a/b c-value", avro(SCHEMA))
    assert (found.schema_id, found.version) == (number, 1)
    assert refused(NOT_FOUND, client.get_schema, 77) == 40403
    assert refused(NOT_FOUND, client.get_versions, "none") == 40401
    assert refused(NOT_FOUND, client.get_version, "other", 9) == 40402
    assert refused(UNPROCESSABLE, client.register_schema, "x", avro({"type": "recrod"})) == 42201
    assert client.delete_version("a/b c-value", 1) == 1
    assert client.get_versions("a/b c-value") == [2]
    assert client.delete_subject("a/b c-value") == [2]
    assert client.get_subjects() == ["other"]
    assert client.delete_subject("a/b c-value", permanent=True) == [1, 2]


def test_levels_are_held_to(client: Any) -> None:
    assert client.get_config().compatibility_level == "BACKWARD"
    client.register_schema("s", avro(WIDER))
    assert not client.test_compatibility("s", avro(SCHEMA))
    assert refused(CONFLICT, client.register_schema, "s", avro(SCHEMA)) == CONFLICT
    client.set_config("s", level("FORWARD"))
    assert client.get_config("s").compatibility_level == "FORWARD"
    assert client.test_compatibility("s", avro(SCHEMA))
    client.register_schema("s", avro(SCHEMA))
    program_says = [program(), "schema", "compatibility"]
    for word in ("FULL", "NONE"):
        set_it = [*program_says, client._rest_client.base_urls[0], "s", "--set", word]
        told = subprocess.run(set_it, capture_output=True, text=True, check=True)
        assert told.stdout.strip() == word
        client.clear_caches()
        assert client.get_config("s").compatibility_level == word


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
            values = [samples.next(timeout=PATIENCE_S).value for _ in range(2)]
        assert values == [{"a": 7}, {"a": 8}]
        wider = helio.schema(json.dumps(WIDER))
        bus.topic(name, wider, evolution="none").publish({"a": 0.5})
        text = json.dumps(SCHEMA).replace('"int"', '"string"').replace("0", '""')
        other = bus.topic(name, helio.schema(text), evolution="none")
        with pytest.raises(helio.IncompatibleSchema, match="409"):
            other.publish({"a": "x"})
