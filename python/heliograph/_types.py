"""The words of record annotations, and how an annotation becomes an Avro schema.

An annotation is one of

- ``Int8`` to ``UInt64``, ``Boolean``, ``Float32``, ``Float64``, ``String``, ``Bytes``, or the plain
  ``bool``, ``int`` (64 bits), ``float`` (64 bits), ``str``, ``bytes``, or a numpy scalar type;
- ``Array[T]`` or ``Array[T, n]`` (exactly ``n`` elements), ``list[T]``, ``NDArray[np.float32]``;
- ``NdArray[T, 16, -1]``, an array of several dimensions that is sent as its memory;
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
    from typing_extensions import TypeAliasType, TypeVar, TypeVarTuple

    _T = TypeVar("_T")
    _N = TypeVar("_N", default=Any)
    _Shape = TypeVarTuple("_Shape")


@dataclass(frozen=True)
class _Primitive:
    """The Avro type of an annotated Python type, and the name of an integer's range."""

    avro: str
    logical: str | None = None


@dataclass(frozen=True)
class _NdArrayOf:
    """Element type, by numpy's name, and shape of an annotation of raw elements."""

    dtype: str
    shape: tuple[int, ...]


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

Int8: TypeAlias = Annotated[int, _Primitive("int", "int8")]
"""A signed 8-bit integer (Avro ``int`` of that range)."""

Int16: TypeAlias = Annotated[int, _Primitive("int", "int16")]
"""A signed 16-bit integer (Avro ``int`` of that range)."""

UInt8: TypeAlias = Annotated[int, _Primitive("int", "uint8")]
"""An unsigned 8-bit integer (Avro ``int`` of that range)."""

UInt16: TypeAlias = Annotated[int, _Primitive("int", "uint16")]
"""An unsigned 16-bit integer (Avro ``int`` of that range)."""

UInt32: TypeAlias = Annotated[int, _Primitive("long", "uint32")]
"""An unsigned 32-bit integer (Avro ``long`` of that range)."""

UInt64: TypeAlias = Annotated[int, _Primitive("long", "uint64")]
"""An unsigned 64-bit integer (Avro ``long`` of the same 64 bits)."""

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
    NdArray = TypeAliasType("NdArray", "NDArray[Any]", type_params=(_T, _Shape))
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

    class NdArray:
        """``NdArray[T, 16, 512]``: a numpy array of that shape, sent as its memory.

        ``T`` is an integer or real type of numpy or of this module, and one dimension may be -1:
        its size follows from the data. Decoded arrays are views of the sample where it is large.
        To a type checker it is an ``NDArray``; checkers want ``Literal[512]`` for a dimension.
        """

        def __class_getitem__(cls, parameters: Any) -> Any:
            items, *rest = parameters if isinstance(parameters, tuple) else (parameters,)
            shape = [
                typing.get_args(size)[0] if typing.get_origin(size) is Literal else size
                for size in rest
            ]
            whole = all(type(size) is int and size >= -1 for size in shape)
            free = shape.count(-1)
            if not whole or len(shape) > 10 or free > 1 or (free and 0 in shape):
                raise TypeError(f"NdArray[T, *dimensions], of which one may be -1: {parameters!r}")
            return Annotated[np.ndarray, _NdArrayOf(_dtype(items), tuple(shape))]


_DTYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float32",
    "float64",
)


def _dtype(items: Any) -> str:
    """Return numpy's name of an element type."""
    name: str | None = None
    if typing.get_origin(items) is Annotated:
        base = {"int": "int32", "long": "int64", "float": "float32", "double": "float64"}
        notes = [note for note in typing.get_args(items) if isinstance(note, _Primitive)]
        name = next((note.logical or base.get(note.avro) for note in notes), None)
    elif isinstance(items, type):
        name = np.dtype(items).name
    if name not in _DTYPES:
        raise TypeError(f"NdArray's elements are one of {', '.join(_DTYPES)}: got {items!r}")
    return name


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
    np.uint64: {"type": "long", "logicalType": "uint64"},
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
                return _integer(note) if note.logical else note.avro
            if isinstance(note, _NdArrayOf):
                shape = list(note.shape)
                return {
                    "type": "bytes",
                    "logicalType": "ndarray",
                    "dtype": note.dtype,
                    "shape": shape,
                }
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


def _integer(note: _Primitive) -> dict[str, Any]:
    return {"type": note.avro, "logicalType": note.logical}


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
            entry["default"] = _typed_default(entry["type"], noted.default[0])
            entry["type"] = _default_first(entry["type"], entry["default"])
        fields.append(entry | attributes)
    made: dict[str, Any] = {"type": "record", "name": fullname, "fields": fields}
    if info.description:
        made["description"] = info.description
    return made


def _typed_default(avro: Any, value: Any) -> Any:
    """Return a default; that of raw elements is a text, as that of bytes."""
    branches = avro if isinstance(avro, list) else [avro]
    for branch in branches:
        raw = isinstance(branch, dict) and branch.get("logicalType") == "ndarray"
        if raw and isinstance(value, np.ndarray):
            dtype = np.dtype(branch["dtype"]).newbyteorder("<")
            return value.astype(dtype, casting="safe").tobytes().decode("latin-1")
    return avro_default(value)


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
