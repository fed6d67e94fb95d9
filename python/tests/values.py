"""Comparable forms of samples' values."""

from __future__ import annotations

import io
import math
from typing import Any

import fastavro
import numpy as np


def plain(value: Any) -> Any:
    """Numpy arrays as lists, NaN as a value that equals itself."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def fastavro_encode(schema: Any, value: Any) -> bytes:
    """A datum as fastavro, the reference, writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def fastavro_decode(schema: Any, data: bytes) -> Any:
    """The value that fastavro reads from a datum."""
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.tell() == len(data)
    return value
