"""Publishing from callbacks of the loop: at once where that is possible, else in order, later.

Constraints: the loop is never held up, and no topic holds up another. What would have to wait, or
fails and is to be kept, begins a line of its topic, which all that follows on it joins. A line is
bounded. What passes (progress, log messages) goes first, and at the first failure; then the oldest,
but of the audit the newest: what was done counts more there than what was refused since.

Operation: a line has a task, which publishes what stands in it, in threads, and after a failure
tries again each second. What the bus has taken and has no receipt for yet begins a line as well,
unless it passes: it is published when the receipt has come. Acknowledgements alone wait for other
topics: for what was said there before them, until that is published or has failed, or patience is
over. A topic that another process has taken is taken back, as long as it is the component's to
write.
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

    from heliograph._heliograph import Choices, RawTopic
    from heliograph._heliograph import Pending as Receipts

    Finish = Callable[[Receipts], Awaitable[object]]

_LOG = logging.getLogger("heliograph.send")

BACKLOG = 10_000
"""The most that waits for one topic: what twenty commands a second say in some minutes."""

RETRY_S = 1.0
"""How often it is tried again."""

PATIENCE_S = 5.0
"""How long acknowledgements wait for what was said before, from when that was held up: as long as a
publish waits for a lock whose holder is stopped."""


def choices(
    *, key: bytes | None = None, trace: bytes | None = None, headers: dict[str, bytes] | None = None
) -> Choices:
    """Return what is said beside a value."""
    return {
        "key": key,
        "level": 0,
        "time": None,
        "trace": trace,
        "guarantee": None,
        "partition": None,
        "headers": headers,
    }


class Rank(enum.Enum):
    """How a topic stands to the acknowledgements of commands."""

    PLAIN = enum.auto()
    """Neither waits for the other."""
    BEFORE = enum.auto()
    """Acknowledgements come after what was said there before them."""
    AUDIT = enum.auto()
    """The same; where too much waits, the newest goes, and who is refused is recorded yet."""
    ACKS = enum.auto()
    """They are acknowledgements."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What becomes of a sample that cannot be published at once.

    ``failed`` is told of the error, else the log. ``keep`` has it tried again. ``refusal`` says why
    the topic is not the component's to write now, if so; it is asked whenever the sample's turn
    comes, and before the topic is taken back.
    """

    failed: Callable[[HelioError], object] | None = None
    keep: bool = False
    rank: Rank = Rank.PLAIN
    refusal: Callable[[], HelioError | None] | None = None

    @property
    def passes(self) -> bool:
        """Whether it is worth nothing later, and nobody waits to hear of it."""
        return not self.keep and self.failed is None


_NONE = Terms()


def _to_come(given: Any) -> Receipts | None:
    """Return the receipts that have not come yet, if they have not."""
    return given if hasattr(given, "poll") else None


@dataclass(frozen=True, slots=True)
class _Item:
    topic: RawTopic
    value: Any
    beside: Choices | None
    terms: Terms
    doubted: bool = False
    """Whether it was perhaps published already."""
    underway: Receipts | None = None
    """Its receipts to come, where the bus has taken it."""

    def offer(self) -> Receipts | bool:
        """Publish at once, unless the loop would be held up; say whether it was published.

        Of what somebody waits to hear of, the receipts that have not come yet are returned.
        """
        self._check()
        topic, value, beside = self.topic, self.value, self.beside
        try:
            given = topic.offer(value) if beside is None else topic.offer_with(value, beside)
        except Fenced:
            if not self._owns():
                raise
            # To take the topic back takes its time.
            return False
        to_come = None if self.terms.passes else _to_come(given)
        return to_come or given is not None

    async def publish(self, finish: Finish) -> None:
        """Publish in a thread, until the receipt; a topic that was taken is taken back once."""
        if self.underway is not None:
            await finish(self.underway)
            return
        self._check()
        try:
            given = await in_thread(self._publish)
        except Fenced:
            if not self._owns():
                raise
            await in_thread(self.topic.reopen)
            given = await in_thread(self._publish)
        to_come = _to_come(given)
        if to_come is not None:
            await finish(to_come)

    def _publish(self) -> Any:
        if self.beside is None:
            return self.topic.publish(self.value)
        return self.topic.publish_with(self.value, self.beside)

    def _check(self) -> None:
        if self.terms.rank is Rank.AUDIT or self.terms.refusal is None:
            return
        refusal = self.terms.refusal()
        if refusal is not None:
            raise refusal

    def _owns(self) -> bool:
        """Whether the topic is the component's to take back."""
        return self.terms.refusal is not None and self.terms.refusal() is None

    def is_lost(self, error: HelioError) -> bool:
        """Whether that error would come again, however often it is tried."""
        if isinstance(error, Fenced):
            # While nobody can tell who has the lease, it may be the component's yet.
            return self.terms.refusal is None or isinstance(self.terms.refusal(), NotLive)
        if type(error) is PublishError:
            # It may have arrived, and is better said twice than never; or it is too large.
            return self.doubted
        return isinstance(error, (CodecError, ClosedError, NotLive))


@dataclass(slots=True, eq=False)
class Line:
    """What waits for a topic."""

    topic: RawTopic
    rank: Rank
    tried: asyncio.Future[None]
    """Done when it has failed, or patience is over: whoever comes after it waits for no more."""
    waiting: deque[_Item] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    busy: int = 0
    """Number of samples that are being published."""
    trouble: HelioError | None = None
    """Why it was not published the last time."""
    passed: int = 0
    """Number of samples that were worth nothing later."""
    shed: int = 0
    """Number of samples that were too many."""

    def push(self, item: _Item) -> None:
        """Put something at its end; where too much waits, something goes."""
        if len(self.waiting) < BACKLOG:
            self.waiting.append(item)
            return
        gone = next((waiting for waiting in self.waiting if not waiting.terms.keep), None)
        if gone is None and item.terms.keep and self.rank is not Rank.AUDIT:
            gone = self.waiting[0]
        if gone is None:
            gone = item
        else:
            self.waiting.remove(gone)
            self.waiting.append(item)
        self._count(gone)

    def _count(self, gone: _Item) -> None:
        if gone.terms.keep:
            self.shed += 1
        else:
            self.passed += 1
        if gone.terms.failed is not None:
            gone.terms.failed(OverloadError(f"{BACKLOG} samples wait already"))

    def fail(self, item: _Item, error: HelioError) -> None:
        """Note that something failed which is to be tried again, and let go what passes."""
        self.trouble = error
        held = [item, *self.waiting]
        self.waiting = deque(waiting for waiting in held if not waiting.terms.passes)
        self.passed += len(held) - len(self.waiting)
        self.settle()

    def settle(self) -> None:
        """Let those go on who wait for it."""
        if not self.tried.done():
            self.tried.set_result(None)


class Sender:
    """Sends without waiting; an error is logged, for nobody waits for it either.

    ``finish`` waits for receipts, as the bus does. ``on_line`` is told of each line, when it begins
    and when it ends.
    """

    def __init__(self, finish: Finish, on_line: Callable[[Line], object] | None = None) -> None:
        self._finish = finish
        self._lines: dict[str, Line] = {}
        self._on_line = on_line
        self._told: dict[str, str] = {}
        self._closed = False

    def send(
        self,
        topic: RawTopic,
        value: Any,
        beside: Choices | None = None,
        terms: Terms = _NONE,
    ) -> None:
        """Publish a value, or put it in line."""
        item = _Item(topic, value, beside, terms)
        line = self._lines.get(topic.name)
        trouble: HelioError | None = None
        underway: Receipts | None = None
        if line is None and not (terms.rank is Rank.ACKS and self._before()):
            try:
                offered = item.offer()
                if offered is True:
                    return
                underway = offered or None
            except HelioError as error:
                if not terms.keep or item.is_lost(error):
                    self._tell(item, error)
                    return
                trouble = error
        if self._closed and underway is None:
            self._tell(item, trouble or OverloadError("nothing is kept any more"))
            return
        later = _Item(topic, copy.copy(value), beside, terms, underway=underway)
        if line is None:
            self._begin(later, trouble)
        else:
            line.push(later)

    def holds(self, topic: RawTopic) -> bool:
        """Whether something waits for a topic."""
        return topic.name in self._lines

    def _before(self) -> list[asyncio.Future[None]]:
        """Return what acknowledgements wait for."""
        ranks = (Rank.BEFORE, Rank.AUDIT)
        lines = self._lines.values()
        return [line.tried for line in lines if line.rank in ranks and not line.tried.done()]

    def _begin(self, item: _Item, trouble: HelioError | None) -> None:
        loop = asyncio.get_running_loop()
        line = Line(item.topic, item.terms.rank, loop.create_future())
        self._lines[item.topic.name] = line
        if trouble is None:
            line.push(item)
        else:
            self._trouble(line, item, trouble)
        patience = loop.call_later(PATIENCE_S, line.settle)
        line.tried.add_done_callback(lambda _: patience.cancel())
        line.task = loop.create_task(self._catch_up(line))
        if self._on_line is not None:
            self._on_line(line)

    def _trouble(self, line: Line, item: _Item, error: HelioError) -> None:
        """Note that something failed which may not for ever."""
        if item.terms.passes:
            self._tell(item, error)
        elif line.trouble is None:
            _LOG.error("what goes to %s is kept: %s", line.topic.name, error)
        doubted = type(error) is PublishError or item.doubted
        line.fail(replace(item, doubted=doubted, underway=None), error)

    def _tell(self, item: _Item, error: HelioError) -> None:
        """Say that something is not published; in the log once for each reason."""
        name, reason = item.topic.name, str(error)
        if item.terms.failed is not None:
            item.terms.failed(error)
        elif not isinstance(error, NotLive) and self._told.get(name) != reason:
            self._told[name] = reason
            _LOG.error("nothing was published to %s: %s", name, reason)

    async def _catch_up(self, line: Line) -> None:
        try:
            while line.waiting:
                await self._turn(line)
                if not line.waiting:
                    break
                item = line.waiting.popleft()
                try:
                    line.busy = 1
                    await item.publish(self._finish)
                    line.busy = 0
                except HelioError as error:
                    line.busy = 0
                    if (item.terms.keep or item.terms.passes) and not item.is_lost(error):
                        self._trouble(line, item, error)
                        continue
                    self._tell(item, error)
                line.trouble = None
        finally:
            line.settle()
            del self._lines[line.topic.name]
            if self._on_line is not None:
                self._on_line(line)

    async def _turn(self, line: Line) -> None:
        """Wait until the first of a line may be tried."""
        if line.trouble is not None:
            await asyncio.sleep(RETRY_S)
        if line.rank is not Rank.ACKS:
            return
        before = self._before()
        if before:
            await asyncio.wait(before)

    async def drained(self) -> None:
        """Wait until nothing is in line."""
        while tasks := [line.task for line in self._lines.values() if line.task is not None]:
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Give up what is in line, and keep nothing more."""
        self._closed = True
        for line in self._lines.values():
            if line.task is not None:
                line.task.cancel()
            reason = line.trouble or "held up"
            left = len(line.waiting) + line.busy
            _LOG.error("%d samples were not published to %s: %s", left, line.topic.name, reason)
