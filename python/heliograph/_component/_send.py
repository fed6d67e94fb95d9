"""Publishing from callbacks of the loop: at once where that is possible, else in order, later.

Constraints: the loop is never held up. What must be told is kept while it cannot be published (a
full disk), in its order, and tried again once a second; what only matters now is not.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph._errors import HelioError, NotLive, OverloadError, StorageError
from heliograph._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph._heliograph import Choices, RawTopic

_LOG = logging.getLogger("heliograph.send")

BACKLOG = 10_000
"""So many samples wait while nothing can be published: hours of an operator's commands."""

RETRY_S = 1.0
"""How often what must be told is tried again."""


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


@dataclass(frozen=True, slots=True)
class Terms:
    """What becomes of a sample that cannot be published at once.

    ``failed`` is told of the error, else the log. ``keep`` has it tried again. ``refusal`` says why
    it must not be published any more, if so; it is asked whenever the sample's turn comes.
    """

    failed: Callable[[HelioError], object] | None = None
    keep: bool = False
    refusal: Callable[[], str | None] | None = None


_NONE = Terms()


@dataclass(frozen=True, slots=True)
class _Item:
    topic: RawTopic
    value: Any
    beside: Choices | None
    terms: Terms

    def offer(self) -> bool:
        """Publish at once, unless the loop would be held up; say whether it was published."""
        self._check()
        topic, value, beside = self.topic, self.value, self.beside
        given = topic.offer(value) if beside is None else topic.offer_with(value, beside)
        return given is not None

    async def publish(self) -> None:
        """Publish in a thread."""
        self._check()
        topic, value, beside = self.topic, self.value, self.beside
        if beside is None:
            await in_thread(topic.publish, value)
        else:
            await in_thread(topic.publish_with, value, beside)

    def _check(self) -> None:
        reason = None if self.terms.refusal is None else self.terms.refusal()
        if reason is not None:
            raise NotLive(reason)

    def can_wait(self, error: HelioError) -> bool:
        """Whether it is to be tried again after that error."""
        return self.terms.keep and isinstance(error, (StorageError, OverloadError))

    def tell(self, error: HelioError) -> None:
        """Say that it is not published."""
        if self.terms.failed is not None:
            self.terms.failed(error)
        else:
            _LOG.error("nothing was published to %s: %s", self.topic.name, error)


class Sender:
    """Sends without waiting; an error is logged, for nobody waits for it either."""

    def __init__(self) -> None:
        self._waiting: deque[_Item] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.trouble: HelioError | None = None
        """Why nothing can be published now."""
        self.dropped = 0
        """How many samples were not published because of that."""

    def send(
        self,
        topic: RawTopic,
        value: Any,
        beside: Choices | None = None,
        terms: Terms = _NONE,
    ) -> None:
        """Publish a value, or put it in line."""
        item = _Item(topic, value, beside, terms)
        if self._task is None and self._offered(item):
            return
        if self._closed or (self.trouble is not None and not terms.keep):
            # There is no telling it later: an old heartbeat would be a wrong one.
            self._drop(item, self.trouble or OverloadError("it ends"))
            return
        if len(self._waiting) >= BACKLOG:
            error = self.trouble or OverloadError(f"{BACKLOG} samples wait already")
            self._drop(self._waiting.popleft(), error)
        self._waiting.append(_Item(topic, copy.copy(value), beside, terms))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush())

    def _offered(self, item: _Item) -> bool:
        """Whether nothing is left to be done for it."""
        try:
            return item.offer()
        except HelioError as error:
            return not self._troubled(item, error)

    def _troubled(self, item: _Item, error: HelioError) -> bool:
        """Whether it is to be tried again."""
        if not item.can_wait(error):
            item.tell(error)
            return False
        if self.trouble is None:
            _LOG.error("what must be told cannot be, and is kept: %s: %s", item.topic.name, error)
        self.trouble = error
        return True

    def _drop(self, item: _Item, error: HelioError) -> None:
        self.dropped += 1
        if item.terms.failed is not None:
            item.terms.failed(error)

    async def _flush(self) -> None:
        try:
            if self.trouble is not None:
                await asyncio.sleep(RETRY_S)
            while self._waiting:
                item = self._waiting.popleft()
                try:
                    await item.publish()
                except HelioError as error:
                    if self._troubled(item, error):
                        self._waiting.appendleft(item)
                        await asyncio.sleep(RETRY_S)
                    continue
                self._well()
        finally:
            self._task = None

    def _well(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            _LOG.warning("it can be published again; %d samples were not", self.dropped)
            self.dropped = 0

    async def drained(self) -> None:
        """Wait until nothing is in line."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Give up what is in line, and keep nothing more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._waiting:
            _LOG.error("%d samples that must be told were not", len(self._waiting))
            self._waiting.clear()
