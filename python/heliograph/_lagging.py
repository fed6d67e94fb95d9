"""Policies for a subscription that falls behind: values for ``subscribe(lagging=…)``."""

from __future__ import annotations

from dataclasses import dataclass

_DEPTH = 65_536


@dataclass(frozen=True)
class Lagging:
    """A policy; made by :func:`lossless`, :func:`drop_oldest`, :func:`conflate` and the others."""

    kind: str
    depth: int = 0


def lossless() -> Lagging:
    """Read all samples, however late; samples removed by retention are reported as a gap."""
    return Lagging("lossless")


def drop_oldest(depth: int = _DEPTH) -> Lagging:
    """Skip the oldest samples beyond ``depth`` in a partition, and report them as a gap."""
    return Lagging("drop_oldest", depth)


def conflate() -> Lagging:
    """Read only the newest unread sample of each key; the others are counted as conflated."""
    return Lagging("conflate")


def shed_by_level(depth: int = _DEPTH) -> Lagging:
    """Skip level 0 beyond ``depth`` samples of lag, level 1 beyond twice that, and so on."""
    return Lagging("shed_by_level", depth)
