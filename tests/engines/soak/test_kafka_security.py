"""Who gets in, by which door, and with which error the others are sent away."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from conftest import SECONDS, Engine, Program

MECHANISMS = ["plain", "scram-sha-256", "scram-sha-512"]


@pytest.fixture(scope="module")
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until somebody ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        yield process


@pytest.fixture(scope="module")
def kafka(program: Callable[[str], Program], owner: subprocess.Popen[bytes]) -> Iterator[Engine]:
    mechanisms = [word for mechanism in MECHANISMS for word in ("--sasl", mechanism)]
    options = ["--tls", "--acl", *mechanisms, "--owner", str(owner.pid)]
    with program("kafka").running(*options) as engine:
        yield engine


def login(engine: Engine, user: str) -> dict[str, str]:
    return {"sasl.username": user, "sasl.password": engine.started["users"][user]["password"]}


def first_error(**configuration: Any) -> KafkaError:
    """The first error that a client is told before it gets in."""
    told: list[KafkaError] = []
    admin = AdminClient(configuration | {"error_cb": told.append})
    while not told:
        admin.poll(SECONDS)
    return told[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_lets_in_who_knows_the_password(kafka: Engine, mechanism: str) -> None:
    chosen = {"sasl.mechanism": mechanism.upper()}
    topic = kafka.topic()
    kafka.produce(topic, [b"value"], **chosen)
    assert kafka.consume(topic, 1, **chosen) == [b"value"]
    wrong = kafka.client(**chosen, **{"sasl.password": "wrong"})
    assert first_error(**wrong).code() == KafkaError._AUTHENTICATION


def test_the_certificate_is_the_authoritys_and_the_other_one_has_expired(kafka: Engine) -> None:
    good, expired = kafka.started["url"], kafka.started["tls"]["expired_url"]
    assert certificate_error(kafka, good) is None
    assert certificate_error(kafka, expired) == "certificate has expired"
    refused = first_error(**kafka.client(**{"bootstrap.servers": address(expired)}))
    # Mostly an error of TLS to librdkafka, at times one of the transport.
    assert "certificate verify failed" in refused.str()


def address(url: str) -> str:
    return url.removeprefix("kafka://")


def certificate_error(engine: Engine, url: str) -> str | None:
    """What a client that trusts the authority has against the certificate of a broker."""
    host, port = address(url).split(":")
    trust = ssl.create_default_context(cafile=engine.started["tls"]["ca"])
    try:
        with (
            socket.create_connection((host, int(port)), SECONDS) as connection,
            trust.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message


def test_users_may_do_what_the_lists_say(kafka: Engine) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"value"])
    assert kafka.consume(topic, 1, **login(kafka, "reader")) == [b"value"]
    for user in ("reader", "stranger"):
        refused: list[KafkaError] = []
        producer = Producer(kafka.client(**login(kafka, user)))
        producer.produce(topic, b"no", on_delivery=lambda error, _, to=refused: to.append(error))
        assert producer.flush(SECONDS) == 0
        assert [error.code() for error in refused] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_the_inner_door_is_open_to_those_who_prepare_a_test(kafka: Engine) -> None:
    inner = {"bootstrap.servers": address(kafka.started["internal_url"])}
    assert AdminClient(inner).list_topics(timeout=SECONDS).brokers
    nobody = AdminClient({"bootstrap.servers": kafka.client()["bootstrap.servers"]})
    with pytest.raises(KafkaException):
        nobody.list_topics(timeout=1.0)


# The last test here: it ends the engine.
def test_an_engine_does_not_outlive_its_owner(
    kafka: Engine, owner: subprocess.Popen[bytes]
) -> None:
    folder = Path(kafka.started["dir"])
    (broker,) = kafka.status()["brokers"]
    watcher = json.loads((folder / "engine.json").read_text())["watcher"]["pid"]
    owner.communicate(timeout=SECONDS)
    wait_for = ["tail", f"--pid={broker['pid']}", f"--pid={watcher}", "-f", "/dev/null"]
    subprocess.run(wait_for, timeout=SECONDS, check=True)
    assert not folder.exists()
