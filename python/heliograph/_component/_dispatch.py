"""Dispatches samples of many topics to callbacks, in order, without a task for each topic."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from heliograph._errors import ClosedError, HelioError
from heliograph._threads import in_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph._bus import Bus
    from heliograph._heliograph import RawSubscription, Sample

    Positions = list[tuple[int, int, int]]

_LOG = logging.getLogger("heliograph")

_BATCH_MAX = 256
"""The samples of one topic that are handled before other callbacks of the loop run."""

_FENCE_POLL_INTERVAL_S = 0.01
"""How often a fence is polled until it is passed; the engine may not have told yet where it is."""


class CallbackSubscription:
    """A subscription that calls back in the loop when samples may be available.

    It is registered in ``Bus._waiting`` in place of a task's waiter.
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
        """Request one call of the callback when samples may be available, possibly at once.

        A second request before that call has no effect.
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
        """Call back; called by the bus."""
        if self._listening:
            self._listening = False
            if not self._closed:
                self._ready()

    def wake_soon(self) -> None:
        """Call back in the loop's next iteration; the bus calls this."""
        self._loop.call_soon(self.wake)

    def close(self) -> None:
        """Close the subscription."""
        if not self._closed:
            self._closed = True
            self._bus._waiting.pop(self._token, None)
            self.raw.mark_closed()
            in_background(self.raw.close)


class Dispatcher:
    """Dispatches the samples of several subscriptions to callbacks.

    Samples that are available at the same time are dispatched in the order of their publishing,
    across topics. ``on_idle`` is called after each batch. A subscription that fails is closed, and
    ``on_failure`` receives its positions; the others continue.
    """

    def __init__(
        self,
        bus: Bus,
        on_idle: Callable[[], object],
        on_failure: Callable[[CallbackSubscription, Positions, HelioError], object],
    ) -> None:
        self._bus = bus
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._sources: list[_Source] = []
        self._ready: list[_Source] = []
        self._closed = False
        self._skips = 0
        self._at_hand = 0
        self._kept: Callable[[CallbackSubscription, Sample[Any]], bool] = lambda *_: False
        self._on_dropped: Callable[[int], object] = lambda _: None
        self._dropped = 0
        self._polls_fences = False

    def add(
        self,
        raw: RawSubscription,
        on_sample: Callable[[Sample[Any]], object],
        on_event: Callable[[Any], object] | None = None,
    ) -> CallbackSubscription:
        """Add a subscription: its samples and events are dispatched from now on."""
        source = _Source(self, raw, on_sample, on_event)
        source.listen()
        self._sources.append(source)
        return source

    def __len__(self) -> int:
        return len(self._sources)

    def poll(self) -> None:
        """Dispatch the available samples of all subscriptions."""
        self._take([*self._sources])

    def set_fence(self) -> None:
        """Set a fence behind everything that all subscriptions store now."""
        for source in [*self._sources]:
            try:
                source.raw.set_fence(0.0)
            except HelioError as error:
                self._fail(source, error)

    def has_passed_fence(self) -> bool:
        """Return whether everything before the fence was dispatched.

        Where the engine could not tell the end, the fence is set again.
        """
        passed = True
        for source in [*self._sources]:
            try:
                passed &= source.raw.has_passed_fence()
            except HelioError:
                passed = False
                self.set_fence()
        return passed

    def _listen(self, source: _Source) -> None:
        try:
            source.listen()
        except HelioError as error:
            self._fail(source, error)

    def _fail(self, source: _Source, error: HelioError, *, skipped: bool = False) -> None:
        if self._closed or self._bus._closed or source not in self._sources:
            # A callback of the same batch may have polled or skipped it: the failure is known.
            return
        self._sources.remove(source)
        at: Positions = []
        # What is unread before a fence must not be dispatched.
        if not skipped and not source.fenced:
            with contextlib.suppress(HelioError):
                at = source.raw.positions()
        source.close()
        self._on_failure(source, at, error)

    def skip(
        self,
        kept: Callable[[CallbackSubscription, Sample[Any]], bool],
        on_dropped: Callable[[int], object],
    ) -> int:
        """Skip the available samples, including those being dispatched; return their number.

        Samples that are stored now and arrive later are dropped, too, except where ``kept`` is
        true; ``on_dropped`` receives their number when all have arrived.
        """
        if self._closed:
            return 0
        self._skips += 1
        self._kept, self._on_dropped = kept, on_dropped
        passed, self._at_hand = self._at_hand, 0
        for source in [*self._sources]:
            try:
                for partition, following, end in source.raw.positions():
                    source.raw.seek(partition, end)
                    passed += max(0, end - following)
                source.raw.set_fence(0.0)
                source.fenced = True
            except HelioError as error:
                self._fail(source, error, skipped=True)
        self._check_fences()
        return passed

    def _check_fences(self) -> None:
        """Forget the fences that were passed; report the number of dropped samples at the end."""
        if self._closed or self._bus._closed:
            return
        for source in [source for source in self._sources if source.fenced]:
            try:
                source.fenced = not source.raw.has_passed_fence()
            except HelioError as error:
                self._fail(source, error)
        if not any(source.fenced for source in self._sources):
            dropped, self._dropped = self._dropped, 0
            if dropped:
                self._on_dropped(dropped)
        elif not self._polls_fences:
            self._polls_fences = True
            asyncio.get_running_loop().call_later(_FENCE_POLL_INTERVAL_S, self._poll_fences)

    def _poll_fences(self) -> None:
        self._polls_fences = False
        self._check_fences()

    def _take_from(self, source: _Source) -> tuple[list[Sample[Any]], list[Any], int]:
        """Take a batch of a subscription without the samples that are to be dropped."""
        if not source.fenced:
            return source.raw.take_many(_BATCH_MAX)
        taken, events, passed = source.raw.take_stored(_BATCH_MAX)
        kept = [sample for sample in taken if self._keeps(source, sample)]
        self._dropped += len(taken) - len(kept)
        source.fenced = not passed
        # What arrived behind the fence is unread, and is polled next.
        return kept, events, len(taken) + len(events) + passed

    def _keeps(self, source: _Source, sample: Sample[Any]) -> bool:
        try:
            return self._kept(source, sample)
        except HelioError:
            return False

    def run(self, sources: list[_Source]) -> None:
        """Dispatch a batch of these subscriptions, then wait for more; the loop is not blocked."""
        if self._closed or self._bus._closed:
            return
        more = self._take(sources)
        self._on_idle()
        for source in sources:
            if self._closed or self._bus._closed:
                return
            if source not in self._sources:
                continue
            if source in more:
                # The next batch follows after other callbacks of the loop.
                self.schedule(source)
            else:
                self._listen(source)

    def schedule(self, source: _Source) -> None:
        """Poll a subscription in the loop's next iteration, together with others."""
        if not self._ready:
            source._loop.call_soon(self._run_ready)
        self._ready.append(source)

    def _run_ready(self) -> None:
        ready, self._ready = self._ready, []
        self.run(ready)

    def _take(self, sources: list[_Source]) -> list[_Source]:
        """Dispatch one batch; return the subscriptions that may have more samples."""
        more = []
        samples: list[tuple[int, int, Sample[Any]]] = []
        failed: list[tuple[_Source, HelioError]] = []
        for place, source in enumerate(sources):
            try:
                taken, events, seen = self._take_from(source)
            except HelioError as error:
                failed.append((source, error))
                continue
            for event in events:
                if source.on_event is not None:
                    _guarded(source.on_event, event)
            samples += [(sample.time_ns, place, sample) for sample in taken]
            if seen:
                more.append(source)
        if len(sources) > 1:
            # The sort is stable: samples of one subscription keep their order.
            samples.sort(key=lambda item: item[0])
        skips = self._skips
        for left, (_, place, sample) in zip(range(len(samples) - 1, -1, -1), samples, strict=True):
            if self._skips != skips:
                break
            self._at_hand = left
            _guarded(sources[place].on_sample, sample)
        for broken, why in failed:
            # After the samples that could be read.
            self._fail(broken, why)
        return more

    def close(self) -> None:
        """Close the subscriptions."""
        self._closed = True
        for source in self._sources:
            source.close()


class _Source(CallbackSubscription):
    """A subscription of a :class:`Dispatcher`."""

    __slots__ = ("_dispatcher", "fenced", "on_event", "on_sample")

    def __init__(
        self,
        dispatcher: Dispatcher,
        raw: RawSubscription,
        on_sample: Callable[[Sample[Any]], object],
        on_event: Callable[[Any], object] | None,
    ) -> None:
        super().__init__(dispatcher._bus, raw, self._run_alone)
        self._dispatcher = dispatcher
        self.fenced = False
        self.on_sample = on_sample
        self.on_event = on_event

    def _run_alone(self) -> None:
        self._dispatcher.run([self])

    def wake_soon(self) -> None:
        """Poll later, together with others that are woken now; the bus calls this."""
        if self._listening:
            self._listening = False
            self._dispatcher.schedule(self)


def _guarded(call: Callable[[Any], object], item: Any) -> None:
    try:
        call(item)
    except Exception:
        _LOG.exception("%r could not be handled", item)
