"""A component of SAL's without this package: Confluent's client, salobj's topics, keys and schemas.

It publishes a heartbeat each second and acknowledges each command ``move`` once, as salobj's
components do. Run as a program, it is a process of its own that tests can kill; it prints ``ready``
after its first heartbeat. ``clock_s`` is the error of its clock, also in Kafka's timestamps.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka.serialization import MessageField, SerializationContext
from engines import TIMEOUT_S, Plain, registry_avro

import heliograph as helio

COMPONENT = "Multi"
HEARTBEAT_INTERVAL_S = 1.0


class Csc:
    """The component's topics on one broker."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.plain = Plain(options["kafka"], options["registry"])
        self.subname, self.index = options["subname"], options["index"]
        self.clock_s = options["clock_s"]
        self.interfaces = helio.load_interfaces(options["interfaces"])
        self.numbers: dict[str, int] = {}
        self.deserialize = registry_avro.AvroDeserializer(self.plain.registry)
        self.serializers: dict[str, registry_avro.AvroSerializer] = {}
        self.commands = self.plain.consumer()
        name = self.name("command/move")
        self.plain.register(name, self.schema("command/move"))
        # Older commands are not for this process.
        place = confluent_kafka.TopicPartition(name, 0, self.plain.end(name))
        self.commands.assign([place])

    def name(self, topic: str) -> str:
        name: str = self.interfaces[f"{COMPONENT}/{topic}"].kafka_name(self.subname)
        return name

    def schema(self, topic: str) -> Any:
        return json.loads(self.interfaces[f"{COMPONENT}/{topic}"].sal_schema.text)

    def write(self, topic: str, **fields: Any) -> None:
        """Write a sample with its private fields."""
        found, schema, now = self.interfaces[f"{COMPONENT}/{topic}"], self.schema(topic), self.now()
        number = self.numbers[topic] = self.numbers.get(topic, 0) + 1
        value = {field["name"]: field["default"] for field in schema["fields"]}
        value |= {
            "salIndex": self.index,
            "private_sndStamp": now + 37.0,
            "private_kafkaStamp": now + 37.0,
            "private_efdStamp": now,
            "private_seqNum": number,
            "private_revCode": found.revcode,
            "private_identity": f"{COMPONENT}:{self.index}",
            "private_origin": os.getpid(),
        }
        name = self.name(topic)
        serialize = self.serializer(topic)
        context = SerializationContext(name, MessageField.VALUE)
        self.plain.producer.produce(
            name,
            value=serialize(value | fields, context),
            key=found.kafka_key(self.index),
            timestamp=int(now * 1000),
        )
        assert self.plain.producer.flush(TIMEOUT_S) == 0

    def serializer(self, topic: str) -> registry_avro.AvroSerializer:
        """The topic's serializer. The registry is asked once: heartbeats do not wait for it."""
        if topic not in self.serializers:
            name, schema = self.name(topic), self.schema(topic)
            self.plain.register(name, schema)
            text = json.dumps(schema)
            self.serializers[topic] = registry_avro.AvroSerializer(self.plain.registry, text)
        return self.serializers[topic]

    def now(self) -> float:
        return time.time() + self.clock_s

    def run(self) -> None:
        """Serve until standard input is closed."""
        self.serializer("ackcmd")
        self.write("event/heartbeat")
        print("ready", flush=True)
        next_beat = time.monotonic() + HEARTBEAT_INTERVAL_S
        # Closing standard input makes it readable.
        while not select.select([0], [], [], 0)[0]:
            if time.monotonic() >= next_beat:
                self.write("event/heartbeat")
                next_beat += HEARTBEAT_INTERVAL_S
            message = self.commands.poll(0.05)
            if message is None or message.error() is not None:
                continue
            context = SerializationContext(message.topic(), MessageField.VALUE)
            command = self.deserialize(message.value(), context)
            if command["salIndex"] in (0, self.index):
                self.write(
                    "ackcmd",
                    private_seqNum=command["private_seqNum"],
                    identity=command["private_identity"],
                    origin=command["private_origin"],
                    ack=303,
                    result="foreign",
                )
        self.commands.close()


if __name__ == "__main__":
    Csc(json.loads(sys.argv[1])).run()
