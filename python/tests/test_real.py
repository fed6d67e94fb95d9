"""Real data: the Rubin Observatory's interfaces and messages, alert packets of LSST and ZTF.

Values read from the bus equal those of fastavro, the reference. Skipped with a reason without the
data (see `shared_data` in conftest.py).
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from values import plain

import heliograph as helio
from heliograph import testing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RELEASES = {"v26.0.0": (62, 3131), "v27.1.1": (63, 3166)}


def _lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


@pytest.mark.parametrize("release", RELEASES)
def test_interfaces_load_as_topics(release: str, shared_data: Path) -> None:
    interfaces = helio.load_interfaces(shared_data / "sal-interfaces" / release / "sal_interfaces")
    assert (len(interfaces.components), len(interfaces)) == RELEASES[release]
    topic = interfaces["MTMount/command/trackTarget"]
    assert (topic.component, topic.kind, topic.sal_name) == (
        "MTMount",
        "command",
        "command_trackTarget",
    )
    assert topic.kafka_name() == "lsst.sal.MTMount.command_trackTarget"
    assert topic.qos.reliability is helio.Reliability.RELIABLE
    script = next(topic for topic in interfaces.values() if topic.indexed)
    assert len(script.schema.key(7)) == 1


def test_every_sal_message_goes_through_the_bus(shared_data: Path) -> None:
    release = shared_data / "sal-interfaces" / "v27.1.1" / "sal_interfaces"
    interfaces = helio.load_interfaces(release)
    by_kafka = {topic.kafka_name(): topic for topic in interfaces.values()}
    golden = shared_data / "sal-golden" / "v27.1.1"
    seen = 0
    with testing.sync_memory_bus() as bus:
        for message in _lines(golden / "messages.jsonl.gz"):
            topic = by_kafka[message["kafka_name"]]
            schema = topic.schema
            reference = fastavro.parse_schema(json.loads(topic.sal_schema.text))
            raw = base64.b64decode(message["avro"])
            read: Any = fastavro.schemaless_reader(io.BytesIO(raw), reference, None)
            assert plain(schema.decode(raw)) == plain(read)
            opened = bus.topic(topic.name, schema, qos=topic.qos)
            with opened.subscribe() as samples:
                opened.publish(message["value"])
                sample = samples.next(timeout=testing.PATIENCE_S)
            assert plain(sample.value) == plain(read)
            back: Any = fastavro.schemaless_reader(io.BytesIO(sample.payload), reference, None)
            assert plain(back) == plain(read)
            seen += 1
    assert seen == 635


def test_an_lsst_alert_goes_through_the_bus(shared_data: Path) -> None:
    packet = (shared_data / "alerts" / "lsst-v9_0-confluent-framed.bin").read_bytes()
    assert packet[:5] == b"\0" + (900).to_bytes(4, "big")
    folder = f"{_lsst_schemas()}/schema/9/0"
    reference = fastavro.schema.load_schema(f"{folder}/lsst.v9_0.alert.avsc")
    _through_the_bus(reference, packet[5:])
    schema = helio.load_schema(folder)
    assert schema.name == "lsst.v9_0.alert"
    read: Any = fastavro.schemaless_reader(io.BytesIO(packet[5:]), reference, None)
    assert plain(schema.decode(packet[5:])) == plain(read)


def _lsst_schemas() -> str:
    """The folder of the package lsst-alert-packet; its code is not imported."""
    spec = importlib.util.find_spec("lsst.alert.packet")
    assert spec is not None, "install lsst-alert-packet (--no-deps is enough)"
    (folder,) = spec.submodule_search_locations or []
    return folder


def test_a_ztf_alert_goes_through_the_bus(shared_data: Path) -> None:
    with (shared_data / "alerts" / "ztf-3_3.avro").open("rb") as container:
        reader: Any = fastavro.reader(container)
        schema = reader.writer_schema
        (alert,) = list(reader)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, alert)
    _through_the_bus(schema, out.getvalue())


def _through_the_bus(reference: Any, raw: bytes) -> None:
    read: Any = fastavro.schemaless_reader(io.BytesIO(raw), reference, None)
    text = json.dumps({k: v for k, v in reference.items() if not k.startswith("__")})
    schema = helio.schema(text)
    value = schema.decode(raw)
    assert plain(value) == plain(read)
    with testing.sync_memory_bus() as bus:
        alerts = bus.topic("alerts", schema, qos=helio.STREAM)
        with alerts.subscribe() as samples:
            alerts.publish(value)
            sample = samples.next(timeout=testing.PATIENCE_S)
    assert plain(sample.value) == plain(read)
    again: Any = fastavro.schemaless_reader(io.BytesIO(sample.payload), reference, None)
    assert plain(again) == plain(read)
