"""One component's interface: its topics and enumerations, each parsed when it is used."""

from __future__ import annotations

import os
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from heliograph._common import open_topic
from heliograph._component import _data
from heliograph._component._codes import State
from heliograph._errors import EncodeError, SchemaError
from heliograph._heliograph import Checks
from heliograph._sal import Interfaces, InterfaceTopic, read_folder

if TYPE_CHECKING:
    import enum
    from collections.abc import Mapping, Sequence

    from heliograph._common import Evolution
    from heliograph._heliograph import RawBus, RawInterfaces, RawTopic, Schema
    from heliograph._qos import Qos

    _Key = tuple[object, str, Evolution | None]

KINDS = {"command": "cmd_", "event": "evt_", "telemetry": "tel_", "ackcmd": "ack_"}
"""The kinds of topics, as in topics' names, and the prefixes of their attributes."""

_CACHE_MAX = 256
"""The most cached interfaces of components: an observatory has 63."""


class TopicType:
    """A topic of a component: its name, its class of values, its schema."""

    def __init__(self, interface: ComponentInterface, kind: str, name: str) -> None:
        self.component = interface.name
        self.kind = kind
        self.name = name
        self._interface = interface
        whole = f"{interface.name}/{kind}"
        self.topic = whole if kind == "ackcmd" else f"{whole}/{name}"
        """Its name on the bus."""

    @property
    def attribute(self) -> str:
        """Its attribute of components and remotes, for example ``evt_target``."""
        return KINDS[self.kind] + self.name

    @property
    def indexed(self) -> bool:
        """Whether its component is indexed."""
        return self._interface.indexed

    @cached_property
    def info(self) -> InterfaceTopic:
        """Its description in the interface."""
        raw = self._interface.raw
        return InterfaceTopic(**raw.topic(self.topic), _raw=raw)

    @cached_property
    def data_type(self) -> type[_data.TopicData]:
        """The class of its values."""
        info = self.info
        fields = info.fields
        names = [field.name for field in fields]
        if self._interface.indexed:
            names.insert(0, "salIndex")
        private = self._interface.raw.private_at(self.topic)
        names[private:private] = _data.PRIVATE
        arrays = [field.name for field in fields if field.count > 1]
        made = _data.data_class(info.sal_name, f"{self.component}.{self.attribute}", names, arrays)
        record = f"lsst.sal.{self.component}.{info.sal_name}"
        classes: dict[str, type] = {record: made}
        for field in fields:
            members = self._interface.enumeration_of(self.name, field.name, field.enumeration)
            if members is not None and field.count == 1:
                classes[f"{record}.{field.name}"] = members
        schema = self._interface.raw.schema(self.topic, classes)
        zeros = {f.name: _data.zero(f) for f in fields if f.type[:1] in '"[{'}
        _data.bind(made, schema, _missing(schema, zeros))
        return _data.command_class(made) if self.kind == "command" else made

    def open(
        self,
        bus: RawBus,
        *,
        producer: str | None = None,
        evolution: Evolution | None = None,
        required: Sequence[str] | None = None,
    ) -> RawTopic:
        """Open the topic on a bus; the default evolution policy is the interface's.

        Samples of writers whose interface lacks a ``required`` field are undecodable.
        """
        policy = evolution or self._interface.evolution
        return open_topic(bus, self.topic, self.schema, self.qos, policy, producer, required)

    @property
    def schema(self) -> Schema:
        """The schema whose values are of :attr:`data_type`."""
        return self.data_type._schema

    @cached_property
    def public(self) -> range:
        """The positions of the public fields, behind or before the private ones."""
        index, private = int(self._interface.indexed), self._interface.raw.private_at(self.topic)
        first = private + len(_data.PRIVATE) if private == index else index
        return range(first, first + len(self.info.fields))

    @cached_property
    def public_names(self) -> tuple[str, ...]:
        """The names of the public fields."""
        return self.data_type._fields[self.public.start : self.public.stop]

    @cached_property
    def checks(self) -> Checks:
        """The checks of its values beyond those of the encoding."""
        return Checks(self.schema, [])

    def arguments(self, value: _data.TopicData) -> str:
        """Return a value's public fields as JSON, as the component does for the audit."""
        public = self.public
        return self.checks.arguments(self.schema.encode(value), public.start, public.stop)

    @cached_property
    def narrow(self) -> frozenset[str]:
        """The public fields whose encoding carries more numbers than their type or labels allow."""
        return frozenset(self.checks.narrow).intersection(self.data_type._public)

    @cached_property
    def required(self) -> list[str]:
        """The public fields without a declared default: a command has a value for each."""
        return self._interface.raw.required(self.topic)

    def check(self, fields: Mapping[str, Any]) -> None:
        """Reject numbers outside their field's SAL type, or without a label where it has labels.

        Raises :class:`EncodeError`, which names the field.
        """
        for name in self.narrow.intersection(fields):
            refusal = self.checks.refusal_of(name, fields[name])
            if refusal is not None:
                raise self.refused(refusal)

    def refused(self, refusal: str) -> EncodeError:
        """Return the error for a rejected value."""
        field = refusal.split(" ", 1)[0]
        return EncodeError(f"{self.component}.{self.attribute}: {refusal}", field)

    @cached_property
    def qos(self) -> Qos:
        """The quality of service of its kind."""
        return self.info.qos

    @cached_property
    def revcode(self) -> str:
        """SAL's revision code."""
        return self.info.revcode

    def __repr__(self) -> str:
        return f"<{self.component}.{self.attribute}>"


def _missing(schema: Schema, zeros: dict[str, Any]) -> dict[str, Any]:
    """Return the zeros of fields for which the schema has no default."""
    if not zeros:
        return {}
    try:
        schema.encode({})
    except ValueError:
        return zeros
    return {}


class ComponentInterface:
    """A component's topics by kind and name, and its enumerations."""

    def __init__(
        self, raw: RawInterfaces, component: str, evolution: Evolution | None = None
    ) -> None:
        about = raw.component(component)
        self.raw = raw
        self.evolution = evolution
        self.name: str = about["name"]
        self.description: str = about["description"]
        self.indexed: bool = about["indexed"]
        self._topics = {
            KINDS[kind] + name: TopicType(self, kind, name) for kind, name in about["topics"]
        }

    def __repr__(self) -> str:
        return f"<interface of {self.name}, {len(self._topics)} topics>"

    @property
    def attributes(self) -> list[str]:
        """The attributes of all topics: ``cmd_start``, ``evt_summaryState``, …."""
        return list(self._topics)

    def of_kind(self, kind: str) -> list[TopicType]:
        """Return the topics of a kind: command, event, telemetry or ackcmd."""
        return [topic for topic in self._topics.values() if topic.kind == kind]

    def get(self, attribute: str) -> TopicType | None:
        """Return the topic of an attribute, such as ``evt_summaryState``."""
        return self._topics.get(attribute)

    @cached_property
    def enums(self) -> _data.Enums:
        """The enumerations, as attributes."""
        known = dict(reversed(self.raw.enumerations(self.name)))
        for topic in self._topics.values():
            for field in topic.info.fields:
                if field.enumeration is not None:
                    name, labels = field.enumeration
                    known.setdefault(name or _own_name(topic.name, field.name), labels)
        return _data.Enums(self.name, known, self._enumeration)

    def enumeration_of(
        self, topic: str, field: str, given: tuple[str, list[tuple[str, int]]] | None
    ) -> type[enum.IntEnum] | None:
        """Return the enumeration of a field, if it has one."""
        if topic == field == "summaryState":
            return State
        if given is None:
            return None
        name, labels = given
        return self._enumeration(name or _own_name(topic, field), labels)

    def _enumeration(self, name: str, labels: list[tuple[str, int]]) -> type[enum.IntEnum]:
        """Return the class for a name and its labels; always the same object."""
        key = (name, tuple(labels))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _data.int_enum(name, labels)
        return made

    @cached_property
    def _made(self) -> dict[tuple[str, tuple[tuple[str, int], ...]], type[enum.IntEnum]]:
        return {}


def _own_name(topic: str, field: str) -> str:
    return f"{topic[:1].upper()}{topic[1:]}_{field}"


_CACHE: dict[_Key, ComponentInterface] = {}
_LOCK = threading.Lock()


def find_interface(
    given: Any, component: str, evolution: Evolution | None = None
) -> ComponentInterface:
    """Return a component's interface.

    ``given`` is a folder, an :class:`heliograph.Interfaces`, or None for the folder that
    ``HELIO_INTERFACES`` names. Interfaces of a folder are cached: this process does not read files
    again that change later.

    Raises :class:`SchemaError` if no interfaces are given, or if they lack the component.
    """
    if isinstance(given, ComponentInterface):
        return given
    if isinstance(given, Interfaces):
        return _cached((id(given._raw), component, evolution), given._raw)
    folder = given if given is not None else os.environ.get("HELIO_INTERFACES")
    if not folder:
        raise SchemaError(
            f"no interface of {component} is named; give interface= (a folder, or what "
            "load_interfaces returns) or set HELIO_INTERFACES"
        )
    place = Path(cast("str", folder)).absolute()
    key = (str(place), component, evolution)
    known = _CACHE.get(key)
    return known or _cached(key, read_folder(place, component))


def _cached(key: _Key, raw: RawInterfaces) -> ComponentInterface:
    with _LOCK:
        known = _CACHE.get(key)
        if known is not None and (known.raw is raw or isinstance(key[0], str)):
            return known
        try:
            made = ComponentInterface(raw, key[1], key[2])
        except KeyError:
            names = ", ".join(sorted(raw.components())[:80])
            raise SchemaError(f"the interfaces have no component {key[1]!r}: {names}") from None
        if len(_CACHE) >= _CACHE_MAX:
            _CACHE.pop(next(iter(_CACHE)))
        _CACHE[key] = made
        return made
