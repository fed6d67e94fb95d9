"""Publishing from callbacks of the loop: at once where that is possible, else in order, later."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from heliograph._errors import HelioError, OverloadError
from heliograph._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph._heliograph import Choices, RawTopic

    _Item = tuple[RawTopic, Any, Choices | None, Callable[[HelioError], object] | None]

_LOG = logging.getLogger("heliograph.send")

BACKLOG = 4096
"""So many samples wait while another process holds up a topic: acknowledgements of ten seconds."""


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


def _tell(
    topic: RawTopic, error: HelioError, failed: Callable[[HelioError], object] | None
) -> None:
    if failed is not None:
        failed(error)
    else:
        _LOG.error("nothing was published to %s: %s", topic.name, error)


class Sender:
    """Sends without waiting; an error is logged, for nobody waits for it either."""

    def __init__(self) -> None:
        self._waiting: deque[_Item] = deque()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def send(
        self,
        topic: RawTopic,
        value: Any,
        beside: Choices | None = None,
        failed: Callable[[HelioError], object] | None = None,
    ) -> None:
        """Publish a value, or put it in line; ``failed`` is told of an error, else the log."""
        if not self._waiting and self._task is None:
            try:
                given = topic.offer(value) if beside is None else topic.offer_with(value, beside)
            except HelioError as error:
                _tell(topic, error, failed)
                return
            if given is not None:
                return
        if len(self._waiting) >= BACKLOG:
            dropped = self._waiting.popleft()
            self.dropped += 1
            _tell(dropped[0], OverloadError(f"{BACKLOG} samples wait already"), dropped[3])
        self._waiting.append((topic, copy.copy(value), beside, failed))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._waiting:
                topic, value, beside, failed = self._waiting.popleft()
                try:
                    if beside is None:
                        await in_thread(topic.publish, value)
                    else:
                        await in_thread(topic.publish_with, value, beside)
                except HelioError as error:
                    _tell(topic, error, failed)
        finally:
            self._task = None

    async def drained(self) -> None:
        """Wait until nothing is in line."""
        while self._task is not None:
            await asyncio.wait([self._task])
