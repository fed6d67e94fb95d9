"""Files that several commands use at the same time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TakenError(Exception):
    """Somebody else holds a lock."""


@contextmanager
def claimed(file: Path, *, wait: bool = False) -> Iterator[None]:
    """Holds a lock whose holder may remove the file, with all around it.

    Where another holds it this fails at once, unless it is to wait.
    """
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        with file.open("w") as lock:
            try:
                fcntl.flock(lock, how)
            except BlockingIOError:
                raise TakenError from None
            # The one before may have removed it, and another made it anew.
            try:
                is_ours = os.path.samestat(os.fstat(lock.fileno()), file.stat())
            except FileNotFoundError:
                is_ours = False
            if is_ours:
                yield
                return


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a lock, which the system releases when the holder dies."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def cache_folder(name: str) -> Iterator[Path]:
    """A folder of the user's cache, which nobody else fills now."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "heliograph" / name
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        yield folder
