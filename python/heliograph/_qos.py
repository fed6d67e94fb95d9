"""Quality of service: a topic's requirements in DDS's terms, as an immutable value.

The six profiles come from the Rust core, their only source.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from heliograph import _heliograph


class Reliability(enum.StrEnum):
    """Whether samples may be lost between publisher and subscriber."""

    BEST_EFFORT = "best_effort"
    RELIABLE = "reliable"


class Durability(enum.StrEnum):
    """How long samples are available: never later, while their writer lives, or after it."""

    VOLATILE = "volatile"
    TRANSIENT_LOCAL = "transient_local"
    PERSISTENT = "persistent"


class Ownership(enum.StrEnum):
    """The permitted writers: any number of producers, or one live producer."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class Overload(enum.StrEnum):
    """The policy for a full queue; dropped samples are counted."""

    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    REFUSE = "refuse"
    SHED_BY_LEVEL = "shed_by_level"


class Guarantee(enum.StrEnum):
    """The receipt that a publish waits for.

    ACCEPTED: the transport's queue has the sample. STORED: it survives the death of any process.
    DURABLE: it survives power loss.
    """

    ACCEPTED = "accepted"
    STORED = "stored"
    DURABLE = "durable"


@dataclass(frozen=True)
class KeepLast:
    """Late joiners receive the newest ``depth`` (1 to 255) samples of each key."""

    depth: int = 1


class History(enum.StrEnum):
    """The historical data that a late joiner receives; see also :class:`KeepLast`."""

    NONE = "none"
    KEEP_ALL = "keep_all"


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The limits of stored samples. All limits apply together; ``None`` is no limit.

    ``bytes`` is per partition. ``last_value`` stores the newest sample of each key without limit.
    ``default`` marks the limits of a profile, which a journal may shorten to its share of the disk;
    limits that were chosen are kept.
    """

    bytes: int | None = None
    age: timedelta | None = None
    last_value: bool = False
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Qos:
    """A topic's quality of service. Start from a profile: ``TELEMETRY.replace(partitions=4)``.

    ``deadline`` is the longest time between two samples of a key. ``lifespan`` is the time during
    which a sample is valid. ``liveliness`` is the lease within which a writer must publish or
    assert (``None``: the transport detects a dead writer). ``partitions`` is 1 to 1,024.
    """

    reliability: Reliability
    durability: Durability
    history: History | KeepLast
    ownership: Ownership
    overload: Overload
    retention: Retention
    guarantee: Guarantee
    liveliness: timedelta | None = None
    deadline: timedelta | None = None
    lifespan: timedelta | None = None
    partitions: int = 1

    @staticmethod
    def profile(name: str) -> Qos:
        """Return the profile of that name: telemetry, event, command, stream, log or state."""
        return from_json(json.loads(_heliograph.qos_profile(name)))

    def replace(self, **changes: Any) -> Qos:
        """Return a copy with the named fields changed."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Return the JSON form that the Rust core and the journal use."""
        return json.dumps(_to_json(self))


def _duration(value: dict[str, int] | None) -> timedelta | None:
    if value is None:
        return None
    return timedelta(seconds=value["secs"], microseconds=value["nanos"] // 1000)


def _duration_json(value: timedelta | None) -> dict[str, int] | None:
    if value is None:
        return None
    micros = value // timedelta(microseconds=1)
    if micros < 0:
        raise ValueError(f"a duration of {value} is negative")
    return {"secs": micros // 1_000_000, "nanos": micros % 1_000_000 * 1000}


def from_json(raw: dict[str, Any]) -> Qos:
    """Return the quality of service of a JSON form."""
    history = raw["history"]
    live = raw["liveliness"]
    kept = raw["retention"]
    deep = isinstance(history, dict)
    return Qos(
        reliability=Reliability(raw["reliability"]),
        durability=Durability(raw["durability"]),
        history=KeepLast(history["keep_last"]) if deep else History(history),
        ownership=Ownership(raw["ownership"]),
        overload=Overload(raw["overload"]),
        retention=Retention(
            bytes=kept["bytes"],
            age=_duration(kept["age"]),
            last_value=kept["last_value"],
            default=kept.get("default", False),
        ),
        guarantee=Guarantee(raw["guarantee"]),
        liveliness=_duration(live["lease"]) if isinstance(live, dict) else None,
        deadline=_duration(raw["deadline"]),
        lifespan=_duration(raw["lifespan"]),
        partitions=raw["partitions"],
    )


def _to_json(qos: Qos) -> dict[str, Any]:
    history = qos.history
    return {
        "reliability": Reliability(qos.reliability),
        "durability": Durability(qos.durability),
        "history": (
            {"keep_last": history.depth} if isinstance(history, KeepLast) else History(history)
        ),
        "ownership": Ownership(qos.ownership),
        "overload": Overload(qos.overload),
        "retention": {
            "bytes": qos.retention.bytes,
            "age": _duration_json(qos.retention.age),
            "last_value": qos.retention.last_value,
            **({"default": True} if qos.retention.default else {}),
        },
        "guarantee": Guarantee(qos.guarantee),
        "liveliness": (
            "automatic" if qos.liveliness is None else {"lease": _duration_json(qos.liveliness)}
        ),
        "deadline": _duration_json(qos.deadline),
        "lifespan": _duration_json(qos.lifespan),
        "partitions": qos.partitions,
    }


TELEMETRY = Qos.profile("telemetry")
"""Measured values at a regular rate: the newest of each key for late joiners, days of history."""

EVENT = Qos.profile("event")
"""Changes of state: stored for a time, and the newest of each key without limit."""

COMMAND = Qos.profile("command")
"""Requests to one component: nothing for late joiners, an audit copy."""

STREAM = Qos.profile("stream")
"""A complete sequence within a number of bytes."""

LOG = Qos.profile("log")
"""Log records: stored completely, shed by level under overload."""

STATE = Qos.profile("state")
"""Key-value revisions: one owner, stored until compacted; a publish waits for *durable*."""
