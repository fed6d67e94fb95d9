"""Callers forged by foreign programs: Confluent's client on Kafka, Cyclone's own package on DDS.

They copy a signed command with its headers, and change what a forger would: nothing, the values,
the signature. They choose the header of the bus itself, too: another producer, the next number.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engines import Plain, url
from probe import TIMEOUT_S, asynchronous, send
from processes import program, started
from test_callers import alice, genuine, guarded, key
from test_salobj import Sal

import heliograph as helio
from heliograph import AckCode

__all__ = ["key"]

pytestmark = pytest.mark.usefixtures("interfaces")

PARTICIPANT = (
    Path(__file__).parents[3]
    / "crates"
    / "transports"
    / "dds"
    / "tests"
    / "others"
    / "participant.py"
)
LOOPBACK = (
    '<General><Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>'
    "<AllowMulticast>false</AllowMulticast></General><Discovery>"
    "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>"
    '<Peers><Peer address="127.0.0.1"/></Peers></Discovery>'
)


async def refused(bus: helio.Bus, count: int) -> list[tuple[str, str]]:
    """Wait for so many refused commands in the audit; return their callers and texts."""
    found: list[tuple[str, str]] = []
    async with bus.topic("Probe/audit").subscribe(start=helio.earliest()) as records:
        while len(found) < count:
            record = (await records.next(timeout=TIMEOUT_S)).value
            if record["ack"] == AckCode.NO_PERM:
                found.append((record["caller"], record["result"]))
    return found


def check(entries: list[tuple[str, str]], ran: int) -> None:
    """A copy is proved and refused; everything else is declared and refused."""
    copies = [text for caller, text in entries if caller == "alice"]
    assert [text.startswith("a copy") for text in copies] == [True]
    assert {caller for caller, _ in entries} == {"alice", "declared:alice"}
    assert ran == 1


def numbered(header: bytes, further: int) -> bytes:
    """The bus's header of a record (docs/formats/kafka.md) with a later number."""
    (sequence,) = struct.unpack_from("<Q", header, 12)
    return header[:12] + struct.pack("<Q", sequence + further) + header[20:]


@asynchronous
async def test_a_kafka_client_can_forge_no_proved_caller(key: Path, interfaces: Path) -> None:
    address = f"{url('kafka')}?prefix=callers{os.getpid()}."
    async with helio.connect(address) as bus, guarded(key, bus=bus) as (probe, _):
        await genuine(bus, key, interfaces)
        name = f"callers{os.getpid()}.Probe.command.move"
        with Plain(url("kafka"), url("apicurio")) as plain:
            topics = plain.producer.list_topics(timeout=TIMEOUT_S).topics
            (name,) = [t for t in topics if t.endswith("move") and f"callers{os.getpid()}." in t]
            (message,) = await asyncio.to_thread(plain.messages, name, 1)
            headers = dict(message.headers())
            value = message.value()
            changed = value.replace(struct.pack("<d", 7.0), struct.pack("<d", 8.0))
            assert changed != value
            damaged = headers | {"helio-signature": bytes(64)}
            unsigned = {n: v for n, v in headers.items() if n != "helio-signature"}
            forged = [(value, headers), (changed, headers), (value, damaged), (value, unsigned)]
            for further, (payload, beside) in enumerate(forged, start=1):
                beside = beside | {"helio": numbered(headers["helio"], further)}
                plain.producer.produce(
                    name, payload, key=message.key(), headers=list(beside.items())
                )
            assert plain.producer.flush(TIMEOUT_S) == 0
        check(await refused(bus, 4), len(probe.ran))


@asynchronous
async def test_a_sal_client_cannot_command_under_a_proved_name(key: Path, interfaces: Path) -> None:
    """What kcat or salobj write: a SAL command of alice's identity, with our headers or without."""
    with Plain(url("kafka"), url("apicurio")) as plain:
        sal = Sal(plain, helio.load_interfaces(interfaces))
        async with helio.connect(sal.bus_url) as bus, guarded(key, bus=bus) as (probe, _):
            proved = helio.Remote(bus, "Probe", caller="alice", caller_key=key)
            await send(proved.cmd_move, axis=1, timeout=TIMEOUT_S)
            forged = {"axis": 1, "position": 9.0, "private_identity": "alice"}
            await asyncio.to_thread(sal.write, "Probe/command/move", **forged)
            name = sal.name("Probe/command/move")
            (_, message) = await asyncio.to_thread(plain.messages, name, 2)
            beside = {"helio-caller": b"alice", "helio-signature": bytes(64)}
            plain.producer.produce(name, message.value(), headers=list(beside.items()))
            assert plain.producer.flush(TIMEOUT_S) == 0
            entries = await refused(bus, 2)
            assert {caller for caller, _ in entries} == {"declared:alice"}
            assert len(probe.ran) == 1


class Foreign:
    """A participant of a DDS domain without this package, as a process."""

    def __init__(self, domain: int, idl: str, folder: Path) -> None:
        (folder / "types.idl").write_text(idl)
        work = folder / "foreign"
        work.mkdir()
        environment = {**os.environ, "CYCLONEDDS_URI": LOOPBACK}
        arguments = [sys.executable, str(PARTICIPANT), str(domain), str(folder / "types.idl")]
        self.process = started(*arguments, str(work), stdin=subprocess.PIPE, env=environment)
        self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        answer = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def ask(self, what: str, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **request}) + "\n")
        self.process.stdin.flush()


@pytest.fixture
def foreign(dds_domain: int, interfaces: Path, tmp_path: Path) -> Foreign:
    """A participant that has the type of the command."""
    schema = tmp_path / "move.avsc"
    schema.write_text(helio.load_interfaces(interfaces)["Probe/command/move"].schema.text)
    command = [program(), "schema", "idl", str(schema)]
    idl = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Foreign(dds_domain, idl, tmp_path)


@asynchronous
async def test_a_dds_writer_can_forge_no_proved_caller(
    dds_url: str, foreign: Foreign, key: Path, interfaces: Path
) -> None:
    async with helio.connect(dds_url) as bus, guarded(key, bus=bus) as (probe, _):
        name = "Probe/command/move"
        changes: list[dict[str, Any]] = [
            {},
            {"position": 8.0},
            {"helio.trace": [9] * 16},
            {"private_seqNum": 5},
        ]
        # Each of another producer, as if it were its first sample.
        forged = [
            {"helio.producer": f"forger{number}", "helio.sequence": 1, "helio.previous": 0} | change
            for number, change in enumerate(changes)
        ]
        foreign.ask(
            "echo",
            topic=name,
            to=name,
            type="lsst::sal::Probe::command_move",
            partition="0",
            count=1,
            volatile=True,
            forge=forged,
        )
        # The foreign reader has no history: it gets a command that is sent once it is there.
        answer = asyncio.create_task(asyncio.to_thread(foreign.answer))
        ran = 0
        while not answer.done():
            _, sample = await genuine(bus, key, interfaces)
            ran += 1
            await asyncio.sleep(0.1)
        assert len((await answer)["samples"]) == 1
        check(await refused(bus, 4), len(probe.ran) - ran + 1)
        assert sample.headers["helio-caller"] == b"alice"
        await send(alice(bus, key).cmd_move, axis=1, timeout=TIMEOUT_S)
        assert len(probe.ran) == ran + 1
