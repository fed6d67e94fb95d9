"""Runs the engines' programs as a user does, and what clients need to talk to their brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
# Generous: nothing here is a test of speed.
SECONDS = 60.0
FAILED, SKIPPED, REFUSED = 1, 3, 4


@dataclass
class Engine:
    """A running engine, and the program that looks after it."""

    program: Program
    started: dict[str, Any]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on it, which succeeds."""
        done = self.program(*arguments, "--dir", self.started["dir"])
        assert done.returncode == 0, done.stderr
        return done

    def status(self) -> dict[str, Any]:
        """What `status` says."""
        shown: dict[str, Any] = json.loads(self("status", "--json").stdout)
        return shown

    def client(self, **more: Any) -> dict[str, Any]:
        """The configuration of a client of librdkafka."""
        servers = self.started["url"].removeprefix("kafka://")
        return {"bootstrap.servers": servers, **self.started["client"], **more}

    def topic(self, replicas: int = -1) -> str:
        """A new topic of one partition, with so many copies, or as many as the brokers say."""
        name = f"t-{uuid.uuid4()}"
        admin = AdminClient(self.client())
        new = NewTopic(name, num_partitions=1, replication_factor=replicas)
        admin.create_topics([new])[name].result(SECONDS)
        return name

    def produce(self, topic: str, values: list[bytes], **more: Any) -> None:
        """Writes values, all of which are acknowledged."""
        errors: list[object] = []
        producer = Producer(self.client(**{"enable.idempotence": True}, **more))
        for value in values:
            producer.produce(
                topic, value, on_delivery=lambda error, _: errors.append(error) if error else None
            )
        assert producer.flush(SECONDS) == 0
        assert errors == []

    def consume(self, topic: str, count: int, **more: Any) -> list[bytes]:
        """The first values of a topic."""
        group = {"group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
        consumer = Consumer(self.client(**group, **more))
        consumer.subscribe([topic])
        found: list[Message] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=SECONDS)
            assert messages, f"only {len(found)} of {count} messages"
            found += messages
        consumer.close()
        assert [message.error() for message in found if message.error()] == []
        return [message.value() for message in found]


@dataclass
class Program:
    """One of the programs, with an environment of its own."""

    name: str
    environment: dict[str, str]

    def __call__(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        begun = self.begin(*arguments, **more)
        output, errors = begun.communicate()
        return subprocess.CompletedProcess(arguments, begun.returncode, output, errors)

    def begin(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Begins a command, with more of an environment."""
        return subprocess.Popen(
            [HERE / self.name, *arguments],
            env=os.environ | self.environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def running(self, *options: str) -> Iterator[Engine]:
        """An engine that is stopped in the end."""
        done = self("start", "--json", *options)
        skip_where_it_cannot_run(done.returncode, done.stderr)
        assert done.returncode == 0, done.stderr
        engine = Engine(self, json.loads(done.stdout))
        try:
            yield engine
        finally:
            self("stop", "--dir", engine.started["dir"])


def skip_where_it_cannot_run(returned: int, errors: str) -> None:
    """Skips a test that needs a broker on a machine without Java."""
    if returned == SKIPPED:
        # tidy: allow(ignored-test): this machine has no Java, and the tests bring none.
        pytest.skip(errors.strip())


@contextmanager
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is ended."""
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as process:
        yield process


def shared(kafka: Program, pid: int) -> subprocess.Popen[str]:
    """Begins a start of the shared engine, for a process."""
    return kafka.begin("start", "--json", "--shared", "--owner", str(pid))


def started(starting: subprocess.Popen[str]) -> dict[str, Any]:
    """What a start has printed that succeeds."""
    output, complaint = starting.communicate(timeout=4 * SECONDS)
    skip_where_it_cannot_run(starting.returncode, complaint)
    assert starting.returncode == 0, complaint
    shown: dict[str, Any] = json.loads(output)
    return shown


def gone(folder: Path) -> Callable[[], object]:
    """Whether a folder is empty."""
    return lambda: not list(folder.iterdir())


def until(happened: Callable[[], object]) -> None:
    """Waits for what nobody announces."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """The program of a name, with a temporary folder of its own."""
    folder = tmp_path_factory.mktemp("engines")
    return lambda name: Program(name, {"TMPDIR": str(folder)})
