"""Columns of numpy arrays as the extension takes them: contiguous, of the fields' types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from heliograph._errors import EncodeError
from heliograph._heliograph import RawPackets, array_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph._heliograph import Schema

_VARIANCE, _PSF = ".variance", ".psf"
_Column = tuple[str, Any, Any]


def encode(schema: Schema, given: Mapping[str, Any]) -> RawPackets:
    """Encode an alert for each row of the columns.

    Raises EncodeError, which names the column.
    """
    kinds = dict(array_columns(schema))
    stamps = {path: _images(path, given) for path, kind in kinds.items() if kind == "bytes"}
    parts = {path + part for path in stamps for part in (_VARIANCE, _PSF)}
    columns = {path: value for path, value in given.items() if path not in parts}
    rows = _rows(kinds, columns)
    found: list[_Column] = []
    for path, value in columns.items():
        kind = kinds.get(path)
        if kind is None:
            raise _wrong(path, f"the schema has no field for the column {path}")
        images = stamps.get(path)
        if images is not None:
            found.append((path, images, _mask(value)))
        else:
            found.append(_column(path, kind, value, _length(path, rows, columns)))
    return RawPackets.of_arrays(schema, rows, found)


def _wrong(path: str, message: str) -> EncodeError:
    return EncodeError(message, path, "columns that fit the schema", "others")


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bytes)) or np.ndim(value) == 0


def _rows(kinds: Mapping[str, str], columns: Mapping[str, Any]) -> int:
    """Return the number of alerts: that of the first column of the packets' own fields."""
    for path, value in columns.items():
        if "[]" not in path and not _is_scalar(value):
            return len(value) - (kinds.get(path) == "offsets")
    raise _wrong("", "no column has a value for each alert: give one of them as an array")


def _length(path: str, rows: int, columns: Mapping[str, Any]) -> int:
    """Return the number of a column's values: alerts, or elements of its list."""
    if "[]" not in path:
        return rows
    offsets = columns.get(path.rpartition("[]")[0])
    if offsets is None or not len(offsets):
        raise _wrong(path, f"the column {path}: its list has no offsets")
    return int(offsets[-1])


def _mask(value: Any) -> Any:
    """Return the nulls of a masked array, one for each row; None without any."""
    if not isinstance(value, np.ma.MaskedArray) or not np.ma.is_masked(value):
        return None
    mask = np.ma.getmaskarray(value)
    return np.ascontiguousarray(mask.reshape(len(mask), -1).all(axis=1))


def _column(path: str, kind: str, value: Any, length: int) -> _Column:
    if kind in ("str", "bytes"):
        if _is_scalar(value):
            return path, [value] * length, None
        # A masked array gives None where it is masked.
        return path, value.tolist() if isinstance(value, np.ndarray) else list(value), None
    dtype = "int64" if kind == "offsets" else kind
    try:
        array = np.asarray(value)
        if array.ndim == 0:
            array = np.full(length, array)
        if array.size == 0:
            array = array.astype(dtype)
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise _wrong(path, f"the column {path}: {array.max()} does not fit 64 bits")
        converted = array.astype(dtype, casting="same_kind", copy=False)
    except (TypeError, ValueError) as error:
        raise _wrong(path, f"the column {path}: {error}") from error
    if converted.ndim != 1:
        raise _wrong(path, f"the column {path}: one dimension is expected, not {converted.ndim}")
    return path, np.ascontiguousarray(converted), _mask(value)


def _images(path: str, given: Mapping[str, Any]) -> tuple[Any, Any, Any] | None:
    """Return the pixels of a stamp's column, their variances and the PSF; None for files."""
    pixels = given.get(path)
    if not isinstance(pixels, np.ndarray) or pixels.dtype.kind not in "fiu":
        return None

    def converted(part: str, value: Any, dtype: str, dimensions: int) -> Any:
        try:
            array = np.asarray(value).astype(dtype, casting="same_kind", copy=False)
        except (TypeError, ValueError) as error:
            raise _wrong(part, f"the column {part}: {error}") from error
        if array.ndim != dimensions:
            shape = "alerts, rows, columns" if dimensions == 3 else "rows, columns"
            raise _wrong(part, f"the column {part}: the shape ({shape}) is expected")
        return np.ascontiguousarray(array)

    variances, psf = given.get(path + _VARIANCE), given.get(path + _PSF)
    return (
        converted(path, pixels, "float32", 3),
        None if variances is None else converted(path + _VARIANCE, variances, "float32", 3),
        None if psf is None else converted(path + _PSF, psf, "float64", 2),
    )
