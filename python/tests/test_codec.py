"""The codec for Python objects, compared with fastavro in both directions."""

from __future__ import annotations

import array
import datetime as dt
import gc
import math
import uuid
import weakref
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from values import fastavro_decode, fastavro_encode, plain

import heliograph as helio


@pytest.mark.parametrize(
    ("items", "dtype"),
    [("float", "f4"), ("double", "f8"), ("int", "i4"), ("long", "i8"), ("boolean", "?")],
)
def test_numeric_arrays_go_as_blocks(items: str, dtype: str) -> None:
    kind = {"type": "array", "items": items}
    schema = helio.Schema(kind)
    for size in (0, 1, 7, 5000):
        numbers = (np.arange(size) % 3 - 1).astype(dtype)
        encoded = schema.encode(numbers)
        assert fastavro_decode(kind, encoded) == numbers.tolist()
        back = schema.decode(encoded)
        assert back.dtype == numbers.dtype
        assert np.array_equal(back, numbers)
        assert not back.flags.writeable
        assert schema.encode(numbers.tolist()) == encoded
        assert schema.encode(tuple(numbers.tolist())) == encoded
        # Several blocks, sized and not, as other writers may produce.
        halves = [schema.encode(part)[:-1] for part in (numbers[: size // 2], numbers[size // 2 :])]
        unsized = fastavro_encode(kind, numbers.tolist())[:-1]
        again = schema.decode(b"".join([*halves, unsized, b"\0"]))
        assert np.array_equal(again, np.concatenate([numbers, numbers]))


def test_other_layouts_are_converted_or_refused() -> None:
    floats = helio.Schema({"type": "array", "items": "float"})
    wanted = floats.encode(np.arange(4, dtype="f4"))
    for given_ in (
        np.arange(8, dtype="f4")[::2] / 2,
        np.arange(4, dtype=">f4"),
        np.arange(4, dtype="f8"),
        np.arange(4, dtype="i2"),
        np.arange(4),
        array.array("f", [0, 1, 2, 3]),
        range(4),
        [0, 1.0, np.float64(2), np.int8(3)],
    ):
        assert floats.encode(given_) == wanted
    ints = helio.Schema({"type": "array", "items": "int"})
    assert ints.encode(np.arange(4, dtype="u2")) == ints.encode([0, 1, 2, 3])
    for schema, wrong, found in (
        (floats, np.zeros((2, 2)), "shape [2, 2]"),
        (floats, np.array(["a"]), "array of <U1"),
        (floats, "text", "str 'text'"),
        (floats, 3, "int 3"),
        (floats, {1: 2}, "dict {1: 2}"),
        (ints, np.array([1.5]), "array of float64"),
        (ints, np.array([0, 2**31]), "2147483648"),
        (ints, np.zeros(2, dtype=bool), None),
    ):
        if found is None:
            continue
        with pytest.raises(helio.EncodeError) as caught:
            schema.encode(wrong)
        assert caught.value.found == found


def test_a_large_aligned_array_is_a_view_that_keeps_its_bytes_alive() -> None:
    schema = helio.Schema({"type": "array", "items": "float"})
    numbers = np.random.default_rng(1).random(1 << 16, dtype="f4")
    for shift in range(8):
        # The header's length decides the alignment; another count shifts it.
        part = numbers[: len(numbers) >> shift]
        encoded = schema.encode(part)
        back = schema.decode(encoded)
        view = back.base is encoded
        del encoded
        gc.collect()
        assert np.array_equal(back, part)
        if view:
            assert not back.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                back.setflags(write=True)


def test_a_fixed_length_is_held_to() -> None:
    schema = helio.Schema(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": {"type": "array", "items": "float"}, "length": 3}],
        }
    )
    assert schema.decode(schema.encode({"a": [1, 2, 3]}))["a"].tolist() == [1, 2, 3]
    for wrong in ([1, 2], np.zeros(4, dtype="f4"), (1,)):
        with pytest.raises(helio.EncodeError, match="field a: expected 3 elements, found"):
            schema.encode({"a": wrong})
    free = helio.Schema({"type": "array", "items": "float"})
    with pytest.raises(helio.DecodeError, match="expected 3 elements, found 2"):
        schema.decode(free.encode([1, 2]))


_DEEP = {
    "type": "record",
    "name": "a.R",
    "fields": [
        {"name": "x", "type": "int"},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "S",
                "fields": [
                    {"name": "items", "type": {"type": "array", "items": "string"}},
                    {"name": "table", "type": {"type": "map", "values": "double"}, "default": {}},
                ],
            },
        },
    ],
}


@pytest.mark.parametrize(
    ("value", "path", "expected", "found"),
    [
        ({"x": "1", "inner": {}}, "x", "int (32 bits)", "str '1'"),
        ({"x": 2**31, "inner": {}}, "x", "int (32 bits)", "int 2147483648"),
        ({"x": 1, "inner": None}, "inner.items", None, "None"),
        ({"x": 1, "inner": {"items": ["a", 2]}}, "inner.items[1]", "string", "int 2"),
        (
            {"x": 1, "inner": {"items": [], "table": {"k": ""}}},
            'inner.table["k"]',
            "double",
            "str ''",
        ),
        ({"x": 1}, "inner", "a.S", "nothing: it is missing and has no default"),
        (
            {"x": 1, "inner": {"items": []}, "y": 2},
            "",
            "only fields of a.R",
            'the key "y"',
        ),
        (7, "x", "a.R (an object or a dict with its fields)", "int 7"),
    ],
)
def test_errors_name_the_place(value: Any, path: str, expected: str | None, found: str) -> None:
    with pytest.raises(helio.EncodeError) as caught:
        helio.Schema(_DEEP).encode(value)
    error = caught.value
    assert error.path == path
    assert error.found == found
    assert expected is None or error.expected == expected
    assert str(error).startswith("a.R: ")
    assert isinstance(error, ValueError)


def test_bad_bytes_name_the_place() -> None:
    schema = helio.Schema(_DEEP)
    good = schema.encode({"x": 1, "inner": {"items": ["é"]}})
    assert schema.decode(good) == {"x": 1, "inner": {"items": ["é"], "table": {}}}
    for data, message in (
        (good[:-1], "field inner.table: expected 1 more bytes, found 0 to the end"),
        (good + b"x", "expected the end of the datum, found 1 more bytes"),
        (good.replace("é".encode(), b"\xff\xff"), r"field inner.items\[0\]: expected UTF-8"),
        (b"\xff" * 11, "field x: expected a varint of at most 64 bits"),
        (b"\x02" + b"\x01" + b"\xff" * 9 + b"\x01", "field inner.items: "),
    ):
        with pytest.raises(helio.DecodeError, match=message):
            schema.decode(data)


def test_a_few_bytes_cannot_ask_for_much_memory() -> None:
    nulls = helio.Schema({"type": "array", "items": "null"})
    with pytest.raises(helio.DecodeError, match="65536 elements without bytes"):
        nulls.decode(b"\xfe\xff\xff\xff\xff\x0f\x00")
    for items in ("float", "long", "boolean", "string"):
        with pytest.raises(helio.DecodeError):
            helio.Schema({"type": "array", "items": items}).decode(
                b"\xfe\xff\xff\xff\xff\xff\x0f\0"
            )
    with pytest.raises(helio.DecodeError):
        helio.Schema("bytes").decode(b"\xfe\xff\xff\xff\xff\xff\x0f\0")


def test_nesting_is_bounded() -> None:
    schema = helio.Schema(
        {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    )
    chain: Any = None
    for _ in range(40):
        chain = {"next": chain}
    assert schema.decode(schema.encode(chain)) == chain
    loop: dict[str, Any] = {}
    loop["next"] = loop
    with pytest.raises(helio.EncodeError, match="levels of nesting"):
        schema.encode(loop)
    with pytest.raises(helio.DecodeError, match="levels of nesting"):
        schema.decode(b"\x02" * 1000)


def test_unions_choose_the_branch_that_fits() -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    other = {"type": "record", "name": "Q", "fields": [{"name": "y", "type": "int"}]}
    colour = {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}
    kind = ["null", "boolean", "int", "double", colour, "string", "bytes", point, other]
    kind.append({"type": "array", "items": "float"})
    schema = helio.Schema(kind)
    for value in (None, True, 3, 2.5, "RED", "green", b"raw", {"x": 1}, {"y": 2}, [1.0, 2.0]):
        encoded = schema.encode(value)
        assert plain(schema.decode(encoded)) == value
        assert fastavro_decode(kind, encoded) == value
    assert schema.decode(schema.encode(2**40)) == float(2**40)
    assert schema.decode(schema.encode(np.float32(1.5))) == 1.5
    assert schema.decode(schema.encode(np.int16(5))) == 5
    assert schema.encode(("Q", {"y": 1})) == schema.encode({"y": 1})
    with pytest.raises(helio.EncodeError, match="expected null or boolean or int or"):
        schema.encode(object())
    with pytest.raises(helio.EncodeError):
        schema.encode({"z": 1})


def test_logical_types_are_python_s_own() -> None:
    now = dt.datetime(2026, 11, 21, 3, 0, 0, 123456, tzinfo=dt.UTC)
    cases: list[tuple[Any, Any]] = [
        ({"type": "long", "logicalType": "timestamp-micros"}, now),
        ({"type": "long", "logicalType": "timestamp-millis"}, now.replace(microsecond=123000)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, now.replace(tzinfo=None)),
        ({"type": "int", "logicalType": "date"}, now.date()),
        ({"type": "int", "logicalType": "time-millis"}, dt.time(3, 4, 5, 6000)),
        ({"type": "long", "logicalType": "time-micros"}, dt.time(3, 4, 5, 6)),
        ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=5)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-12345.67"),
        ),
        (
            {
                "type": "fixed",
                "name": "F",
                "size": 6,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
            Decimal("128.00"),
        ),
        ({"type": "long", "logicalType": "unheard-of"}, 5),
    ]
    for kind, value in cases:
        schema = helio.Schema(kind)
        assert schema.decode(schema.encode(value)) == value
        assert fastavro_decode(kind, schema.encode(value)) == value
        assert schema.decode(fastavro_encode(kind, value)) == value
    with pytest.raises(helio.EncodeError, match="timestamp-micros, found datetime"):
        helio.Schema(cases[0][0]).encode(now.replace(tzinfo=None))
    with pytest.raises(helio.EncodeError, match="decimal"):
        helio.Schema(cases[7][0]).encode(Decimal("1.234"))


def test_bytes_from_any_buffer() -> None:
    schema = helio.Schema("bytes")
    raw = bytes(range(256))
    wanted = schema.encode(raw)
    for given_ in (bytearray(raw), memoryview(raw), np.frombuffer(raw, dtype="u1")):
        assert schema.encode(given_) == wanted
    assert schema.decode(memoryview(wanted)) == raw
    assert schema.decode(bytearray(wanted)) == raw
    fixed = helio.Schema({"type": "fixed", "name": "F", "size": 4})
    assert fixed.decode(fixed.encode(b"abcd")) == b"abcd"
    with pytest.raises(helio.EncodeError, match="expected 4 bytes, found 3 bytes"):
        fixed.encode(b"abc")
    with pytest.raises(helio.EncodeError):
        schema.encode("text")


def test_narrow_floats_do_not_overflow_silently() -> None:
    schema = helio.Schema("float")
    assert schema.decode(schema.encode(math.inf)) == math.inf
    with pytest.raises(helio.EncodeError, match="32 bits"):
        schema.encode(1e300)


def test_foreign_code_may_fail_or_meddle() -> None:
    class Shy:
        @property
        def x(self) -> int:
            raise RuntimeError("not today")

    schema = helio.Schema({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    with pytest.raises(helio.EncodeError, match="field x"):
        schema.encode(Shy())

    numbers: list[Any] = []

    class Shrinks:
        def __float__(self) -> float:
            numbers.clear()
            return 1.0

    numbers.extend([Shrinks(), 2.0, 3.0])
    floats = helio.Schema({"type": "array", "items": "double"})
    with pytest.raises(helio.EncodeError, match="expected 3 elements"):
        floats.encode(numbers)

    class Again:
        def __float__(self) -> float:
            floats.encode([5.0])
            return 7.0

    assert floats.decode(floats.encode([Again(), 1.0])).tolist() == [7.0, 1.0]


def test_decoded_records_and_schemas_are_collected() -> None:
    @helio.record
    class Local:
        x: float

    schema = helio.schema(Local)
    value = schema.decode(schema.encode(Local(x=1.0)))
    gone = weakref.ref(value), weakref.ref(Local)
    del value, schema, Local
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
