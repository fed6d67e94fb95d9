"""The codec, compared with fastavro on random schemas and values."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from values import fastavro_decode, fastavro_encode, plain

import heliograph as helio

_INT = st.integers(-(2**31), 2**31 - 1)
_LONG = st.integers(-(2**63), 2**63 - 1)
_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", _INT),
    ("long", _LONG),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", st.text()),
    ("bytes", st.binary()),
]


def _array(inner: tuple[Any, st.SearchStrategy[Any]]) -> tuple[Any, st.SearchStrategy[Any]]:
    return {"type": "array", "items": inner[0]}, st.lists(inner[1], max_size=6)


def _map(inner: tuple[Any, st.SearchStrategy[Any]]) -> tuple[Any, st.SearchStrategy[Any]]:
    values = st.dictionaries(st.text(), inner[1], max_size=4)
    return {"type": "map", "values": inner[0]}, values


def _optional(inner: tuple[Any, st.SearchStrategy[Any]]) -> tuple[Any, st.SearchStrategy[Any]]:
    if inner[0] == "null" or isinstance(inner[0], list):
        return inner
    return ["null", inner[0]], st.none() | inner[1]


def _record(inner: list[tuple[Any, st.SearchStrategy[Any]]]) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [{"name": f"f{i}", "type": kind} for i, (kind, _) in enumerate(inner)]
    values = st.fixed_dictionaries({f"f{i}": made for i, (_, made) in enumerate(inner)})
    return {"type": "record", "name": f"r_{uuid.uuid4().hex}", "fields": fields}, values


_TYPES = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: (
        inner.map(_array)
        | inner.map(_map)
        | inner.map(_optional)
        | st.lists(inner, max_size=4).map(_record)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_any_value_of_any_schema_goes_both_ways(data: st.DataObject) -> None:
    kind, values = data.draw(_TYPES)
    schema = helio.Schema(kind)
    value = data.draw(values)
    ours = schema.encode(value)
    assert plain(fastavro_decode(kind, ours)) == plain(value)
    theirs = fastavro_encode(kind, value)
    assert plain(schema.decode(theirs)) == plain(value)
    assert plain(schema.decode(ours)) == plain(value)


@settings(deadline=None, max_examples=300)
@given(data=st.data(), noise=st.binary(max_size=64))
def test_random_bytes_give_a_value_or_a_decode_error(data: st.DataObject, noise: bytes) -> None:
    kind, _ = data.draw(_TYPES)
    with contextlib.suppress(helio.DecodeError):
        helio.Schema(kind).decode(noise)
