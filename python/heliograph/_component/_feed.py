"""Samples of many topics in one event loop without a task for each: callbacks, in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from heliograph._errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph._bus import Bus
    from heliograph._heliograph import RawSubscription, Sample

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


class Pump:
    """Hands each sample of a subscription to a callback, and everything else to another."""

    def __init__(
        self,
        bus: Bus,
        raw: RawSubscription,
        on_sample: Callable[[Sample[Any]], object],
        on_event: Callable[[Any], object] | None = None,
        on_idle: Callable[[], object] | None = None,
    ) -> None:
        self._bus = bus
        self._on_sample = on_sample
        self._on_event = on_event
        self._on_idle = on_idle
        self.feed = Feed(bus, raw, self.run)

    def look(self) -> int:
        """Handle some of what there is; return how much there was."""
        samples, events, seen = self.feed.raw.take_many(_AT_ONCE)
        for event in events:
            if self._on_event is not None:
                self._guarded(self._on_event, event)
        for sample in samples:
            self._guarded(self._on_sample, sample)
        return seen

    def run(self) -> None:
        """Handle what there is, then wait for more; the loop is not held up for long."""
        try:
            seen = self.look()
        except ClosedError:
            return
        if self._on_idle is not None:
            self._on_idle()
        if self._bus._closed:
            return
        if seen:
            # There may be more: the next turn finds it, after others had theirs.
            self.feed._loop.call_soon(self._again)
        else:
            self.feed.listen()

    def _again(self) -> None:
        if not self.feed._closed:
            self.run()

    def _guarded(self, call: Callable[[Any], object], item: Any) -> None:
        try:
            call(item)
        except Exception:
            _LOG.exception("%r could not be handled", item)

    def close(self) -> None:
        """Close the subscription."""
        self.feed.close()
