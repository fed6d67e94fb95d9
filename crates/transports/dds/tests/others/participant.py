"""A foreign participant in a DDS domain: Eclipse Cyclone DDS's own Python package.

It has the types of the IDL that `helio schema idl` prints. It reads requests, one JSON object per
line, and answers each with one.

Arguments: the domain, an IDL file, a folder of its own. CYCLONEDDS_URI has the configuration.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import importlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cyclonedds
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl._support import Endianness
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration

SAMPLE_TIMEOUT_S = 60.0
QOS = Qos(
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.Durability.TransientLocal,
    Policy.History.KeepAll,
    Policy.DurabilityService(
        cleanup_delay=0,
        history=Policy.History.KeepAll,
        max_samples=-1,
        max_instances=-1,
        max_samples_per_instance=-1,
    ),
)

VOLATILE = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll)


def idlc(folder: Path) -> Path:
    """The wheel's IDL compiler, in a copy that runs.

    Its dynamic section reaches from a writable segment into a read-only one (a bug of the tool that
    moved its libraries), and the loader crashes. In the copy both segments are writable.
    """
    wheel = Path(cyclonedds.__file__).parent
    program = bytearray((wheel / ".libs" / "idlc").read_bytes())
    (headers,) = struct.unpack_from("<Q", program, 32)
    (count,) = struct.unpack_from("<H", program, 56)
    load, readable, writable = 1, 4, 6
    for place in range(headers, headers + 56 * count, 56):
        if struct.unpack_from("<II", program, place) == (load, readable):
            struct.pack_into("<I", program, place + 4, writable)
    copy = folder / "idlc"
    copy.write_bytes(program)
    copy.chmod(0o755)
    return copy


def compile_idl(idl: Path, folder: Path) -> None:
    """Compiles an IDL file to modules in a folder, and adds the folder to the import path."""
    wheel = Path(cyclonedds.__file__).parent
    libraries = str(wheel.parent / "cyclonedds.libs")
    backend = next(wheel.glob("_idlpy*"))
    command = [idlc(folder), "-Werror", "-l", backend, idl.resolve()]
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    sys.path.insert(0, str(folder))


def shown(value: Any) -> Any:
    """Converts a value to JSON types."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: shown(getattr(value, field.name)) for field in fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bytes, bytearray)):
        return list(value)
    return [shown(one) for one in value] if isinstance(value, list) else value


class Participant:
    """The public methods are the requests."""

    def __init__(self, domain: int) -> None:
        self._participant = DomainParticipant(domain)
        self._held: list[Any] = []
        self._counted: dict[str, Any] = {}

    def _type(self, name: str) -> Any:
        modules, _, plain = name.replace("::", ".").rpartition(".")
        return getattr(importlib.import_module(modules), plain)

    def identity(self, request: dict[str, Any]) -> dict[str, Any]:
        """The XTypes hashes that the package computes for the type."""
        information = self._type(request["type"]).__idl__.get_type_info()
        both = {"minimal": information.minimal, "complete": information.complete}
        hashes = {name: of.typeid_with_size.type_id.value for name, of in both.items()}
        return {name: bytes(value).hex() for name, value in hashes.items()}

    def echo(self, request: dict[str, Any]) -> dict[str, Any]:
        """Copies samples of a topic to another one, without our header if `anonymous`.

        `forge` are several copies with other members, such as `helio.sequence`. The topic of a
        `volatile` writer has no history.
        """
        kind = self._type(request["type"])
        # A bus's partition 0 is the DDS partition of that name, and all of them are `*`.
        named = request.get("partition")
        into = self._publisher(named)
        topic = Topic(self._participant, request["to"], kind)
        qos = VOLATILE if request.get("volatile") else QOS
        writer = DataWriter(into, topic, qos=qos)
        self._held.append(writer)
        seen = []
        for sample in self._take(request["topic"], kind, request["count"], named, qos):
            seen.append(shown(sample))
            if request.get("anonymous"):
                sample.helio = type(sample.helio)(0, 0, 0, 0, 0, 0, 0, 0, "", [], [], [])
            for members in request.get("forge", [{}]):
                copied = copy.deepcopy(sample)
                for place, member in members.items():
                    *path, last = place.split(".")
                    setattr(functools.reduce(getattr, path, copied), last, member)
                writer.write(copied)
        return {"samples": seen}

    def _publisher(self, partition: str | None) -> Any:
        if partition is None:
            return self._participant
        return Publisher(self._participant, qos=Qos(Policy.Partition([partition])))

    def _take(
        self, topic: str, kind: Any, count: int, partition: str | None, qos: Qos = QOS
    ) -> list[Any]:
        source = self._participant
        if partition is not None:
            source = Subscriber(self._participant, qos=Qos(Policy.Partition(["*"])))
        reader = DataReader(source, Topic(self._participant, topic, kind), qos=qos)
        self._held.append(reader)
        samples: list[Any] = []
        until = time.monotonic() + SAMPLE_TIMEOUT_S
        while len(samples) < count and time.monotonic() < until:
            samples += reader.take(100) or self._wait()
        return [sample for sample in samples if isinstance(sample, kind)]

    @staticmethod
    def _wait() -> list[Any]:
        time.sleep(0.001)
        return []

    def policies(self, request: dict[str, Any]) -> dict[str, Any]:
        """The policies of a topic's writer, from the built-in topics."""
        reader = BuiltinDataReader(self._participant, BuiltinTopicDcpsPublication)
        self._held.append(reader)
        until = time.monotonic() + SAMPLE_TIMEOUT_S
        while time.monotonic() < until:
            for sample in reader.take(100) or self._wait():
                if getattr(sample, "topic_name", None) == request["topic"]:
                    return {"policies": [str(policy) for policy in sample.qos]}
        return {"policies": []}

    def count(self, request: dict[str, Any]) -> dict[str, Any]:
        """How many samples of a bus's topic arrive, up to the one with the number `until`."""
        kind, name = self._type(request["type"]), request["topic"]
        if name not in self._counted:
            source = Subscriber(self._participant, qos=Qos(Policy.Partition(["*"])))
            self._counted[name] = DataReader(source, Topic(self._participant, name, kind), qos=QOS)
        reader, count = self._counted[name], 0
        while True:
            for sample in reader.take(100) or self._wait():
                if isinstance(sample, kind):
                    count += 1
                    if sample.number >= request["until"]:
                        return {"count": count}

    def forget(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Closes all readers and writers."""
        self._held.clear()
        return {}


def main() -> None:
    """Answers until there are no more requests."""
    domain, idl, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    compile_idl(idl, folder)
    participant = Participant(domain)
    print(json.dumps({"native": Endianness.native().name}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(participant, request["do"])(request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
