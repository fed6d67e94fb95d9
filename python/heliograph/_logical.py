"""Avro's logical types as Python values; the base type is encoded."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

Converter = Callable[[Any], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOCAL_EPOCH = dt.datetime(1970, 1, 1)
_DAY_0 = dt.date(1970, 1, 1)
_MICRO = dt.timedelta(microseconds=1)
_MILLI = dt.timedelta(milliseconds=1)


def _instant(unit: dt.timedelta, value: int) -> dt.datetime:
    return _EPOCH + value * unit


def _since_epoch(unit: dt.timedelta, value: dt.datetime | int) -> int:
    if isinstance(value, int):
        return value
    if value.tzinfo is None:
        raise ValueError("a datetime without a time zone")
    return (value - _EPOCH) // unit


def _local(unit: dt.timedelta, value: int) -> dt.datetime:
    return _LOCAL_EPOCH + value * unit


def _since_local_epoch(unit: dt.timedelta, value: dt.datetime | int) -> int:
    return value if isinstance(value, int) else (value - _LOCAL_EPOCH) // unit


def _time_of_day(unit: dt.timedelta, value: int) -> dt.time:
    return (_LOCAL_EPOCH + value * unit).time()


def _since_midnight(unit: dt.timedelta, value: dt.time | int) -> int:
    if isinstance(value, int):
        return value
    return (dt.datetime.combine(_DAY_0, value) - _LOCAL_EPOCH) // unit


def _date(days: int) -> dt.date:
    return _DAY_0 + dt.timedelta(days=days)


def _days(value: dt.date | int) -> int:
    return value if isinstance(value, int) else (value - _DAY_0).days


def _uuid_text(value: uuid.UUID | str) -> str:
    return str(value if isinstance(value, uuid.UUID) else uuid.UUID(value))


def _decimal(scale: int, raw: bytes) -> Decimal:
    return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale)


def _unscaled(precision: int, scale: int, size: int | None, value: Decimal) -> bytes:
    scaled = Decimal(value).scaleb(scale)
    whole = int(scaled)
    if whole != scaled or len(str(abs(whole))) > precision:
        raise ValueError(f"{value} needs more than {precision} digits, {scale} after the point")
    bits = (whole if whole >= 0 else ~whole).bit_length() + 1
    return whole.to_bytes(size if size is not None else (bits + 7) // 8, "big", signed=True)


_TABLE: dict[tuple[str, str], tuple[Converter, Converter]] = {
    ("timestamp-millis", "long"): (partial(_instant, _MILLI), partial(_since_epoch, _MILLI)),
    ("timestamp-micros", "long"): (partial(_instant, _MICRO), partial(_since_epoch, _MICRO)),
    ("local-timestamp-millis", "long"): (
        partial(_local, _MILLI),
        partial(_since_local_epoch, _MILLI),
    ),
    ("local-timestamp-micros", "long"): (
        partial(_local, _MICRO),
        partial(_since_local_epoch, _MICRO),
    ),
    ("time-millis", "int"): (partial(_time_of_day, _MILLI), partial(_since_midnight, _MILLI)),
    ("time-micros", "long"): (partial(_time_of_day, _MICRO), partial(_since_midnight, _MICRO)),
    ("date", "int"): (_date, _days),
    ("uuid", "string"): (uuid.UUID, _uuid_text),
}


def converters(
    name: str, base: str, precision: int | None, scale: int | None, size: int | None
) -> tuple[Converter, Converter] | None:
    """Return the conversions from and to the base type; None if the combination is invalid."""
    if name == "decimal" and base in ("bytes", "fixed") and precision:
        return partial(_decimal, scale or 0), partial(_unscaled, precision, scale or 0, size)
    return _TABLE.get((name, base))
