"""Our own topics beside a component's: control requests and the audit."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from heliograph._heliograph import Schema
from heliograph._heliograph import service_topic as _service_topic

if TYPE_CHECKING:
    from heliograph._heliograph import RawBus, RawTopic


@cache
def _known(kind: str, keys: tuple[str, ...]) -> tuple[Schema, str]:
    text, qos = _service_topic(kind)
    return Schema(text, key=keys), qos


_KEYS = {"control": "salIndex", "audit": "index"}


def service_topic(
    bus: RawBus, kind: str, component: str, indexed: bool, producer: str | None
) -> RawTopic:
    """Open ``X/control`` or ``X/audit``; the key is the index if the component is indexed."""
    schema, qos = _known(kind, (_KEYS[kind],) if indexed else ())
    return bus.topic(f"{component}/{kind}", qos, schema, None, producer)
