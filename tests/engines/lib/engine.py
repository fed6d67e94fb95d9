"""A running engine: a folder with engine.json, which says all that the commands need to know.

Commands may run at the same time, so each change of engine.json is made under a lock; nothing waits
for a process while it holds that lock.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lib.errors import FailureError, PortTakenError, RefusedError, advice
from lib.files import TakenError, claimed, locked
from lib.kind import Kind, Node, Plan, node_folder
from lib.process import Process, State, running_in, spawn, until

# How often ports are chosen anew when another program took one of them in the meantime.
PORT_ATTEMPTS = 3
LOG_LINES = 20
BIND_FAILURES = ("address already in use", "in use by another process")
# Held by who starts or removes the engine. A folder that has it is an engine's, or will be.
BEGUN = "begun.lock"
# In the folder of a node, beside the logs that it writes itself.
CONSOLE = Path("log/console.log")


@dataclass
class Record:
    """What engine.json holds."""

    plan: Plan
    # The process that stops the engine when all of its owners have gone.
    watcher: Process | None = None
    owners: list[Process] = field(default_factory=list)
    # Whether several programs use it, which may not hurt it.
    is_shared: bool = False

    @classmethod
    def read(cls, file: Path) -> "Record":
        """Reads it back."""
        held = json.loads(file.read_text())
        nodes = [Node(**node | {"process": _process(node["process"])}) for node in held["nodes"]]
        plan = Plan(nodes, held["url"], held["details"])
        # An engine that was stopped with --keep may be of a version without these.
        owners = [Process(**owner) for owner in held.get("owners", [])]
        return cls(plan, _process(held["watcher"]), owners, held.get("is_shared", False))

    def write(self, file: Path) -> None:
        """A reader finds the old file or the new one; its passwords are the owner's to read."""
        draft = file.with_suffix(".tmp")
        draft.touch(mode=0o600)
        rest = asdict(self)
        draft.write_text(json.dumps(rest.pop("plan") | rest, indent=1))
        draft.replace(file)

    def users(self) -> list[Process]:
        """The owners that still run."""
        return [owner for owner in self.owners if owner.state() is not State.DEAD]


class Engine:
    """An engine in its folder."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.file = folder / "engine.json"

    @classmethod
    def find_all(cls, kind: Kind) -> list["Engine"]:
        """The engines in the temporary folder, where `start` puts them without --dir."""
        found = Path(tempfile.gettempdir()).glob(f"{_prefix(kind)}*/engine.json")
        return [cls(kind, file.parent) for file in sorted(found)]

    @classmethod
    def find(cls, kind: Kind, folder: Path | None) -> "Engine":
        """The engine of a folder, or the only one that there is."""
        if folder is not None:
            engine = cls(kind, folder.resolve())
            if engine.file.exists():
                return engine
            if engine.is_begun():
                raise FailureError(
                    f"a start has begun in {folder}, and is not done; where nobody starts it any "
                    f"more, {advice('stop', folder)} removes what is there"
                )
            raise FailureError(f"there is no engine in {folder}")
        found = cls.find_all(kind)
        if len(found) != 1:
            names = "".join(f"\n  {engine.folder}" for engine in found)
            raise FailureError(
                f"there are several; --dir says which one:{names}" if found else "there is none"
            )
        return found[0]

    @classmethod
    def start(cls, kind: Kind, options: Namespace) -> "Engine":
        """Starts an engine, and waits until it serves; what fails leaves nothing behind."""
        _check_folder(options.dir)
        kind.check(options)
        engine = cls(kind, _folder(kind, options.dir))
        with engine.alone():
            engine._check_free()
            try:
                engine.launch_somewhere(options)
                if options.owner is not None:
                    engine.own(Process.of(options.owner))
            except BaseException:
                engine.stop()
                raise
        return engine

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else starts or removes an engine in the folder meanwhile."""
        try:
            with claimed(self.folder / BEGUN):
                yield
        except (TakenError, FileNotFoundError):
            raise RefusedError(
                f"somebody starts or stops an engine in {self.folder} at this moment; wait for "
                "that, or end it"
            ) from None

    def is_begun(self) -> bool:
        """Whether a start has begun in the folder, whatever became of it."""
        return (self.folder / BEGUN).exists()

    def _check_free(self) -> None:
        """Whether an engine may be started in the folder; clears what a killed start has left."""
        if not self.file.exists():
            self.clear()
            return
        states = {node.state() for node in self.record().plan.nodes}
        if states == {State.DEAD}:
            raise RefusedError(
                f"there is an engine in {self.folder}, and it is dead; "
                f"{advice('stop', self.folder)} removes it"
            )
        raise RefusedError(
            f"there is an engine in {self.folder} already; {advice('stop', self.folder)} ends it"
        )

    def launch_somewhere(self, options: Namespace) -> None:
        """Starts it on free ports, and waits until it serves."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._launch(options)
                return
            except PortTakenError:
                if attempt == PORT_ATTEMPTS:
                    raise
                self.clear()

    def _launch(self, options: Namespace) -> None:
        plan = self.kind.plan(self.folder, options)
        Record(plan, is_shared=options.shared).write(self.file)
        self.run([node.node for node in plan.nodes])
        self.kind.finish(plan)

    def run(self, numbers: list[int]) -> None:
        """Starts the processes of nodes that do not run, and waits until they serve."""
        stages = {node.stage for node in _nodes(self.record().plan, numbers)}
        for stage in sorted(stages):
            with self._change() as record:
                nodes = [n for n in _nodes(record.plan, numbers) if n.stage == stage]
                for node in nodes:
                    node.process = spawn(node.command, self._logs_anew(node).parent, CONSOLE)
            self.wait_until_ready(nodes)

    def wait_until_ready(self, nodes: list[Node]) -> None:
        """Waits until these nodes serve."""
        until(
            lambda: self._alive(nodes) and self.kind.ready(self.folder, nodes),
            self.kind.start_seconds,
            lambda: self._late(nodes),
        )

    def _logs_anew(self, node: Node) -> Path:
        """The folder of a node's logs, empty; those of the runs before are in log.1 and so on."""
        logs = node_folder(self.folder, node.node) / "log"
        if any(logs.iterdir()):
            runs = len(list(logs.parent.glob("log.*")))
            logs.rename(logs.with_suffix(f".{runs + 1}"))
            logs.mkdir()
        return logs

    def _alive(self, nodes: list[Node]) -> bool:
        for node in nodes:
            if node.state() is not State.DEAD:
                continue
            said = self._last_lines(node)
            if any(words in said.lower() for words in BIND_FAILURES):
                raise PortTakenError(f"another program has a port of node {node.node}:\n{said}")
            raise FailureError(f"node {node.node} ended by itself:\n{said}")
        return True

    def _late(self, nodes: list[Node]) -> str:
        said = "".join(f"\nnode {node.node}:\n{self._last_lines(node)}" for node in nodes)
        return f"the engine does not serve after {self.kind.start_seconds:.0f} s:{said}"

    def _last_lines(self, node: Node) -> str:
        logs = sorted((node_folder(self.folder, node.node) / "log").glob("*.log"))
        tails = [log.read_text(errors="replace").splitlines()[-LOG_LINES:] for log in logs]
        return "\n".join(line for tail in tails for line in tail)

    def restart(self, numbers: list[int]) -> None:
        """Ends nodes in good order where they run, and starts them again on their ports."""
        numbers = numbers or [node.node for node in self.record().plan.nodes]
        self.end(numbers)
        self.run(numbers)

    def end(self, numbers: list[int]) -> None:
        """Ends nodes in good order; frozen ones wake up for it."""
        nodes = _nodes(self.record().plan, numbers)
        processes = [node.process for node in nodes if node.process]
        for process in processes:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        for process in processes:
            process.wait(State.DEAD)

    def signal(self, number: int, sent: signal.Signals) -> None:
        """Sends a signal to a node that runs, and waits for its effect where that is known."""
        (node,) = _nodes(self.record().plan, [number])
        if node.process is None or node.state() is State.DEAD:
            raise FailureError(f"node {number} does not run; `restart {number}` starts it")
        node.process.send(sent)
        if sent in {signal.SIGKILL, signal.SIGTERM, signal.SIGINT}:
            node.process.wait(State.DEAD)
        elif sent is signal.SIGSTOP:
            node.process.wait(State.FROZEN, State.DEAD)
        elif sent is signal.SIGCONT:
            node.process.wait(State.RUNNING, State.DEAD)

    def stop(self) -> None:
        """Ends everything at once, as all that it holds goes too, and removes the folder."""
        self.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def clear(self) -> None:
        """Ends everything, and removes all but the lock."""
        if self.file.exists():
            record = self.record()
            running = [node.process for node in record.plan.nodes if node.process]
            # It is the watcher itself that stops the engine when the owner has gone.
            if record.watcher and record.watcher.pid != os.getpid():
                running.append(record.watcher)
            for process in running:
                process.send(signal.SIGKILL)
            for process in running:
                process.wait(State.DEAD)
        # A start that was killed may not have said what it had begun.
        for node in self.folder.glob("node-*"):
            for process in running_in(node, self.kind.marks):
                process.send(signal.SIGKILL)
                process.wait(State.DEAD)
        for left in self.folder.iterdir() if self.folder.exists() else []:
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            elif left.name != BEGUN:
                left.unlink(missing_ok=True)

    def own(self, owner: Process) -> None:
        """The engine is stopped when this process, and all others that own it, have gone."""
        program = [sys.executable, os.path.realpath(sys.argv[0])]
        watch = [*program, "watch", "--dir", str(self.folder)]
        with self._change() as record:
            record.owners = [*{*record.users(), owner}]
            if record.watcher is None or record.watcher.state() is State.DEAD:
                record.watcher = spawn(watch, self.folder, Path("watcher.log"))

    def record(self) -> Record:
        """What engine.json says."""
        return Record.read(self.file)

    def described(self) -> dict[str, Any]:
        """What --json prints."""
        record = self.record()
        plan = record.plan
        return {
            "url": plan.url,
            self.kind.processes: [node.described() for node in plan.nodes],
            "dir": str(self.folder),
            "version": self.kind.lock.version(),
            "shared": record.is_shared,
            **plan.details,
        }

    @contextmanager
    def _change(self) -> Iterator[Record]:
        """The record, which is written back with its changes."""
        with locked(self.folder / "engine.lock"):
            record = self.record()
            try:
                yield record
            finally:
                record.write(self.file)


def _prefix(kind: Kind) -> str:
    return f"heliograph-{kind.lock.name}-"


def _folder(kind: Kind, given: Path | None) -> Path:
    """The folder for a new engine: empty, and nobody else's to read."""
    if given is None:
        return Path(tempfile.mkdtemp(prefix=_prefix(kind))).resolve()
    given.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(given)
    return given.resolve()


def _check_folder(given: Path | None) -> None:
    """Whether an engine may have the folder: an empty one, or that of an engine."""
    if given is None or not given.exists() or (given / BEGUN).exists():
        return
    if any(given.iterdir()):
        raise FailureError(
            f"{given} is not empty, and what is in it is no engine's: name another folder"
        )


def _nodes(plan: Plan, numbers: list[int]) -> list[Node]:
    by_number = {node.node: node for node in plan.nodes}
    for number in numbers:
        if number not in by_number:
            raise FailureError(f"there is no node {number}; the nodes are {sorted(by_number)}")
    return [by_number[number] for number in numbers]


def _process(held: dict[str, Any] | None) -> Process | None:
    return Process(**held) if held else None
