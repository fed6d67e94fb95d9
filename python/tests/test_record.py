"""Records: dataclasses whose schema is derived from their annotations."""

from __future__ import annotations

import datetime as dt
import enum
import io
import json
import pickle
import uuid
from typing import Annotated, Any, Literal, Optional

import fastavro
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 (records need it when they are made)

import heliograph as helio


class State(enum.IntEnum):
    OFFLINE = 4
    STANDBY = 5


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@helio.record
class Point:
    x: helio.Float64
    y: helio.Float64 = 2.0


@helio.record(namespace="site")
class Everything:
    """One of each."""

    flag: helio.Boolean
    small: helio.Int32
    large: helio.Int64
    single: helio.Float32 = helio.field(unit="m/s", description="Speed.")
    double: helio.Float64
    text: helio.String = helio.field(key=True)
    raw: helio.Bytes
    gusts: helio.Array[helio.Float32, 3] = helio.field(unit="m/s")
    checked: helio.Array[helio.Int32, Literal[2]]
    plain: NDArray[np.float64]
    names: list[str]
    table: dict[str, float]
    state: State
    colour: Colour
    maybe: State | None
    old: Optional[int]  # noqa: UP045 (this spelling is tested too)
    inner: Point
    inners: list[Point]
    either: int | str | Point
    time: helio.Time
    instant: dt.datetime
    day: dt.date
    id: uuid.UUID
    noted: Annotated[int, "a note of somebody else's"]


def everything() -> Everything:
    return Everything(
        flag=True,
        small=-5,
        large=2**40,
        single=1.5,
        double=2.5,
        text="é",
        raw=b"\0\xff",
        gusts=np.array([1, 2, 3], dtype="f4"),
        checked=np.array([1, 2], dtype="i4"),
        plain=np.array([0.5]),
        names=["a", ""],
        table={"k": 1.0},
        state=State.STANDBY,
        colour=Colour.BLUE,
        maybe=State.OFFLINE,
        old=None,
        inner=Point(x=1.0),
        inners=[Point(x=3.0, y=4.0), Point(x=5.0)],
        either=Point(x=6.0),
        time=helio.Time(1_795_254_074_692_010_435),
        instant=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        day=dt.date(2026, 1, 1),
        id=uuid.UUID(int=7),
        noted=5,
    )


def test_a_record_comes_back_as_itself() -> None:
    value = everything()
    schema = helio.schema(Everything)
    back = schema.decode(schema.encode(value))
    assert back == value
    assert type(back.inner) is Point
    assert back.state is State.STANDBY
    assert back.colour is Colour.BLUE
    assert pickle.loads(pickle.dumps(value)) == value
    back.inners[1].y = 0.0
    assert back != value


def test_the_reference_library_reads_it() -> None:
    schema = helio.schema(Everything)
    parsed = fastavro.parse_schema(json.loads(schema.text))
    read: Any = fastavro.schemaless_reader(io.BytesIO(schema.encode(everything())), parsed, None)
    assert read["gusts"] == [1, 2, 3]
    assert read["state"] == 5
    assert read["colour"] == "BLUE"
    assert read["inners"][1] == {"x": 5.0, "y": 2.0}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, read)
    assert schema.decode(out.getvalue()) == everything()


def test_the_schema_keeps_what_was_said() -> None:
    schema = json.loads(helio.schema(Everything).text)
    fields = {field["name"]: field for field in schema["fields"]}
    assert (schema["namespace"], schema["name"]) == ("site", "Everything")
    assert schema["description"] == "One of each."
    assert fields["single"] == {
        "name": "single",
        "type": "float",
        "units": "m/s",
        "description": "Speed.",
    }
    assert fields["gusts"]["length"] == 3
    assert fields["checked"]["length"] == 2
    assert fields["state"]["enumeration"] == {"OFFLINE": 4, "STANDBY": 5}
    assert fields["inner"]["type"]["name"].rpartition(".")[2] == "Point"
    assert fields["inners"]["type"]["items"].rpartition(".")[2] == "Point"
    assert fields["maybe"]["type"] == ["null", "int"]


def test_defaults_are_each_record_s_own_and_in_the_schema() -> None:
    @helio.record
    class Defaults:
        number: int = 3
        numbers: list[float] = helio.field(default=[1.0])
        array: helio.Array[float, 2] = helio.field(default=np.zeros(2))
        colour: Colour = Colour.BLUE
        state: State = State.OFFLINE
        point: Point = helio.field(default=Point(x=1.0))
        raw: bytes = b"\xff"
        maybe: float | None = None
        given: float | None = 2.0

    one, two = Defaults(), Defaults()
    assert one == two
    one.numbers.append(2.0)
    one.array[0] = 1
    one.point.x = 9.0
    assert one != two
    assert two == Defaults()
    schema = helio.schema(Defaults)
    assert schema.decode(schema.encode({})) == two
    fields = json.loads(schema.text)["fields"]
    assert [field["default"] for field in fields[:2]] == [3, [1.0]]
    assert fields[8]["type"] == ["double", "null"]
    fastavro.parse_schema(json.loads(schema.text))


def test_a_record_may_hold_itself_and_build_on_another() -> None:
    @helio.record
    class Tree:
        value: int
        children: list[Tree] = helio.field(default_factory=list)

    @helio.record
    class Named(Tree):
        name: str

    tree = Tree(value=1, children=[Tree(value=2), Tree(value=3, children=[Tree(value=4)])])
    assert helio.schema(Tree).decode(helio.schema(Tree).encode(tree)) == tree
    named = Named(value=1, name="n")
    assert helio.schema(Named).decode(helio.schema(Named).encode(named)) == named


def test_post_init_sees_decoded_values() -> None:
    @helio.record
    class Checked:
        x: float

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    schema = helio.schema(Checked)
    raw = helio.Schema(schema.text).encode({"x": -1.0})
    with pytest.raises(helio.DecodeError, match="negative") as caught:
        schema.decode(raw)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_unknown_enumeration_value_stays_a_number() -> None:
    @helio.record
    class Holder:
        state: State

    schema = helio.schema(Holder)
    raw = helio.Schema(schema.text).encode({"state": 77})
    assert schema.decode(raw).state == 77


def test_keys_are_the_encoded_key_fields() -> None:
    @helio.record
    class Keyed:
        b: helio.Int32 = helio.field(key=True)
        x: float = 0.0
        a: helio.String = helio.field(key=True)

    schema = helio.schema(Keyed)
    assert schema.key_of(Keyed(b=1, a="z")) == b"\x02\x02z"
    assert schema.key(1, "z") == b"\x02\x02z"
    with pytest.raises(helio.EncodeError, match=r'fields \["b", "a"\]'):
        schema.key(1)
    with pytest.raises(helio.EncodeError, match="field b"):
        schema.key("x", "z")


def test_what_cannot_be_a_schema_is_refused_with_the_field() -> None:
    with pytest.raises(helio.SchemaError, match=r"Bad\.x: <class 'complex'> has no Avro type"):

        @helio.record
        class Bad:
            x: complex

    with pytest.raises(helio.SchemaError, match=r"only the outermost array"):

        @helio.record
        class Nested:
            x: helio.Array[helio.Array[float, 3], 2]

    with pytest.raises(helio.SchemaError, match="names 'Unknown'"):

        @helio.record
        class Lost:
            x: Unknown  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="Array"):
        helio.Array[float, -1]  # type: ignore[valid-type]


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Point(1.0)  # type: ignore[call-arg]


def test_sources_of_schemas(tmp_path: Any) -> None:
    text = helio.schema(Point).text
    path = tmp_path / "point.avsc"
    path.write_text(text)
    for source in (Point, text, json.loads(text), path, str(path), helio.schema(Point)):
        assert helio.schema(source).name == "Point"
    with pytest.raises(helio.SchemaError, match="cannot be read"):
        helio.schema(tmp_path / "none.avsc")
    with pytest.raises(helio.SchemaError, match="is not a schema"):
        helio.schema(5)
    with pytest.raises(helio.SchemaError, match="invalid JSON"):
        helio.schema("{")
