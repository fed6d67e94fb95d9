"""SAL interface folders, as the Rubin Observatory writes them, as topics of the bus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliograph import _qos
from heliograph._heliograph import RawInterfaces

if TYPE_CHECKING:
    from heliograph._heliograph import Schema
    from heliograph._qos import Qos


@dataclass(frozen=True)
class InterfaceTopic:
    """A topic of a component: ``bus.topic(t.name, t.schema, qos=t.qos)``.

    ``name`` is its name on the bus (``MTMount/command/trackTarget``), ``kind`` is command, event,
    telemetry or ack, ``sal_name`` SAL's own name (``command_trackTarget``). Samples of an
    ``indexed`` component have the key ``salIndex``.
    """

    name: str
    component: str
    kind: str
    description: str
    indexed: bool
    sal_name: str
    _raw: RawInterfaces

    @property
    def schema(self) -> Schema:
        """The schema, with units, array lengths, enumerations and SAL types."""
        return self._raw.schema(self.name)

    @property
    def sal_schema(self) -> Schema:
        """The schema exactly as SAL registers it."""
        return self._raw.sal_schema(self.name)

    @property
    def qos(self) -> Qos:
        """The quality of service of its kind."""
        return _qos.from_json(json.loads(self._raw.qos(self.name)))

    @property
    def fields(self) -> list[FieldInfo]:
        """The public fields.

        Every sample has the private ones too: before them, or behind them if the topic is of an
        ``.avsc`` file.
        """
        return [FieldInfo(*row) for row in self._raw.fields(self.name)]

    @property
    def revcode(self) -> str:
        """SAL's revision code, which every sample carries as ``private_revCode``."""
        return self._raw.revcode(self.name)

    def kafka_name(self, subname: str = "sal") -> str:
        """Return its name on Kafka, ``lsst.<subname>.<component>.<sal_name>``."""
        return self._raw.kafka_name(self.name, subname)

    def kafka_key(self, index: int | None = None) -> str:
        """Return the key of a message on Kafka from the component of that index.

        It is the JSON text of name, index (if the component has one) and topic, as salobj writes
        it; telemetry has none.
        """
        return self._raw.kafka_key(self.name, index)


@dataclass(frozen=True)
class FieldInfo:
    """A public field of a topic: its SAL type and number of elements.

    A field of an ``.avsc`` file has the JSON of its Avro type as ``type``. ``enumeration`` is the
    name and the labels with their values, or None. The name is empty if the labels are declared at
    the field itself.
    """

    name: str
    type: str
    count: int
    units: str
    enumeration: tuple[str, list[tuple[str, int]]] | None


class Interfaces(Mapping[str, InterfaceTopic]):
    """The topics of a folder of interfaces, by their names on the bus."""

    def __init__(self, raw: RawInterfaces) -> None:
        self._raw = raw
        self._names = raw.topics()

    def __getitem__(self, name: str) -> InterfaceTopic:
        return InterfaceTopic(**self._raw.topic(name), _raw=self._raw)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Interfaces of {len(self.components)} components, {len(self)} topics>"

    @property
    def release(self) -> str:
        """Their release, such as ``27.1.1``; empty if the folder does not state it."""
        return self._raw.release()

    @property
    def components(self) -> list[str]:
        """The components' names."""
        return self._raw.components()


def load_interfaces(folder: str | os.PathLike[str]) -> Interfaces:
    """Read a folder with SALSubsystems.xml, or with components as ``X.yaml``; see docs/sal.md.

    Raises :class:`SchemaError` naming file and line.
    """
    return Interfaces(read_folder(folder))


def read_folder(folder: str | os.PathLike[str], component: str | None = None) -> RawInterfaces:
    """Read the interface of one component, or of all.

    Other components then have only their generic topics, which takes a fraction of the time.
    """
    return RawInterfaces(os.fspath(folder), component)
