"""An engine that several programs of this user share: the first starts it, the last ends it.

Its folder is in the temporary folder, under a name of its own, so that commands without --dir do
not find it. A program that starts, joins or removes it holds the lock in that folder; others wait.
"""

import hashlib
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lib.engine import BEGUN, Engine
from lib.errors import FailureError, RefusedError
from lib.files import claimed
from lib.kind import Kind
from lib.maven import HERE
from lib.process import Process, State

# How long an engine without users waits for the next: test programs run one after the other.
LINGER_SECONDS = 5.0


def share(kind: Kind, options: Namespace) -> Engine:
    """The shared engine, which runs until the owner and all others that have asked for it end."""
    if options.owner is None:
        raise FailureError("--shared needs --owner: the engine ends after its last owner")
    kind.check(options)
    engine = Engine(kind, _folder(kind))
    with _in_turn(engine.folder):
        if not _serves(engine):
            try:
                engine.clear()
                engine.launch_somewhere(options)
            except BaseException:
                engine.stop()
                raise
        engine.own(Process.of(options.owner))
    return engine


def check_unshared(engine: Engine) -> None:
    """Whether the engine may be hurt: one that others use may not."""
    record = engine.record()
    users = [str(user.pid) for user in record.users()]
    if record.is_shared and users:
        raise RefusedError(
            f"the engine in {engine.folder} is shared, by the processes {', '.join(users)}; "
            "it ends by itself after the last of them, and only a `start` without --shared gives "
            "an engine that may be hurt"
        )


def stop_after_owners(engine: Engine) -> None:
    """Waits until all owners have gone, and stops the engine; what the watcher does."""
    if not engine.record().is_shared:
        _wait_for_owners(engine)
        engine.stop()
        return
    while engine.file.exists():
        _wait_for_owners(engine)
        time.sleep(LINGER_SECONDS)
        with _in_turn(engine.folder):
            if not engine.file.exists() or not engine.record().users():
                engine.stop()


def _wait_for_owners(engine: Engine) -> None:
    while users := engine.record().users():
        users[0].join()


def _folder(kind: Kind) -> Path:
    """Programs of different versions have different engines."""
    version = hashlib.sha256()
    for file in sorted(HERE.glob("*.*")):
        version.update(file.read_bytes())
    name = f"heliograph-shared-{kind.lock.name}-{os.getuid()}-{version.hexdigest()[:12]}"
    return Path(tempfile.gettempdir()).resolve() / name


@contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, which is made where it is not there; waits for its turn."""
    with ExitStack() as held:
        while True:
            folder.mkdir(mode=0o700, exist_ok=True)
            try:
                held.enter_context(claimed(folder / BEGUN, wait=True))
            except FileNotFoundError:
                # The watcher has removed the folder between the two.
                continue
            break
        yield


def _serves(engine: Engine) -> bool:
    """Whether the engine runs; one whose starter was killed is waited for."""
    if not engine.file.exists():
        return False
    nodes = engine.record().plan.nodes
    if any(node.state() is not State.RUNNING for node in nodes):
        return False
    try:
        engine.wait_until_ready(nodes)
    except FailureError:
        return False
    return True
