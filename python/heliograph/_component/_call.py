"""Sent commands: their acknowledgements and their end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from heliograph._common import checked_timeout
from heliograph._component._codes import Ack, AckCode
from heliograph._errors import (
    CommandAborted,
    CommandError,
    CommandFailed,
    CommandTimeout,
    NobodyThere,
    NotPermitted,
    WaitTimeout,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from heliograph._component._caller import CallerEngine

AckError = CommandError
"""SAL's name of the class."""

AckTimeoutError = CommandTimeout
"""SAL's name of the class."""

_LOG = logging.getLogger("heliograph")

_HISTORY_MAX = 100
"""The most unread acknowledgements that are stored for one call; the oldest are dropped."""

_ERRORS: dict[AckCode, type[CommandError]] = {
    AckCode.NO_PERM: NotPermitted,
    AckCode.NO_ACK: NobodyThere,
    AckCode.FAILED: CommandFailed,
    AckCode.ABORTED: CommandAborted,
    AckCode.TIMEOUT: CommandTimeout,
}


class CommandCall:
    """A sent command: await it for its end, or iterate over its acknowledgements.

    ``await call`` returns the final :class:`heliograph.Ack`, or raises a :class:`CommandError` with
    it as ``ack``. ``async for ack in call`` yields every acknowledgement, the final one last.
    """

    def __init__(
        self,
        calling: CallerEngine,
        title: str,
        until_done: bool,
        progress: Callable[[Ack], object] | None,
    ) -> None:
        self._calling = calling
        self._title = title
        self._until_done = until_done
        self._progress = progress
        self._unread: deque[Ack] = deque(maxlen=_HISTORY_MAX)
        self._waiting: set[asyncio.Future[None]] = set()
        self.number = 0
        """Its ``private_seqNum``; 0 if it was not sent."""
        self.ack: Ack | None = None
        """The last acknowledgement."""

    def __repr__(self) -> str:
        said = "sent" if self.ack is None else f"{self.ack.ack.name} {self.ack.result!r}"
        return f"<{self._title}: {said}>"

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.ack is not None and self.ack.ack.final

    def __await__(self) -> Generator[Any, None, Ack]:
        return self._end().__await__()

    async def _end(self) -> Ack:
        while not (self.done or (self.ack is not None and not self._until_done)):
            await self._more()
        assert self.ack is not None, "an acknowledgement was received"
        self._raise(self.ack)
        return self.ack

    def _raise(self, ack: Ack) -> None:
        kind = _ERRORS.get(ack.ack)
        if kind is not None:
            raise kind(f"{self._title}: {ack.result or ack.ack.name}", ack)

    async def wait(self) -> Ack:
        """Wait for the end, even with ``wait_done=False``; raises as awaiting the call does."""
        while not self.done:
            await self._more()
        assert self.ack is not None, "it is done"
        self._raise(self.ack)
        return self.ack

    async def next_ack(self, timeout: float | None = None) -> Ack:
        """Return the next unread acknowledgement, final or not.

        Raises :class:`WaitTimeout`, and RuntimeError after the final one.
        """
        try:
            async with asyncio.timeout(checked_timeout(timeout)):
                while not self._unread:
                    if self.done:
                        raise RuntimeError(f"{self!r} has ended")
                    await self._more()
        except TimeoutError:
            raise WaitTimeout(f"no acknowledgement of {self._title} within {timeout} s") from None
        return self._unread.popleft()

    async def __aiter__(self) -> AsyncIterator[Ack]:
        while self._unread or not self.done:
            if self._unread:
                yield self._unread.popleft()
            else:
                await self._more()

    def cancel(self, *, timeout: float | None = None) -> CommandCall:
        """Request the component to cancel the command; await the result for its answer.

        The command itself then ends as aborted.
        """
        return self._calling.cancel(self, timeout)

    async def _more(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def _on_row(self, row: tuple[Any, ...]) -> None:
        """Process an acknowledgement; called by the caller engine."""
        code, error, result, timeout, progress, typed = row
        try:
            value = None if typed is None else json.loads(typed)
        except ValueError:
            value = typed
        self.ack = ack = Ack(AckCode(code), error, result, timeout, progress, value)
        self._unread.append(ack)
        if self._progress is not None and not ack.ack.final:
            try:
                self._progress(ack)
            except Exception:
                _LOG.exception("the progress callback of %s failed", self._title)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
