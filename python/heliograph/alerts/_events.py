"""What happens beside alerts: visits that open and are decided, packets that are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from heliograph._events import Event, Unknown
from heliograph._heliograph import Time


@dataclass(frozen=True)
class VisitOpened(Event):
    """A visit opened: the first record of it."""

    visit: int
    detectors: list[int]
    """The detectors from which a manifest is expected."""
    shutter_close: Time
    window: float
    """Seconds after which readers may close the visit."""


@dataclass(frozen=True)
class VisitDecided(Event):
    """A visit is decided: the first closing record, which counts for all readers.

    All alerts of the visit that this subscription returns come before it.
    """

    visit: int
    closer: str
    """The process that closed it."""
    totals: str
    """Count and hash of the alerts that count."""
    missing: list[int]
    """Detectors without manifest."""
    short: list[int]
    """Detectors whose alerts do not match their manifest."""
    repeated: list[int]
    """Detectors with alerts or manifests that came more than once; each alert counts once."""
    late: list[tuple[int, int]]
    """Alerts that were returned before and do not count: detector and identifier."""

    @property
    def is_complete(self) -> bool:
        """Whether all manifests are there and match."""
        return not self.missing and not self.short


@dataclass(frozen=True)
class VisitRejected(Event):
    """A record of the control topic has no effect: a visit that opens twice, a late manifest."""

    visit: int
    cause: str


@dataclass(frozen=True)
class Dropped(Event):
    """A packet that was left out because it is unusable.

    ``cause`` is ``unknown_schema``, ``damaged``, ``no_identifier``, ``stamps`` (missing or damaged:
    of linked ones the alert is returned without them), ``columns`` (its types are not those of the
    columns) or ``undecodable`` (a value that Python cannot have). Repetitions and late alerts are
    only counted.
    """

    partition: int
    offset: int
    id: int | None
    cause: str
    reason: str


class DetectorAudit(NamedTuple):
    """A detector in an audit."""

    detector: int
    announced: str | None
    """Count and hash in the manifest; None without one."""
    found: str
    """Those of what was read."""
    finding: str
    """``equal``, ``no_manifest``, ``short``, ``excess`` or ``differs``."""


class Audit(NamedTuple):
    """What was read of a visit against its manifests."""

    is_equal: bool
    """Whether all that was announced and decided was read, and nothing else."""
    found: str
    """Count and hash of what was read."""
    decided: str | None
    """Those of the closing record, if there is one."""
    detectors: list[DetectorAudit]


def opened(visit: int, detectors: list[int], shutter_close_ns: int, window_ns: int) -> VisitOpened:
    """Return the event of an opening record; called by the extension."""
    return VisitOpened(visit, detectors, Time(shutter_close_ns), window_ns / 1e9)


def decided(
    visit: int,
    closer: str,
    totals: str,
    lists: tuple[list[int], list[int], list[int]],
    late: list[tuple[int, int]],
) -> VisitDecided:
    """Return the event of a closing record; called by the extension."""
    return VisitDecided(visit, closer, totals, *lists, late)


def unknown(text: str) -> Unknown:
    """Return an event of a newer library; called by the extension."""
    return Unknown(text)
