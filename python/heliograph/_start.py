"""Where a subscription starts: values for ``subscribe(start=…)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliograph._heliograph import Time


@dataclass(frozen=True)
class Start:
    """A start position; made by :func:`latest`, :func:`earliest`, :func:`last` and the others."""

    kind: str
    number: int = 0
    partition: int = 0


def latest() -> Start:
    """Only samples that are published from now on."""
    return Start("latest")


def earliest() -> Start:
    """All stored samples."""
    return Start("earliest")


def last(count: int = 1) -> Start:
    """The newest ``count`` (1 to 255) samples of each key, then new samples."""
    if not 1 <= count <= 255:
        raise ValueError(f"last({count}): give 1 to 255")
    return Start("last", count)


def from_offset(offset: int, *, partition: int = 0) -> Start:
    """From an offset of one partition, and from the oldest sample of the others."""
    if not 0 <= offset < 2**63:
        raise ValueError(f"from_offset({offset}): offsets are 0 to 2**63 - 1")
    if not 0 <= partition < 2**32:
        raise ValueError(f"from_offset({offset}, partition={partition}): partitions start at 0")
    return Start("offset", offset, partition)


def since(time: Time) -> Start:
    """From the first sample published at or after a time."""
    return Start("time", time.tai_ns)
