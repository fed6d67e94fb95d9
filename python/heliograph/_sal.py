"""SAL interface folders, as the Rubin Observatory writes them, as topics of the bus."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph import _qos
from heliograph._errors import SchemaError
from heliograph._heliograph import RawInterfaces

if TYPE_CHECKING:
    import os

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
        """The public fields; every sample has the private ones before them."""
        return [FieldInfo(*row) for row in self._raw.fields(self.name)]

    @property
    def revcode(self) -> str:
        """SAL's revision code, which every sample carries as ``private_revCode``."""
        return self._raw.revcode(self.name)

    def kafka_name(self, subname: str = "sal") -> str:
        """Return its name on Kafka, ``lsst.<subname>.<component>.<sal_name>``."""
        return self._raw.kafka_name(self.name, subname)


@dataclass(frozen=True)
class FieldInfo:
    """A public field of a topic: its type in SAL's words, and how many elements it has.

    A field of an ``.avsc`` file has the JSON of its Avro type as ``type``. ``enumeration`` is the
    name and the labels with their values, None where there is none; the name is empty where the
    labels stand at the field itself.
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
    def components(self) -> list[str]:
        """The components' names."""
        return self._raw.components()


def load_interfaces(folder: str | os.PathLike[str]) -> Interfaces:
    """Read a folder with SALSubsystems.xml, SALGenerics.xml and the components' folders.

    Raises :class:`SchemaError` naming file and line.
    """
    return Interfaces(read_folder(Path(folder), "*"))


_PLACES = ("", "sal_interfaces", "python/lsst/ts/xml/data/sal_interfaces")
"""Where a folder's interfaces may be: at its top, or where a checkout of SAL's has them."""


def read_folder(folder: Path, component: str) -> RawInterfaces:
    """Read what a folder says of one component, or of all (``*``).

    The topics of the others are their generic ones then: a fraction of the time of reading all.
    """
    place = next((p for p in _roots(folder) if (p / "SALSubsystems.xml").is_file()), folder)
    try:
        found = [(place, file) for file in place.glob("*.xml")]
        found += [(place, f) for f in place.glob(f"{component}/*") if _is_interface(f)]
        if place.name == "sal_interfaces":
            records = place.with_name("interfaces")
            found += [(records, file) for file in records.glob(f"{component}/*.avsc")]
        files = [(file.relative_to(root).as_posix(), file.read_bytes()) for root, file in found]
    except OSError as error:
        raise SchemaError(f"the interfaces in {place} cannot be read: {error}") from error
    return RawInterfaces(files)


def _roots(folder: Path) -> list[Path]:
    return [folder / place for place in _PLACES]


def _is_interface(file: Path) -> bool:
    return file.suffix in (".xml", ".avsc")
