"""Threads for file access, separate from the event loop's default executor.

Constraints: blocking work of users (``asyncio.to_thread``) must not block a component's writers.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_R = TypeVar("_R")
_P = ParamSpec("_P")

THREADS = 16
"""The most threads; another process may block some of them. Threads start on demand."""

_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="helio")


def _renew() -> None:
    global _pool
    _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="helio")


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=_renew)


def in_background(work: Callable[[], object]) -> None:
    """Do work whose end nobody awaits in one of these threads; a program's end waits for it."""
    try:
        _pool.submit(work)
    except RuntimeError:
        # The program is ending: its threads start nothing more.
        work()


async def in_thread(work: Callable[_P, _R], *given: _P.args, **named: _P.kwargs) -> _R:
    """Do as ``asyncio.to_thread``, in one of these threads."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_pool, partial(work, *given, **named))
