"""Samples of many topics in one event loop without a task for each: callbacks, in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from heliograph._errors import ClosedError, HelioError

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph._bus import Bus
    from heliograph._heliograph import RawSubscription, Sample

    Positions = list[tuple[int, int, int]]

_LOG = logging.getLogger("heliograph")

_AT_ONCE = 256
"""So many samples of one topic are handled before other callbacks of the loop get their turn."""


class Feed:
    """A subscription that tells by a callback of the loop when there may be something.

    The bus's list of those who wait holds it, in place of a task's waiter: see ``Bus._waiting``.
    """

    __slots__ = ("_bus", "_closed", "_listening", "_loop", "_ready", "_token", "raw")

    def __init__(self, bus: Bus, raw: RawSubscription, ready: Callable[[], None]) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._token = bus._token()
        self._ready = ready
        self._closed = False
        self._listening = False
        self.raw = raw

    def listen(self) -> None:
        """Have the callback called once, when there may be something (perhaps there is already).

        Nothing happens where it is waited for already.
        """
        if self._listening or self._closed:
            return
        if self._bus._closed:
            raise ClosedError("the bus is closed")
        self._listening = True
        self._bus._waiting[self._token] = self  # type: ignore[assignment]
        try:
            if self.raw.arm(self._bus._notifier, self._token):
                self._bus._waiting.pop(self._token, None)
                self._loop.call_soon(self.wake)
        except BaseException:
            self._listening = False
            self._bus._waiting.pop(self._token, None)
            raise

    def wake(self) -> None:
        """Call back; the bus calls this."""
        if self._listening:
            self._listening = False
            if not self._closed:
                self._ready()

    def wake_soon(self) -> None:
        """Call back in the loop's next round; the bus calls this."""
        self._loop.call_soon(self.wake)

    def close(self) -> None:
        """Close the subscription."""
        if not self._closed:
            self._closed = True
            self._bus._waiting.pop(self._token, None)
            self.raw.close()


class Pumps:
    """Hands the samples of some subscriptions to callbacks.

    What is there at the same time is handed over in the order in which it was published, whatever
    topics it is of. ``on_idle`` is called after each such turn. A subscription that cannot be read
    any more is closed, and ``on_failure`` told where it stood; the others go on.
    """

    def __init__(
        self,
        bus: Bus,
        on_idle: Callable[[], object],
        on_failure: Callable[[Feed, Positions, HelioError], object],
    ) -> None:
        self._bus = bus
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._pumps: list[_Pump] = []
        self._ready: list[_Pump] = []
        self._closed = False
        self._skips = 0
        self._at_hand = 0

    def add(
        self,
        raw: RawSubscription,
        on_sample: Callable[[Sample[Any]], object],
        on_event: Callable[[Any], object] | None = None,
    ) -> Feed:
        """Hand over the samples of one more subscription, and what else it tells."""
        pump = _Pump(self, raw, on_sample, on_event)
        pump.listen()
        self._pumps.append(pump)
        return pump

    def __len__(self) -> int:
        return len(self._pumps)

    def look(self) -> None:
        """Hand over what is there now, of all subscriptions."""
        self._take([*self._pumps])

    def _listen(self, pump: _Pump) -> None:
        try:
            pump.listen()
        except HelioError as error:
            self._fail(pump, error)

    def _fail(self, pump: _Pump, error: HelioError, *, skipped: bool = False) -> None:
        if self._closed or self._bus._closed or pump not in self._pumps:
            # A sample of the same turn may have had it looked at, or passed over: it is known.
            return
        self._pumps.remove(pump)
        at: Positions = []
        if not skipped:
            with contextlib.suppress(HelioError):
                at = pump.raw.positions()
        pump.close()
        self._on_failure(pump, at, error)

    def skip(self) -> int:
        """Pass over what is there now, also what is being handed over; return how much it is."""
        if self._closed:
            return 0
        self._skips += 1
        passed, self._at_hand = self._at_hand, 0
        for pump in [*self._pumps]:
            try:
                for partition, following, end in pump.raw.positions():
                    pump.raw.seek(partition, end)
                    passed += max(0, end - following)
            except HelioError as error:
                self._fail(pump, error, skipped=True)
        return passed

    def run(self, pumps: list[_Pump]) -> None:
        """Hand over some of what these have, then wait for more; the loop is not held up long."""
        if self._closed or self._bus._closed:
            return
        more = self._take(pumps)
        self._on_idle()
        for pump in pumps:
            if self._closed or self._bus._closed:
                return
            if pump not in self._pumps:
                continue
            if pump in more:
                # The next turn finds it, after other callbacks had theirs.
                self.later(pump)
            else:
                self._listen(pump)

    def later(self, pump: _Pump) -> None:
        """Look at a subscription in the loop's next round, together with others."""
        if not self._ready:
            pump._loop.call_soon(self._run_ready)
        self._ready.append(pump)

    def _run_ready(self) -> None:
        ready, self._ready = self._ready, []
        self.run(ready)

    def _take(self, pumps: list[_Pump]) -> list[_Pump]:
        """Hand over; return those that may have more."""
        more = []
        samples: list[tuple[int, int, Sample[Any]]] = []
        failed: list[tuple[_Pump, HelioError]] = []
        for place, pump in enumerate(pumps):
            try:
                taken, events, seen = pump.raw.take_many(_AT_ONCE)
            except HelioError as error:
                failed.append((pump, error))
                continue
            for event in events:
                if pump.on_event is not None:
                    _guarded(pump.on_event, event)
            samples += [(sample.time_ns, place, sample) for sample in taken]
            if seen:
                more.append(pump)
        if len(pumps) > 1:
            # Of one subscription they are in order, and stay so.
            samples.sort(key=lambda item: item[0])
        skips = self._skips
        for left, (_, place, sample) in zip(range(len(samples) - 1, -1, -1), samples, strict=True):
            if self._skips != skips:
                break
            self._at_hand = left
            _guarded(pumps[place].on_sample, sample)
        for broken, why in failed:
            # After what could be read yet.
            self._fail(broken, why)
        return more

    def close(self) -> None:
        """Close the subscriptions."""
        self._closed = True
        for pump in self._pumps:
            pump.close()


class _Pump(Feed):
    """One of the subscriptions of :class:`Pumps`."""

    __slots__ = ("_pumps", "on_event", "on_sample")

    def __init__(
        self,
        pumps: Pumps,
        raw: RawSubscription,
        on_sample: Callable[[Sample[Any]], object],
        on_event: Callable[[Any], object] | None,
    ) -> None:
        super().__init__(pumps._bus, raw, self._alone)
        self._pumps = pumps
        self.on_sample = on_sample
        self.on_event = on_event

    def _alone(self) -> None:
        self._pumps.run([self])

    def wake_soon(self) -> None:
        """Look later, together with the others that are woken now; the bus calls this."""
        if self._listening:
            self._listening = False
            self._pumps.later(self)


def _guarded(call: Callable[[Any], object], item: Any) -> None:
    try:
        call(item)
    except Exception:
        _LOG.exception("%r could not be handled", item)
