"""What happens where a subscription falls behind: values for ``subscribe(lagging=…)``."""

from __future__ import annotations

from dataclasses import dataclass

_DEPTH = 65_536


@dataclass(frozen=True)
class Lagging:
    """A policy; made by :func:`lossless`, :func:`drop_oldest`, :func:`conflate` and the others."""

    kind: str
    depth: int = 0


def lossless() -> Lagging:
    """Read everything, however late; what retention removes meanwhile is a gap."""
    return Lagging("lossless")


def drop_oldest(depth: int = _DEPTH) -> Lagging:
    """Pass over the oldest samples that are more than ``depth`` behind in a partition: a gap."""
    return Lagging("drop_oldest", depth)


def conflate() -> Lagging:
    """Get only the newest unread sample of each key; the others are counted."""
    return Lagging("conflate")


def shed_by_level(depth: int = _DEPTH) -> Lagging:
    """Pass over level 0 beyond ``depth`` samples behind, level 1 beyond twice that, and so on."""
    return Lagging("shed_by_level", depth)
