"""Real servers for tests: Kafka and a schema registry, each started once and ended with the tests.

Where this machine cannot run one, the test is skipped and says so.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import secrets
import subprocess
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import confluent_kafka
import pytest
from confluent_kafka.serialization import MessageField, SerializationContext
from processes import TIMEOUT_S

with warnings.catch_warnings():
    # A transitive dependency's deprecation warning.
    warnings.simplefilter("ignore")
    import confluent_kafka.schema_registry as registry
    import confluent_kafka.schema_registry.avro as registry_avro

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "engines"
_SKIPPED = 3
ANSWER_S = 10.0
"""How long a registry may take for an answer before it is asked again."""

_T = TypeVar("_T")


@functools.cache
def engine(name: str, *options: str) -> dict[str, Any] | str:
    """An engine's report, or why it is unavailable."""
    command = [str(_PROGRAMS / name), "start", "--json", "--owner", str(os.getpid()), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == _SKIPPED:
        return done.stderr.strip()
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def shared_kafka() -> str:
    """The URL of the broker that all tests of the machine share, with a prefix of its own."""
    return f"{url('kafka', '--shared')}?prefix=p{secrets.token_hex(4)}."


def url(name: str, *options: str) -> str:
    """An engine's URL; the test is skipped without it."""
    told = engine(name, *options)
    if isinstance(told, str):
        # tidy: allow(ignored-test): the engine wants a Java that is not everywhere
        pytest.skip(told)
    found: str = told["url"]
    return found


def _first(count: int, of: Iterator[_T], topic: str) -> list[_T]:
    found = list(itertools.islice(of, count))
    assert len(found) == count, f"{topic}: {len(found)} of {count} came"
    return found


class Plain:
    """A Python with Confluent's client and without this package."""

    def __init__(self, brokers: str, registry_url: str) -> None:
        self.servers = brokers.removeprefix("kafka://")
        # Apicurio sometimes leaves a request unanswered; without a timeout the client waits for
        # ever, with one it retries, and that has to be before a test gives up.
        self.registry = registry.SchemaRegistryClient({"url": registry_url, "timeout": ANSWER_S})
        # A slow broker is asked again, and stores a record once all the same.
        options = {"bootstrap.servers": self.servers, "enable.idempotence": True}
        self.producer = confluent_kafka.Producer(options)

    def __enter__(self) -> Self:
        self.registry.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.registry.__exit__(*error)

    def register(self, topic: str, schema: Any) -> int:
        """Register a schema as salobj does, with the text that Python generates."""
        known = registry.Schema(json.dumps(schema), "AVRO")
        return self.registry.register_schema(f"{topic}-value", known)

    def write(self, topic: str, schema: Any, value: Any, key: str | None = None) -> None:
        """Write a value, and wait until the broker has stored it."""
        serialize = registry_avro.AvroSerializer(self.registry, json.dumps(schema))
        context = SerializationContext(topic, MessageField.VALUE)
        told: list[Any] = []
        self.producer.produce(
            topic,
            value=serialize(value, context),
            key=key,
            on_delivery=lambda error, _: told.append(error),
        )
        self.producer.flush(TIMEOUT_S)
        assert told == [None]

    def read(self, topic: str, count: int) -> list[tuple[bytes | None, Any]]:
        """The first keys and values of a topic."""
        return _first(count, self.follow(topic), topic)

    def follow(self, topic: str) -> Iterator[tuple[bytes | None, Any]]:
        """The keys and values of a topic from its beginning, until none comes any more."""
        deserialize = registry_avro.AvroDeserializer(self.registry)
        context = SerializationContext(topic, MessageField.VALUE)
        for message in self._messages(topic):
            yield message.key(), deserialize(message.value(), context)

    def messages(self, topic: str, count: int) -> list[Any]:
        """The first messages of a topic, undecoded."""
        return _first(count, self._messages(topic), topic)

    def end(self, topic: str) -> int:
        """The end of a topic's log, however slow the broker is; 0 if there is no such topic."""
        consumer, until = self.consumer(), time.monotonic() + TIMEOUT_S
        place = confluent_kafka.TopicPartition(topic, 0)
        try:
            while True:
                try:
                    error = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].error
                    if error and error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                        return 0
                    _, end = consumer.get_watermark_offsets(place, timeout=ANSWER_S)
                    return int(end)
                except confluent_kafka.KafkaException:
                    if time.monotonic() > until:
                        raise
        finally:
            consumer.close()

    def consumer(self) -> confluent_kafka.Consumer:
        """A consumer to which partitions are assigned, perhaps before there is such a topic."""
        options = {
            "bootstrap.servers": self.servers,
            "group.id": "plain",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # By default, a topic that comes later is looked for after five minutes.
            "topic.metadata.refresh.interval.ms": 1000,
        }
        return confluent_kafka.Consumer(options)

    def _messages(self, topic: str) -> Iterator[Any]:
        place = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            consumer, renewal = self.consumer(), time.monotonic() + ANSWER_S
            try:
                consumer.assign([place])
                # A consumer to which nothing comes is replaced, at the same position.
                while time.monotonic() < min(until, renewal):
                    message = consumer.poll(0.2)
                    if message is not None and message.error() is None:
                        place.offset = message.offset() + 1
                        yield message
                        until = time.monotonic() + TIMEOUT_S
                        renewal = time.monotonic() + ANSWER_S
            finally:
                consumer.close()
