"""Support for tests of applications: an in-memory bus, a manual clock, fixtures for pytest.

::

    from heliograph import testing

    async def test_wind() -> None:
        async with testing.memory_bus() as bus:
            wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
            async with wind.subscribe() as samples:
                await wind.publish(Wind(speed=7.5))
                assert (await testing.next_value(samples)).speed == 7.5
                await testing.assert_silent(samples)

``testing.memory_bus(testing.fault_url(drop=0.1, seed=1))`` drops one sample in ten, the same ones
in each run. With pytest, the fixtures ``helio_url`` (an in-memory bus for each test) and
``helio_bus`` (its synchronous bus) are available without an import.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from heliograph import sync
from heliograph._bus import Connecting
from heliograph._common import open_bus
from heliograph._heliograph import ManualClock
from heliograph.testing._component import (
    assert_next_sample,
    assert_next_summary_state,
    check_bad_commands,
    check_standard_state_transitions,
    component,
)

if TYPE_CHECKING:
    from heliograph._bus import Subscription
    from heliograph._heliograph import Sample

__all__ = [
    "ManualClock",
    "alert_packets",
    "assert_next_sample",
    "assert_next_summary_state",
    "assert_silent",
    "check_bad_commands",
    "check_standard_state_transitions",
    "component",
    "fault_url",
    "memory_bus",
    "memory_url",
    "next_sample",
    "next_value",
    "sync_memory_bus",
]

_T = TypeVar("_T")
_NUMBERS = itertools.count(1)

PATIENCE_S = 10.0
"""The default timeout of :func:`next_sample`."""


def memory_url() -> str:
    """Return the URL of a new in-memory bus, for several connections to it."""
    return f"memory:heliograph-testing-{next(_NUMBERS)}"


def alert_packets(
    visit: int = 0,
    detector: int = 0,
    *,
    version: str = "11.1",
    seed: int = 1,
    alerts_per_visit: int = 10_000,
    detectors: int = 189,
    history: int | None = None,
    stamps: Literal["fits", "none"] = "fits",
) -> tuple[int, list[bytes]]:
    """Return the identifier of a visit and a detector's packets, which look like Rubin's.

    ``visit`` and ``detector`` count from 0. The same arguments give the same packets, on every
    machine. ``history`` is the number of earlier detections and of forced measurements of each
    alert; by default as a survey has them. The packets are for
    :meth:`heliograph.alerts.CcdProducer.publish`.
    """
    from heliograph._heliograph import RawGenerator

    has_stamps = stamps == "fits"
    generator = RawGenerator(version, seed, alerts_per_visit, detectors, history, has_stamps)
    return generator.packets(visit, detector)


def fault_url(url: str | None = None, /, **faults: float) -> str:
    """Return the URL of a bus (by default a new in-memory one) with injected faults.

    The ``faults`` are probabilities from 0 to 1. To readers: ``drop``, ``duplicate``, ``reorder``,
    ``delay``, ``corrupt``, ``strip`` (no headers), ``disconnect``, ``amnesia`` (an old
    incarnation). To publishers: ``refuse`` (the queue is full), ``lie`` (acknowledged, not
    stored), ``doubt`` (stored, reported as unknown). ``seed`` makes a sequence repeatable.
    ``pending=1`` delays every receipt.
    """
    options = "&".join(f"{name}={value:g}" for name, value in faults.items())
    return f"fault:{url or memory_url()}?{options}"


def memory_bus(
    url: str | None = None, *, producer: str | None = None, clock: ManualClock | None = None
) -> Connecting:
    """Connect to a bus in this process's memory, by default a new one.

    ``clock`` stamps samples and decides deadlines: see :class:`ManualClock`.
    """
    return Connecting(url or memory_url(), producer, clock)


def sync_memory_bus(
    url: str | None = None, *, producer: str | None = None, clock: ManualClock | None = None
) -> sync.Bus:
    """The same as :func:`memory_bus`, for synchronous code."""
    return sync.Bus(open_bus(url or memory_url(), producer, clock))


async def next_sample(
    samples: Subscription[_T],
    *,
    timeout: float = PATIENCE_S,
    **wanted: Any,
) -> Sample[_T]:
    """Return the next sample whose value has the ``wanted`` fields; others are skipped.

    Raises AssertionError after ``timeout`` seconds; it names the skipped values.
    """
    passed: list[Any] = []
    while True:
        found = await samples.batch(1, timeout=timeout)
        if not found:
            raise AssertionError(f"no sample with {wanted} within {timeout} s; passed: {passed}")
        value = found[0].value
        if all(_get(value, name) == item for name, item in wanted.items()):
            return found[0]
        passed.append(value)


async def next_value(
    samples: Subscription[_T],
    *,
    timeout: float = PATIENCE_S,
    **wanted: Any,
) -> _T:
    """Return the value of :func:`next_sample`."""
    return (await next_sample(samples, timeout=timeout, **wanted)).value


async def assert_silent(samples: Subscription[Any], *, timeout: float = 0.0) -> None:
    """Assert that no sample is available now, or within ``timeout`` seconds."""
    found = await samples.batch(1, timeout=timeout)
    if found:
        raise AssertionError(f"there is a sample: {found[0]!r} with {found[0].value!r}")


def _get(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)
