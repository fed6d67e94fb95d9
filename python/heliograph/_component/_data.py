"""Classes for the values of topics, created when a topic is first used.

Constraints: an interface may have hundreds of topics with thousands of fields, so a class consists
of slots and costs microseconds; no text is compiled. A class is bound to its topic's schema:
decoding gives instances, whose enumerated fields are members of an ``IntEnum``.
"""

from __future__ import annotations

import copy
import enum
import keyword
import re
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from heliograph._heliograph import Schema
    from heliograph._sal import FieldInfo

    Labels = list[tuple[str, int]]

PRIVATE = (
    "private_sndStamp",
    "private_rcvStamp",
    "private_efdStamp",
    "private_kafkaStamp",
    "private_seqNum",
    "private_revCode",
    "private_identity",
    "private_origin",
)
"""The first fields of every topic, after ``salIndex`` if there is one."""

_SHOWN_MAX = 6
"""The most elements of an array in a ``repr``; it shows twice as many fields."""


class TopicData:
    """The value of a topic: an attribute for each field, private ones included.

    Two values are equal when their public fields (and ``salIndex``) are; NaN equals NaN.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    _topic: ClassVar[str] = ""
    _fields: ClassVar[tuple[str, ...]] = ()
    _public: ClassVar[tuple[str, ...]] = ()
    _arrays: ClassVar[tuple[str, ...]] = ()
    _schema: ClassVar[Schema]
    _defaults: ClassVar[bytes] = b""

    def __new__(cls, **fields: Any) -> Self:
        """Create a value with the defaults of all fields, then set the given ones (not None).

        Raises :class:`TypeError`, which names an unknown field.
        """
        made: Self = cls._schema.decode(cls._defaults)
        for name in cls._arrays:
            # Decoded arrays are read-only; the caller gets a writable copy.
            object.__setattr__(made, name, getattr(made, name).copy())
        for name, value in fields.items():
            if name not in cls._fields:
                raise TypeError(f"{cls._topic} has no field {name!r}")
            if value is not None:
                object.__setattr__(made, name, value)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicData) or self._public != other._public:
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in self._public)

    def __repr__(self) -> str:
        shown = [f"{name}={_short(getattr(self, name))}" for name in self._public[: 2 * _SHOWN_MAX]]
        more = len(self._public) - len(shown)
        return f"{self._topic}({', '.join(shown)}{f', … {more} more' if more > 0 else ''})"

    def __copy__(self) -> TopicData:
        made: TopicData = object.__new__(type(self))
        for name in self._fields:
            object.__setattr__(made, name, getattr(self, name))
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return the public fields by name."""
        return {name: getattr(self, name) for name in self._public}


class CommandData(TopicData):
    """The value of a command to send. It records which fields were set, zeros included.

    Received values have the class before this one, so that decoding sets their fields directly; all
    their fields count as set.
    """

    __slots__ = ()

    _given: set[str]

    def __new__(cls, **fields: Any) -> Self:
        made = super().__new__(cls, **fields)
        given = {name for name, value in fields.items() if value is not None}
        object.__setattr__(made, "_given", given)
        object.__setattr__(made, "__class__", cls)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        self._given.add(name)

    def __copy__(self) -> TopicData:
        made = super().__copy__()
        object.__setattr__(made, "_given", set(self._given))
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> TopicData:
        made = self.__copy__()
        for name in self._fields:
            object.__setattr__(made, name, copy.deepcopy(getattr(self, name), memo))
        return made


def given(value: TopicData) -> set[str] | None:
    """Return the fields of a command's value that were set; None for all."""
    return value._given if isinstance(value, CommandData) else None


def same(one: Any, two: Any) -> bool:
    """Whether two values of a field are equal; NaN equals NaN."""
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        one, two = np.asarray(one), np.asarray(two)
        floating = one.dtype.kind == two.dtype.kind == "f"
        return bool(np.array_equal(one, two, equal_nan=floating))
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two) or (one != one and two != two)


def encodable(text: Any) -> str:
    """Return any value as a text that UTF-8 can encode."""
    return "" if text is None else str(text).encode(errors="replace").decode()


def _short(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.ndarray):
        if value.size <= _SHOWN_MAX:
            return str(value.tolist())
        return f"<{value.size} x {value.dtype}>"
    return repr(value)


def data_class(name: str, topic: str, names: Sequence[str], arrays: Sequence[str]) -> type:
    """Return a new class of values; :func:`bind` makes it usable."""
    first = names.index(PRIVATE[0]) + len(PRIVATE)
    body = {
        "__slots__": (*names, "_given"),
        "__doc__": f"A value of {topic}.",
        "__module__": "heliograph",
        "_topic": topic,
        "_fields": tuple(names),
        "_public": (*names[: first - len(PRIVATE)], *names[first:]),
        "_arrays": tuple(arrays),
    }
    return type(name, (TopicData,), body)


def command_class(received: type) -> type:
    """Return the class of a command's values to send, for the class of received ones."""
    names = {"__slots__": (), "__doc__": received.__doc__, "__module__": "heliograph"}
    return type(received.__name__, (CommandData, received), names)


def bind(cls: Any, schema: Schema, zeros: Mapping[str, Any]) -> None:
    """Bind a class to its schema; ``zeros`` are values of fields that have no default."""
    cls._schema = schema
    cls._defaults = schema.encode(dict(zeros))


def zero(field: FieldInfo) -> Any:
    """Return the initial value of a field without a default."""
    if "null" in field.type:
        return None
    if '"array"' in field.type:
        return []
    if "string" in field.type:
        return ""
    if "boolean" in field.type:
        return False
    return b"" if "bytes" in field.type else 0


class Enums:
    """The enumerations of a component, as attributes: ``enums.AxisState.Moving``.

    An enumeration has its name from the interface. An unnamed enumeration of a field is named after
    topic and field: ``Target_tracksys``. Labels are the interface's; characters that a Python name
    cannot have become ``_``.
    """

    def __init__(
        self,
        component: str,
        known: Mapping[str, Labels],
        make: Callable[[str, Labels], type[enum.IntEnum]],
    ) -> None:
        self._component = component
        self._known = known
        self._make = make

    def __getattr__(self, name: str) -> type[enum.IntEnum]:
        if name.startswith("__"):
            raise AttributeError(name)
        labels = self._known.get(name)
        if labels is None:
            raise AttributeError(f"{self._component} has no enumeration {name!r}; see dir()")
        return self._make(name, labels)

    def __dir__(self) -> list[str]:
        return sorted(self._known)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<enumerations of {self._component}: {', '.join(self)}>"


def int_enum(name: str, labels: Sequence[tuple[str, int]]) -> type[enum.IntEnum]:
    """Return the enumeration with these labels; labels with the same value are aliases."""
    members = {_member(label): value for label, value in labels}
    made = enum.IntEnum(name, members, module="heliograph")  # type: ignore[misc]
    return cast("type[enum.IntEnum]", made)


def _member(label: str) -> str:
    name = re.sub(r"\W", "_", label)
    if not name.isidentifier():
        name = f"_{name}"
    # Names that an IntEnum cannot have as members, or that a program cannot write.
    return (
        f"{name}_"
        if name == "mro" or keyword.iskeyword(name) or (name[:1] == "_" == name[-1:])
        else name
    )
