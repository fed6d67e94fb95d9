"""Real brokers, by the commands that look after them: what clients meet, and what is left."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from conftest import SECONDS, Engine, Program


@pytest.fixture(scope="module")
def kafka(program: Callable[[str], Program]) -> Iterator[Engine]:
    with program("kafka").running() as engine:
        yield engine


@pytest.fixture(scope="module")
def cluster(program: Callable[[str], Program]) -> Iterator[Engine]:
    with program("kafka").running("--nodes", "3") as engine:
        yield engine


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_what_was_acknowledged_outlives_the_broker(kafka: Engine) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"before"])
    kafka("kill", "1")
    assert kafka.status()["brokers"][0]["state"] == "dead"
    kafka("restart", "1")
    assert kafka.status()["url"] == kafka.started["url"]
    kafka.produce(topic, [b"after"])
    assert kafka.consume(topic, 2) == [b"before", b"after"]


def test_a_frozen_broker_answers_nobody_until_it_thaws(kafka: Engine) -> None:
    topic = kafka.topic()
    kafka("freeze", "1")
    assert kafka.status()["brokers"][0]["state"] == "frozen"
    with pytest.raises(KafkaException) as caught:
        AdminClient(kafka.client()).list_topics(timeout=1.0)
    assert caught.value.args[0].code() == KafkaError._TRANSPORT
    kafka("thaw", "1")
    assert kafka.status()["brokers"][0]["state"] == "running"
    kafka.produce(topic, [b"thawed"])
    assert kafka.consume(topic, 1) == [b"thawed"]


def test_a_port_that_was_taken_meanwhile_is_named(kafka: Engine) -> None:
    broker = kafka.started["brokers"][0]
    kafka("kill", "1")
    with socket.create_server((broker["host"], broker["port"])):
        failed = kafka.program("restart", "1", "--dir", kafka.started["dir"])
    assert failed.returncode == 1
    assert "another program has a port of node 1" in failed.stderr
    kafka("restart")
    topic = kafka.topic()
    kafka.produce(topic, [b"back"])
    assert kafka.consume(topic, 1) == [b"back"]


def test_stopping_leaves_nothing_behind(tmp_path: Path) -> None:
    with Program("kafka", {"TMPDIR": str(tmp_path)}).running("--owner", str(os.getpid())) as engine:
        (broker,) = engine.started["brokers"]
        assert [entry.name for entry in tmp_path.iterdir()] == [Path(engine.started["dir"]).name]
        # The files that a client with compression makes the broker unpack are in its folder too.
        engine.produce(engine.topic(), [b"value" * 100], **{"compression.type": "zstd"})
        engine("stop", "--keep")
        assert not lives(broker["pid"])
        engine("restart")
        (broker,) = engine.status()["brokers"]
        engine("stop")
        assert not lives(broker["pid"])
    assert list(tmp_path.iterdir()) == []


def test_a_killed_leader_costs_nothing_that_was_acknowledged(cluster: Engine) -> None:
    topic = cluster.topic()
    first = leader(cluster, topic)
    written: list[bytes] = []
    acknowledged: list[bytes] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        acknowledged.append(message.value())

    producer = Producer(cluster.client(**{"enable.idempotence": True}))
    with ThreadPoolExecutor() as pool:
        killing = pool.submit(cluster, "kill", str(first))
        while not killing.done() or leader(cluster, topic) == first:
            for _ in range(100):
                written.append(b"%d" % len(written))
                producer.produce(topic, written[-1], on_delivery=delivered)
                producer.poll(0.001)
    killing.result()
    assert producer.flush(SECONDS) == 0
    assert acknowledged == written
    cluster("restart", str(first))
    assert {broker["state"] for broker in cluster.status()["brokers"]} == {"running"}
    assert cluster.consume(topic, len(written)) == written


def first_partition(engine: Engine, topic: str) -> PartitionMetadata:
    """Its only partition, as soon as the broker that answers knows the topic."""
    admin = AdminClient(engine.client())
    until = time.monotonic() + SECONDS
    while not (partitions := admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions):
        assert time.monotonic() < until, f"no broker knows {topic}"
        time.sleep(0.05)
    return partitions[0]


def leader(engine: Engine, topic: str) -> int:
    """The node that leads its only partition."""
    number: int = first_partition(engine, topic).leader
    return number


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_every_number_of_copies_takes_writes(cluster: Engine, replicas: int) -> None:
    topic = cluster.topic(replicas)
    cluster.produce(topic, [b"value"], acks="all")
    assert cluster.consume(topic, 1) == [b"value"]


def test_three_brokers_keep_three_copies_two_of_them_in_time(cluster: Engine) -> None:
    topic = cluster.topic()
    assert len(first_partition(cluster, topic).replicas) == 3
    assert len(cluster.started["url"].split(",")) == 3
