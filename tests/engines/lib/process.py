"""Processes that outlive the command that started them, known by number and time of birth.

The number alone is not enough: the system gives it to another process one day, and a command must
never signal that one.
"""

import os
import select
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lib.errors import FailureError

POLL_SECONDS = 0.02
# A broker that shuts down in good order gives its partitions away first.
END_SECONDS = 60.0
# How often an end is looked for where the system does not announce it.
JOIN_SECONDS = 0.5


class State(StrEnum):
    """What a process does."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass(frozen=True)
class Process:
    """A process of this machine, dead or alive."""

    pid: int
    born: str

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process that has this number now; a dead one if there is none."""
        return cls(pid, _look(pid)[1])

    def state(self) -> State:
        """What it does now."""
        letter, born = _look(self.pid)
        # A zombie is dead already: in a container there may be nobody to reap it.
        if born != self.born or letter in {"", "Z", "X"}:
            return State.DEAD
        return State.FROZEN if letter in {"T", "t"} else State.RUNNING

    def send(self, number: int) -> None:
        """Sends a signal, to this process or to nobody."""
        if self.state() is not State.DEAD:
            os.kill(self.pid, number)

    def wait(self, *states: State) -> None:
        """Waits until the process is in one of these states."""
        until(
            lambda: self.state() in states,
            END_SECONDS,
            lambda: f"process {self.pid} is still {self.state()} after {END_SECONDS:.0f} s",
        )

    def join(self) -> None:
        """Waits for its end, however long that takes."""
        while self.state() is not State.DEAD:
            try:
                end = os.pidfd_open(self.pid)
            except (AttributeError, OSError):
                # Only Linux has these descriptors.
                time.sleep(JOIN_SECONDS)
                continue
            with os.fdopen(end) as opened:
                select.select([opened], [], [])
                return


def until(happened: Callable[[], bool], seconds: float, late: Callable[[], str]) -> None:
    """Waits for what nobody announces; `late` says what is missing when the time is over."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise FailureError(late())
        time.sleep(POLL_SECONDS)


def spawn(command: list[str], folder: Path, console: Path) -> Process:
    """Starts a daemon in a folder; what it prints is appended to `console` there."""
    with (folder / console).open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Process.of(child.pid)


def running_in(folder: Path, marks: tuple[str, ...]) -> list[Process]:
    """The processes in a folder that have one of these arguments; where the system tells."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() != folder:
                continue
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            # It is another user's, or has gone.
            continue
        if any(mark.encode() in arguments for mark in marks):
            found.append(Process.of(int(process.name)))
    return found


def _look(pid: int) -> tuple[str, str]:
    """The letter of a process's state and when it was born; two empty strings without one."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return "", ""
        # The name before the last parenthesis may hold anything; see proc(5) for the fields.
        fields = stat.rpartition(")")[2].split()
        # The first thread is a zombie before the others have let go of files and ports.
        ending = fields[0] == "Z" and int(fields[17]) > 1
        return "R" if ending else fields[0], fields[19]
    ps = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    shown = subprocess.run(ps, capture_output=True, text=True, check=False).stdout
    letters, _, born = shown.strip().partition(" ")
    return letters[:1], born.strip()
