"""What an engine must say of itself, so that the commands can start it and look after it."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lib.ports import HOST
from lib.process import Process, State

JVM = [
    # The files of hsperfdata outlive a killed JVM.
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:ErrorFile=log/crash.log",
    # Native libraries are unpacked there, and left there by a killed JVM.
    "-Djava.io.tmpdir=tmp",
]


def node_folder(folder: Path, node: int) -> Path:
    """The folder of a node, in the engine's: its logs are in `log`."""
    return folder / f"node-{node}"


def make_node_folder(folder: Path, node: int) -> Path:
    """Makes the folder of a node, with what JVM's options name."""
    made = node_folder(folder, node)
    for part in ("log", "tmp"):
        (made / part).mkdir(parents=True)
    return made


@dataclass
class Node:
    """A process of an engine."""

    node: int
    port: int
    # Where the node is asked whether it is ready.
    probe: int
    command: list[str]
    process: Process | None = None
    # It starts when the nodes of all lower stages serve.
    stage: int = 0

    def state(self) -> State:
        """What its process does."""
        return self.process.state() if self.process else State.DEAD

    def described(self) -> dict[str, Any]:
        """What is printed of it."""
        pid = self.process.pid if self.process else 0
        shown = {"node": self.node, "host": HOST, "port": self.port, "pid": pid}
        return shown | {"state": self.state()}


@dataclass
class Plan:
    """What is to be started, and what is printed of it."""

    nodes: list[Node]
    url: str
    # What only this kind of engine has to say.
    details: dict[str, Any] = field(default_factory=dict)


class Pinned(Protocol):
    """The files of an engine, each held to a sum."""

    @property
    def name(self) -> str:
        """The engine's name."""

    @property
    def file(self) -> Path:
        """The file with the sums."""

    def version(self) -> str:
        """The engine's version."""

    def update(self) -> int:
        """Writes the file with the sums again; their number."""


class Kind(Protocol):
    """A kind of engine."""

    @property
    def lock(self) -> Pinned:
        """Its files."""

    # Arguments, one of which each of its processes has, and few others.
    marks: tuple[str, ...]
    # What its processes are called: brokers, for example.
    processes: str
    start_seconds: float

    def options(self, parser: ArgumentParser) -> None:
        """Adds the options of `start` that only this kind has."""

    def check(self, options: Namespace) -> None:
        """Refuses options that contradict each other, and machines that cannot run the engine."""

    def plan(self, folder: Path, options: Namespace) -> Plan:
        """Writes what the processes need into the folder, on ports that are free now."""

    def ready(self, folder: Path, nodes: list[Node]) -> bool:
        """Whether all of these nodes serve, and know of each other."""

    def finish(self, plan: Plan) -> None:
        """What is done once, when all nodes serve."""
