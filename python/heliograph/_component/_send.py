"""Publishing from callbacks of the loop: at once if possible, otherwise later and in order.

Constraints: the loop is never blocked, and no topic blocks another. A sample that would block, or
that failed and must be retried, starts a queue of its topic; all later samples of the topic follow
in it. A queue is bounded. Discardable samples (progress, log messages) are dropped first, and at
the first failure. Then the oldest are dropped, but the newest of the audit: records of completed
commands matter more than later rejections.

Operation: each queue has a task, which publishes its samples in threads and retries each second
after a failure. A sample that the bus accepted without a receipt yet starts a queue, too, unless it
is discardable; it counts as published when the receipt arrives. Only acknowledgements wait for
other topics: for earlier samples there, until these are published or have failed, or until a
timeout. A topic that another process has taken is taken back while the component may write it.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import logging
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from heliograph._errors import (
    ClosedError,
    CodecError,
    Fenced,
    HelioError,
    NotLive,
    OverloadError,
    PublishError,
)
from heliograph._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from heliograph._heliograph import Pending, PublishOptions, RawTopic

    Receipts = Pending[Any]
    Finish = Callable[[Receipts], Awaitable[object]]

_LOG = logging.getLogger("heliograph.send")

QUEUE_MAX = 10_000
"""The most queued samples of one topic: some minutes of twenty commands a second."""

RETRY_INTERVAL_S = 1.0
"""The retry interval after a failure."""

ORDER_TIMEOUT_S = 5.0
"""How long acknowledgements wait for earlier samples of other topics that are blocked: as long as a
publish waits for a lock whose holder is stopped."""


def publish_options(
    *, key: bytes | None = None, trace: bytes | None = None, headers: dict[str, bytes] | None = None
) -> PublishOptions:
    """Return the options of a publish."""
    return {
        "key": key,
        "level": 0,
        "time": None,
        "trace": trace,
        "guarantee": None,
        "partition": None,
        "headers": headers,
    }


class AckOrder(enum.Enum):
    """The order of a topic's samples relative to acknowledgements."""

    UNORDERED = enum.auto()
    """No order."""
    BEFORE_ACKS = enum.auto()
    """Acknowledgements wait for earlier samples of the topic."""
    AUDIT = enum.auto()
    """The same; a full queue drops its newest sample, and samples are published without a lease."""
    ACKS = enum.auto()
    """The topic of acknowledgements."""


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """The policy for a sample that cannot be published at once.

    ``failed`` receives the error, otherwise it is logged. ``keep`` retries the sample. ``refusal``
    returns the reason why the component must not write the topic now, if any. It is called before
    each attempt, and before the topic is taken back.
    """

    failed: Callable[[HelioError], object] | None = None
    keep: bool = False
    ack_order: AckOrder = AckOrder.UNORDERED
    refusal: Callable[[], HelioError | None] | None = None

    @property
    def is_discardable(self) -> bool:
        """Whether the sample may be dropped silently at the first failure."""
        return not self.keep and self.failed is None


_DEFAULT_POLICY = SendPolicy()


def _pending_receipts(given: Any) -> Receipts | None:
    """Return the pending receipts, if there are any."""
    return given if hasattr(given, "poll") else None


@dataclass(frozen=True, slots=True)
class _QueuedSample:
    topic: RawTopic
    value: Any
    options: PublishOptions | None
    policy: SendPolicy
    maybe_published: bool = False
    """Whether an earlier attempt may have published it."""
    in_flight: Receipts | None = None
    """The pending receipts, if the bus has accepted the sample."""

    def offer(self) -> Receipts | bool:
        """Publish at once unless that would block the loop; return whether it was published.

        For a sample that must not be discarded, return the pending receipts instead.
        """
        self._check()
        topic, value, options = self.topic, self.value, self.options
        try:
            given = topic.offer(value) if options is None else topic.offer_with(value, options)
        except Fenced:
            if not self._owns():
                raise
            # Reopening the topic would block.
            return False
        receipts = None if self.policy.is_discardable else _pending_receipts(given)
        return receipts or given is not None

    async def publish(self, finish: Finish) -> None:
        """Publish in a thread and wait for the receipt; a fenced topic is reopened once."""
        if self.in_flight is not None:
            await finish(self.in_flight)
            return
        self._check()
        try:
            given = await in_thread(self._publish)
        except Fenced:
            if not self._owns():
                raise
            await in_thread(self.topic.reopen)
            given = await in_thread(self._publish)
        receipts = _pending_receipts(given)
        if receipts is not None:
            await finish(receipts)

    def _publish(self) -> Any:
        if self.options is None:
            return self.topic.publish(self.value)
        return self.topic.publish_with(self.value, self.options)

    def _check(self) -> None:
        if self.policy.ack_order is AckOrder.AUDIT or self.policy.refusal is None:
            return
        refusal = self.policy.refusal()
        if refusal is not None:
            raise refusal

    def _owns(self) -> bool:
        """Whether the component may reopen a fenced topic."""
        return self.policy.refusal is not None and self.policy.refusal() is None

    def is_permanent(self, error: HelioError) -> bool:
        """Whether every further attempt would fail as well."""
        if isinstance(error, Fenced):
            # While the lease is unconfirmed, the component may still own the topic.
            return self.policy.refusal is None or isinstance(self.policy.refusal(), NotLive)
        if type(error) is PublishError:
            # It may have arrived: it is published once more, because a duplicate is better than a
            # loss. Or it is too large.
            return self.maybe_published
        return isinstance(error, (CodecError, ClosedError, NotLive))


@dataclass(slots=True, eq=False)
class TopicQueue:
    """The queued samples of a topic."""

    topic: RawTopic
    ack_order: AckOrder
    settled: asyncio.Future[None]
    """Done after the first failure or the timeout; acknowledgements wait until then."""
    samples: deque[_QueuedSample] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    in_flight_count: int = 0
    """The number of samples that are being published."""
    last_error: HelioError | None = None
    """The error of the last attempt."""
    discarded: int = 0
    """The number of dropped discardable samples."""
    shed: int = 0
    """The number of samples that were dropped because the queue was full."""

    def push(self, item: _QueuedSample) -> None:
        """Append a sample; a full queue drops one."""
        if len(self.samples) < QUEUE_MAX:
            self.samples.append(item)
            return
        # The first may be in flight or may have arrived.
        first = self.samples[0]
        droppable = [*self.samples][int(first.in_flight is not None or first.maybe_published) :]
        removed = next((sample for sample in droppable if not sample.policy.keep), None)
        if removed is None and item.policy.keep and self.ack_order is not AckOrder.AUDIT:
            removed = next(iter(droppable), None)
        if removed is None:
            removed = item
        else:
            self.samples.remove(removed)
            self.samples.append(item)
        self._count(removed)

    def _count(self, removed: _QueuedSample) -> None:
        if removed.policy.keep:
            self.shed += 1
        else:
            self.discarded += 1
        if removed.policy.failed is not None:
            removed.policy.failed(OverloadError(f"{QUEUE_MAX} samples are queued already"))

    def requeue(self, item: _QueuedSample, error: HelioError) -> None:
        """Put a failed sample back for a retry, and drop the discardable ones."""
        self.last_error = error
        queued = [item, *self.samples]
        self.samples = deque(samples for samples in queued if not samples.policy.is_discardable)
        self.discarded += len(queued) - len(self.samples)
        self.settle()

    def settle(self) -> None:
        """Release the acknowledgements that wait for this queue."""
        if not self.settled.done():
            self.settled.set_result(None)


class Sender:
    """Publishes without waiting; errors go to the sample's policy or to the log.

    ``finish`` waits for receipts, as the bus does. ``on_queue`` is called with each queue when it
    starts and when it ends.
    """

    def __init__(
        self, finish: Finish, on_queue: Callable[[TopicQueue], object] | None = None
    ) -> None:
        self._finish = finish
        self._queues: dict[str, TopicQueue] = {}
        self._on_queue = on_queue
        self._reported: dict[str, str] = {}
        self._closed = False

    def send(
        self,
        topic: RawTopic,
        value: Any,
        options: PublishOptions | None = None,
        policy: SendPolicy = _DEFAULT_POLICY,
    ) -> None:
        """Publish a value at once, or queue it."""
        item = _QueuedSample(topic, value, options, policy)
        queue = self._queues.get(topic.name)
        last_error: HelioError | None = None
        in_flight: Receipts | None = None
        if queue is None and not (policy.ack_order is AckOrder.ACKS and self._order_barriers()):
            try:
                offered = item.offer()
                if offered is True:
                    self._reported.pop(topic.name, None)
                    return
                in_flight = offered or None
            except HelioError as error:
                if not policy.keep or item.is_permanent(error):
                    self._report(item, error)
                    return
                last_error = error
        if self._closed and in_flight is None:
            self._report(item, last_error or OverloadError("the component has ended"))
            return
        later = _QueuedSample(topic, copy.copy(value), options, policy, in_flight=in_flight)
        if queue is None:
            self._start_queue(later, last_error)
        else:
            queue.push(later)

    def is_queued(self, topic: RawTopic) -> bool:
        """Whether a topic has queued samples."""
        return topic.name in self._queues

    def _order_barriers(self) -> list[asyncio.Future[None]]:
        """Return the futures that acknowledgements wait for."""
        ranks = (AckOrder.BEFORE_ACKS, AckOrder.AUDIT)
        queues = self._queues.values()
        return [
            queue.settled
            for queue in queues
            if queue.ack_order in ranks and not queue.settled.done()
        ]

    def _start_queue(self, item: _QueuedSample, last_error: HelioError | None) -> None:
        loop = asyncio.get_running_loop()
        queue = TopicQueue(item.topic, item.policy.ack_order, loop.create_future())
        self._queues[item.topic.name] = queue
        if last_error is None:
            queue.push(item)
        else:
            self._retry_later(queue, item, last_error)
        timeout = loop.call_later(ORDER_TIMEOUT_S, queue.settle)
        queue.settled.add_done_callback(lambda _: timeout.cancel())
        queue.task = loop.create_task(self._publish_queue(queue))
        if self._on_queue is not None:
            self._on_queue(queue)

    def _retry_later(self, queue: TopicQueue, item: _QueuedSample, error: HelioError) -> None:
        """Requeue a sample after a temporary failure."""
        if item.policy.is_discardable:
            self._report(item, error)
        elif queue.last_error is None:
            _LOG.error("publishing to %s failed, it is retried: %s", queue.topic.name, error)
        maybe_published = type(error) is PublishError or item.maybe_published
        queue.requeue(replace(item, maybe_published=maybe_published, in_flight=None), error)

    def _report(self, item: _QueuedSample, error: HelioError) -> None:
        """Report that a sample is not published; the log has each reason once."""
        name, reason = item.topic.name, str(error)
        if item.policy.failed is not None:
            item.policy.failed(error)
        elif not isinstance(error, NotLive) and self._reported.get(name) != reason:
            self._reported[name] = reason
            _LOG.error("a sample for %s was not published: %s", name, reason)

    async def _publish_queue(self, queue: TopicQueue) -> None:
        try:
            while queue.samples:
                await self._wait_for_turn(queue)
                if not queue.samples:
                    break
                item = queue.samples.popleft()
                try:
                    queue.in_flight_count = 1
                    await item.publish(self._finish)
                    queue.in_flight_count = 0
                except HelioError as error:
                    queue.in_flight_count = 0
                    if (item.policy.keep or item.policy.is_discardable) and not item.is_permanent(
                        error
                    ):
                        self._retry_later(queue, item, error)
                        continue
                    self._report(item, error)
                else:
                    self._reported.pop(queue.topic.name, None)
                queue.last_error = None
        finally:
            queue.settle()
            del self._queues[queue.topic.name]
            if self._on_queue is not None:
                self._on_queue(queue)

    async def _wait_for_turn(self, queue: TopicQueue) -> None:
        """Wait until the first sample of a queue may be published."""
        if queue.last_error is not None:
            await asyncio.sleep(RETRY_INTERVAL_S)
        if queue.ack_order is not AckOrder.ACKS:
            return
        barriers = self._order_barriers()
        if barriers:
            await asyncio.wait(barriers)

    async def drained(self) -> None:
        """Wait until all queues are empty."""
        while tasks := [queue.task for queue in self._queues.values() if queue.task is not None]:
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Abandon the queued samples; later ones are not queued."""
        self._closed = True
        for queue in self._queues.values():
            if queue.task is not None:
                queue.task.cancel()
            reason = queue.last_error or "blocked"
            left = len(queue.samples) + queue.in_flight_count
            _LOG.error("%d samples were not published to %s: %s", left, queue.topic.name, reason)
