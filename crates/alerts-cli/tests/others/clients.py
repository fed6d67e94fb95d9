"""Reads users' results with the clients of other brokers, unmodified, and prints what they have.

Arguments: the brokers, the registry, and `KIND:TOPIC:COUNT` for each topic. A line of JSON for each
result, in order: the kind and the decoded datum. Stamps are replaced by their number of bytes.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import confluent_kafka
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fink_client.consumer import AlertConsumer
from lasair import lasair_consumer
from lasair.RL_consumer import lasair_RL_consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 120
GROUPS = itertools.count()


def confluent(servers: str, registry: str, topic: str) -> Iterator[dict | None]:
    """Confluent's deserializer, which looks the schema up at the registry."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"clients-{next(GROUPS)}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    while True:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            context = SerializationContext(topic, MessageField.VALUE)
            yield deserialize(message.value(), context)
        yield None


def fink(servers: str, _: str, topic: str) -> Iterator[dict | None]:
    """fink-client, which takes the schema from the key."""
    config = {"bootstrap.servers": servers, "group.id": f"clients-{next(GROUPS)}"}
    consumer = AlertConsumer([topic], config, "lsst")
    while True:
        _, alert, _ = consumer.poll(1)
        yield alert


def lasair(servers: str, _: str, topic: str) -> Iterator[dict | None]:
    """The consumer of lasair, of JSON."""
    consumer = lasair_consumer(servers, f"clients-{next(GROUPS)}", topic)
    while True:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            yield json.loads(message.value())
        yield None


def lasair_once(servers: str, _: str, topic: str) -> Iterator[dict | None]:
    """The consumer of lasair that returns each object once; it requires `objectId`."""
    with tempfile.TemporaryDirectory() as folder:
        group = f"clients-{next(GROUPS)}"
        consumer = lasair_RL_consumer(servers, group, topic, f"{folder}/seen.db")
        while True:
            message = consumer.poll(1)
            if message is not None:
                yield json.loads(message.value())
            yield None


CLIENTS = {
    "confluent": confluent,
    "fink": fink,
    "lasair": lasair,
    "lasair_once": lasair_once,
}


def shown(value: object) -> object:
    """A datum as JSON."""
    if isinstance(value, dict):
        return {name: shown(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shown(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return len(value) if isinstance(value, bytes) else value


def main() -> None:
    """Reads each topic until it has given its number of results."""
    servers, registry, *topics = sys.argv[1:]
    for kind, topic, count in (one.split(":") for one in topics):
        left, until = int(count), time.monotonic() + TIMEOUT_S
        for result in CLIENTS[kind](servers, registry, topic):
            if result is not None:
                print(json.dumps({"kind": kind, "datum": shown(result)}), flush=True)
                left -= 1
            if left == 0:
                break
            assert time.monotonic() < until, f"{kind}: {left} of {count} results are missing"


if __name__ == "__main__":
    main()
