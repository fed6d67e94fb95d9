"""The words of record annotations, and how an annotation becomes an Avro schema.

An annotation is one of

- ``Boolean``, ``Int32``, ``Int64``, ``Float32``, ``Float64``, ``String``, ``Bytes``, or the plain
  ``bool``, ``int`` (64 bits), ``float`` (64 bits), ``str``, ``bytes``, or a numpy scalar type;
- ``Array[T]`` or ``Array[T, n]`` (exactly ``n`` elements), ``list[T]``, ``NDArray[np.float32]``;
- ``dict[str, T]``;
- ``T | None`` and other unions;
- another record;
- an ``enum.IntEnum`` (an ``int`` with its names beside it) or another ``enum.Enum`` (Avro's enum,
  by member name);
- ``Time``, ``datetime.datetime`` (aware), ``datetime.date``, ``uuid.UUID``.
"""

from __future__ import annotations

import datetime
import enum
import types
import typing
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np

from heliograph._errors import SchemaError
from heliograph._heliograph import Time

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import TypeAliasType, TypeVar

    _T = TypeVar("_T")
    _N = TypeVar("_N", default=Any)


@dataclass(frozen=True)
class _Primitive:
    """The Avro type of an annotated Python type."""

    avro: str


@dataclass(frozen=True)
class _ArrayOf:
    """Element annotation and fixed length of an array annotation."""

    items: Any
    length: int | None


Boolean: TypeAlias = Annotated[bool, _Primitive("boolean")]
"""A truth value."""

Int32: TypeAlias = Annotated[int, _Primitive("int")]
"""A signed 32-bit integer (Avro ``int``)."""

Int64: TypeAlias = Annotated[int, _Primitive("long")]
"""A signed 64-bit integer (Avro ``long``)."""

Float32: TypeAlias = Annotated[float, _Primitive("float")]
"""An IEEE 754 number of 32 bits (Avro ``float``)."""

Float64: TypeAlias = Annotated[float, _Primitive("double")]
"""An IEEE 754 number of 64 bits (Avro ``double``)."""

String: TypeAlias = Annotated[str, _Primitive("string")]
"""Unicode text."""

Bytes: TypeAlias = Annotated[bytes, _Primitive("bytes")]
"""Bytes without meaning to the bus."""

if TYPE_CHECKING:
    Array = TypeAliasType("Array", "NDArray[Any]", type_params=(_T, _N))
else:

    class Array:
        """``Array[T]`` or ``Array[T, n]``: elements of ``T``, a numpy array where ``T`` is numeric.

        To a type checker it is an ``NDArray``; checkers want a length written as ``Literal[64]``,
        which means the same here.
        """

        def __class_getitem__(cls, parameters: Any) -> Any:
            items, *rest = parameters if isinstance(parameters, tuple) else (parameters,)
            length = rest[0] if rest else None
            if typing.get_origin(length) is Literal:
                (length,) = typing.get_args(length)
            whole = isinstance(length, int) and not isinstance(length, bool) and length >= 0
            if len(rest) > 1 or not (length is None or whole):
                raise TypeError(f"Array[T] or Array[T, length]: got {parameters!r}")
            return Annotated[np.ndarray, _ArrayOf(items, length)]


_SCALARS: dict[Any, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    np.bool_: "boolean",
    np.int8: "int",
    np.int16: "int",
    np.int32: "int",
    np.uint8: "int",
    np.uint16: "int",
    np.uint32: "long",
    np.int64: "long",
    np.float32: "float",
    np.float64: "double",
}

_LOGICAL: dict[Any, dict[str, str]] = {
    Time: {"type": "long", "logicalType": "tai-nanos"},
    datetime.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    datetime.date: {"type": "int", "logicalType": "date"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}


@dataclass
class Builder:
    """Collects the Python classes of a schema's names while it is built."""

    classes: dict[str, type] = field(default_factory=dict)
    names: dict[type, str] = field(default_factory=dict)
    namespace: str = ""

    def schema_of(self, hint: Any, attributes: dict[str, Any], where: str) -> Any:
        """Return the Avro type of an annotation; add the field's own attributes to `attributes`."""
        if typing.get_origin(hint) is Annotated:
            return self._annotated(hint, attributes, where)
        if hint is None or hint is type(None):
            return "null"
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._enumeration(hint, attributes, where)
        if hasattr(hint, "__helio_record__"):
            return self._record(hint)
        if hint in _LOGICAL:
            return dict(_LOGICAL[hint])
        if hint in _SCALARS:
            return _SCALARS[hint]
        return self._generic(hint, attributes, where)

    def _annotated(self, hint: Any, attributes: dict[str, Any], where: str) -> Any:
        inner, *notes = typing.get_args(hint)
        for note in notes:
            if isinstance(note, _Primitive):
                return note.avro
            if isinstance(note, _ArrayOf):
                return self._array(note, attributes, where)
        return self.schema_of(inner, attributes, where)

    def _array(self, of: _ArrayOf, attributes: dict[str, Any], where: str) -> Any:
        items = self._inner(of.items, attributes, where)
        if of.length is not None:
            attributes["length"] = of.length
        return {"type": "array", "items": items}

    def _inner(self, hint: Any, attributes: dict[str, Any], where: str) -> Any:
        """Return an element's type. An inner array has no field that could hold its length."""
        inner: dict[str, Any] = {}
        items = self.schema_of(hint, inner, where)
        if "length" in inner:
            raise SchemaError(f"{where}: only the outermost array of a field has a fixed length")
        attributes.update(inner)
        return items

    def _generic(self, hint: Any, attributes: dict[str, Any], where: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hasattr(hint, "__value__"):  # an alias by the statement `type`; numpy has such ones too
            value = hint.__value__
            inner = value[arguments] if origin is not None else value
            return self.schema_of(inner, attributes, where)
        if origin in (typing.Union, types.UnionType):
            branches = [self.schema_of(branch, attributes, where) for branch in arguments]
            return sorted(branches, key=lambda branch: branch != "null")
        if origin is list:
            return self._array(_ArrayOf(arguments[0], None), attributes, where)
        if origin is np.ndarray:
            (element,) = typing.get_args(arguments[1])
            return self._array(_ArrayOf(element, None), attributes, where)
        if origin is dict and arguments[0] is str:
            return {"type": "map", "values": self._inner(arguments[1], attributes, where)}
        raise SchemaError(
            f"{where}: {hint!r} has no Avro type; use heliograph's types, a record, an enum, "
            "list[T], dict[str, T] or a union of these"
        )

    def _enumeration(self, hint: type[enum.Enum], attributes: dict[str, Any], where: str) -> Any:
        members = hint.__members__
        if issubclass(hint, int):
            attributes["enumeration"] = {name: item.value for name, item in members.items()}
            self.classes[where] = hint
            return "int"
        return self._named(hint.__name__, hint, {"type": "enum", "symbols": list(members)})

    def _record(self, cls: Any) -> Any:
        return self._named(cls.__helio_record__.fullname, cls, None)

    def _named(self, name: str, cls: type, body: dict[str, Any] | None) -> Any:
        """Define a name at its first use, and refer to it later."""
        if cls in self.names:
            return self.names[cls]
        inherits = self.namespace and "." not in name
        fullname = f"{self.namespace}.{name}" if inherits else name
        if fullname in self.classes:
            known = self.classes[fullname]
            raise SchemaError(f"two classes are named {fullname}: {known!r} and {cls!r}")
        self.classes[fullname] = cls
        self.names[cls] = fullname
        if body is not None:
            return {**body, "name": fullname}
        outer, self.namespace = self.namespace, fullname.rpartition(".")[0]
        made = _record_schema(cls, fullname, self)
        self.namespace = outer
        return made


@dataclass(frozen=True)
class RecordInfo:
    """A record class's Avro name, description and fields."""

    fullname: str
    description: str | None
    hints: dict[str, Any]
    fields: dict[str, FieldInfo]


@dataclass(frozen=True)
class FieldInfo:
    """The arguments of ``field()``; the default is in Avro's JSON form."""

    attributes: dict[str, Any]
    key: str
    default: tuple[Any, ...] = ()


def record_schema(cls: type, builder: Builder) -> Any:
    """Return the Avro schema of a record class, as JSON values."""
    return builder.schema_of(cls, {}, cls.__name__)


def _record_schema(cls: Any, fullname: str, builder: Builder) -> dict[str, Any]:
    info: RecordInfo = cls.__helio_record__
    fields = []
    for name, hint in info.hints.items():
        entry: dict[str, Any] = {"name": name, "type": None}
        noted = info.fields[name]
        attributes = dict(noted.attributes)
        entry["type"] = builder.schema_of(hint, attributes, f"{fullname}.{name}")
        if noted.default:
            entry["default"] = avro_default(noted.default[0])
            entry["type"] = _default_first(entry["type"], entry["default"])
        fields.append(entry | attributes)
    made: dict[str, Any] = {"type": "record", "name": fullname, "fields": fields}
    if info.description:
        made["description"] = info.description
    return made


def _default_first(avro: Any, default: Any) -> Any:
    """Put null last in a union whose default is a value: Avro's default is of the first branch."""
    if isinstance(avro, list) and avro[0] == "null" and default is not None:
        return [*avro[1:], "null"]
    return avro


def avro_default(value: Any) -> Any:
    """Return a Python default in Avro's JSON form."""
    if isinstance(value, enum.Enum) and not isinstance(value, int):
        return value.name
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Time):
        return value.tai_ns
    if isinstance(value, (list, tuple)):
        return [avro_default(item) for item in value]
    if isinstance(value, dict):
        return {name: avro_default(item) for name, item in value.items()}
    if hasattr(value, "__helio_record__"):
        names = type(value).__helio_record__.hints
        return {name: avro_default(getattr(value, name)) for name in names}
    return value.value if isinstance(value, enum.Enum) else value
