"""``@record``: a dataclass whose Avro schema, with units, is derived from its annotations."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import typing
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

import numpy as np

from heliograph._errors import SchemaError
from heliograph._heliograph import Schema
from heliograph._types import Builder, FieldInfo, RecordInfo, record_schema

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_MARK = "heliograph"
_KEY = "key"
_VALUE = "value"


def field(
    *,
    unit: str | None = None,
    description: str | None = None,
    key: Any = False,
    default: Any = dataclasses.MISSING,
    default_factory: Callable[[], Any] | None = None,
) -> Any:
    """Describe a field of a record.

    ``unit`` (``m/s``, ``deg``, as in astropy) and ``description`` are stored in the schema. Fields
    with ``key=True`` form the topic's key, in their order. ``default`` may be a list, a dict or a
    numpy array: each record gets its own copy. The schema has the default, too, so that readers
    with this field understand writers without it.
    """
    attributes: dict[str, Any] = {}
    if unit is not None:
        attributes["units"] = unit
    if description is not None:
        attributes["description"] = description
    noted = FieldInfo(attributes, _KEY if key else _VALUE)
    metadata = {_MARK: noted}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    if default is not dataclasses.MISSING and _mutable(default):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _mutable(value: Any) -> bool:
    return isinstance(value, (list, dict, np.ndarray)) or hasattr(value, "__helio_record__")


@overload
def record(cls: type[_T], /) -> type[_T]: ...
@overload
def record(
    *, name: str | None = None, namespace: str | None = None, description: str | None = None
) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def record(
    cls: type[_T] | None = None,
    /,
    *,
    name: str | None = None,
    namespace: str | None = None,
    description: str | None = None,
) -> type[_T] | Callable[[type[_T]], type[_T]]:
    """Make a class a record: a dataclass with slots, keyword-only, and an Avro schema.

    The schema's name is the class's, or ``name``, in ``namespace``; its description is the given
    one, or the class's docstring. Annotations may be text (``from __future__ import annotations``).

    Raises :class:`SchemaError` naming the field whose annotation has no Avro type.
    """
    scope = sys._getframe(1).f_locals
    if cls is None:
        return lambda given: _make(given, scope, name, namespace, description)
    return _make(cls, scope, name, namespace, description)


def _make(
    given: type[_T],
    scope: dict[str, Any],
    name: str | None,
    namespace: str | None,
    description: str | None,
) -> type[_T]:
    text = description or (given.__doc__ or "").partition("\n")[0].strip() or None
    equal = "__eq__" not in given.__dict__
    cls: Any = dataclasses.dataclass(eq=False, slots=True, kw_only=True, weakref_slot=True)(given)
    if equal:
        cls.__eq__ = _equal
        cls.__hash__ = None
    fullname = ".".join(part for part in (namespace, name or given.__name__) if part)
    hints = _hints(cls, given.__name__, scope)
    fields = {entry.name: _noted(entry, cls) for entry in dataclasses.fields(cls)}
    cls.__helio_record__ = RecordInfo(
        fullname, text, {entry: hints[entry] for entry in fields}, fields
    )
    schema_of(cls)
    return cls  # type: ignore[no-any-return]


def _hints(cls: type, name: str, scope: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, localns={**scope, name: cls}, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"{cls.__qualname__}: an annotation names {error.name!r}, which is not known where the "
            "record is defined; define or import it (outside TYPE_CHECKING) before the record"
        ) from error


def _noted(entry: dataclasses.Field[Any], cls: type) -> FieldInfo:
    noted: FieldInfo = entry.metadata.get(_MARK) or FieldInfo({}, _VALUE)
    if entry.default is not dataclasses.MISSING:
        return dataclasses.replace(noted, default=(entry.default,))
    if entry.default_factory is not dataclasses.MISSING:
        return dataclasses.replace(noted, default=(entry.default_factory(),))
    return noted


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    names = self.__helio_record__.fields
    return all(_same(getattr(self, name), getattr(other, name)) for name in names)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return np.array_equal(one, two)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    return bool(one == two)


def schema_of(cls: Any) -> Schema:
    """Return the schema of a record class, bound to it: decoding gives instances of the class."""
    made = cls.__dict__.get("__helio_schema__")
    if made is None:
        builder = Builder()
        info: RecordInfo = cls.__helio_record__
        text = json.dumps(record_schema(cls, builder))
        keys = [name for name, noted in info.fields.items() if noted.key == _KEY]
        made = Schema(text, classes=builder.classes, key=keys)
        cls.__helio_schema__ = made
    return typing.cast("Schema", made)
