"""A thread of its own for each producer and reader, since their calls wait for the bus."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

_R = TypeVar("_R")


class OwnThread:
    """Does calls one after the other in one thread, which starts with the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def submit(self, work: Callable[[], _R]) -> Future[_R]:
        """Queue a call."""
        with self._lock:
            # A forked process has none of its parent's threads.
            if self._pool is None or self._pool[0] != os.getpid():
                pool = ThreadPoolExecutor(1, thread_name_prefix="helio-alerts")
                self._pool = (os.getpid(), pool)
            return self._pool[1].submit(work)

    def run(self, work: Callable[[], _R]) -> _R:
        """Do a call and wait for it; Ctrl-C ends the wait."""
        return self.submit(work).result()

    def end(self) -> None:
        """Let the thread end after what is queued."""
        with self._lock:
            if self._pool is not None:
                self._pool[1].shutdown(wait=False)
                self._pool = None
