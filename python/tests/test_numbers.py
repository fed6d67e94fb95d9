"""Integers of all ranges, and arrays of raw elements as numpy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from values import fastavro_decode, fastavro_encode

import heliograph as helio

GOLDEN = Path(__file__).parents[2] / "crates/core/tests/golden/numbers.txt"
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
INTEGERS = [
    ("int", "int8"),
    ("int", "uint8"),
    ("int", "int16"),
    ("int", "uint16"),
    ("long", "uint32"),
    ("long", "uint64"),
]


def array_of(dtype: str, *shape: int) -> dict[str, Any]:
    name = np.dtype(dtype).name
    return {"type": "bytes", "logicalType": "ndarray", "dtype": name, "shape": list(shape)}


@helio.record(namespace="site")
class Numbers:
    """Every range, and two arrays."""

    byte: helio.UInt8
    small: helio.Int8
    half: helio.UInt16
    word: helio.UInt32
    wide: helio.UInt64
    pixels: helio.NdArray[helio.UInt16, Literal[-1], Literal[2]]
    waves: helio.NdArray[np.float64, Literal[2]]


def test_the_bytes_are_those_of_the_golden_file() -> None:
    schema, _, datum, _ = GOLDEN.read_text().splitlines()
    numbers = Numbers(
        byte=255,
        small=-128,
        half=65535,
        word=2**32 - 1,
        wide=2**64 - 1,
        pixels=np.array([[0, 1], [65535, 258]], "u2"),
        waves=np.array([-0.0, np.inf]),
    )
    for made in (helio.Schema(schema), helio.schema(Numbers)):
        assert made.encode(numbers).hex() == datum
    back = helio.schema(Numbers).decode(bytes.fromhex(datum))
    assert back == numbers
    assert back.pixels.dtype == np.uint16
    assert back.pixels.shape == (2, 2)


@pytest.mark.parametrize(("base", "name"), INTEGERS)
def test_integers_have_their_range(base: str, name: str) -> None:
    kind = {"type": base, "logicalType": name}
    schema = helio.Schema(kind)
    info = np.iinfo(name)
    for number in (info.min, 0, 1, info.max):
        for given in (number, np.dtype(name).type(number)):
            assert schema.decode(schema.encode(given)) == number
    for wrong in (info.min - 1, info.max + 1, 1.5, "1", None):
        with pytest.raises(helio.EncodeError, match=name):
            schema.encode(wrong)
    if name != "uint64":
        outside = fastavro_encode(base, int(info.max) + 1)
        with pytest.raises(helio.DecodeError, match=name):
            schema.decode(outside)


@pytest.mark.parametrize(("base", "name"), INTEGERS)
def test_lists_of_integers_are_numpy_arrays(base: str, name: str) -> None:
    kind = {"type": "array", "items": {"type": base, "logicalType": name}}
    schema = helio.Schema(kind)
    info = np.iinfo(name)
    numbers = np.array([info.min, 0, 7, info.max], name)
    encoded = schema.encode(numbers)
    assert schema.encode(numbers.tolist()) == encoded
    back = schema.decode(encoded)
    assert back.dtype == numbers.dtype
    assert np.array_equal(back, numbers)
    with pytest.raises(helio.EncodeError, match=r"\[1\]"):
        schema.encode([0, int(info.max) + 1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (4, 0, 5), (40, 60, 3)])
def test_arrays_keep_type_shape_and_bytes(dtype: str, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape, dtype=int))
    raw = np.random.default_rng(1).bytes(size * np.dtype(dtype).itemsize)
    array = np.frombuffer(raw, dtype).reshape(shape)
    schema = helio.Schema(array_of(dtype, *shape))
    encoded = schema.encode(array)
    assert fastavro_decode("bytes", encoded) == array.tobytes()
    back = schema.decode(encoded)
    assert (back.dtype, back.shape) == (array.dtype, shape)
    assert back.tobytes() == array.tobytes()
    assert not back.flags.writeable
    # Other byte orders and layouts are converted, and bytes are taken as they are.
    swapped = array.astype(array.dtype.newbyteorder(">"))
    for given in (swapped, array.copy(order="F"), array.tobytes()):
        assert schema.encode(given) == encoded


def test_large_arrays_are_views_of_the_bytes_at_any_address() -> None:
    for before in range(70):
        schema = helio.Schema(
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "text", "type": "string"},
                    {"name": "data", "type": array_of("u4", -1, 16)},
                ],
            }
        )
        data = np.arange(1024 * 16, dtype="u4").reshape(1024, 16)
        datum = schema.encode({"text": "x" * before, "data": data})
        back = schema.decode(datum)["data"]
        start = np.frombuffer(datum, "u1").ctypes.data
        assert back.ctypes.data == start + len(datum) - data.nbytes
        assert np.array_equal(back, data)


def test_other_shapes_types_and_sizes_are_refused() -> None:
    schema = helio.Schema(array_of("u2", -1, 4))
    for wrong in (
        np.zeros(4, "u2"),
        np.zeros((4, 3), "u2"),
        np.zeros((1, 1, 4), "u2"),
        np.zeros((1, 4), "i2"),
        np.zeros((1, 4), "u4"),
        np.zeros((1, 4), "f4"),
        b"1234567",
        [[1, 2, 3, 4]],
        None,
    ):
        with pytest.raises(helio.EncodeError):
            schema.encode(wrong)
    assert schema.decode(schema.encode(np.ones((2, 4), "u1"))).tolist() == [[1] * 4] * 2
    with pytest.raises(helio.DecodeError, match=r"ndarray uint16\[-1, 4\]"):
        schema.decode(fastavro_encode("bytes", b"1234567"))


def test_unions_choose_by_range_and_type() -> None:
    wide = {"type": "long", "logicalType": "uint64"}
    schema = helio.Schema(
        ["null", {"type": "int", "logicalType": "uint8"}, wide, array_of("u2", 2)]
    )
    for value in (None, 255, 256, 2**64 - 1):
        assert schema.decode(schema.encode(value)) == value
    assert schema.decode(schema.encode(np.array([1, 2], "u2"))).tolist() == [1, 2]


def test_annotations_are_checked_and_defaults_are_kept() -> None:
    for wrong in ((np.uint8, -1, -1), (np.uint8, -2), (np.uint8, 0, -1), (np.uint8, 1.5)):
        with pytest.raises(TypeError):
            helio.NdArray[wrong]  # type: ignore[misc, type-arg]
    with pytest.raises(TypeError, match="elements"):
        helio.NdArray[str, 2]  # type: ignore[valid-type]

    @helio.record
    class Defaults:
        data: helio.NdArray[np.int16, Literal[2]] = helio.field(default=np.array([1, -1], "i2"))
        number: np.uint64 = helio.field(default=np.uint64(2**63 - 1))

    schema = helio.schema(Defaults)
    assert schema.decode(schema.encode({})) == Defaults()
