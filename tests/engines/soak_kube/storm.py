"""Writers of config maps through the API, each with maps of its own, while the store is killed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from itertools import pairwise
from random import Random

from cluster import MAPS, ApiError, Client, Cluster, Object, Watcher, until

WRITERS = 10
MAPS_OF_ONE = 5
BETWEEN_KILLS_SECONDS = 2.0
# The writers go on that long after the last kill.
AFTER_SECONDS = 5.0
PAUSE_SECONDS = 0.1


@dataclass
class Writer:
    """One client, and what it was told: it alone writes its maps."""

    number: int
    client: Client
    # The last acknowledged state of each map, by its counter; none where it is deleted.
    acknowledged: dict[str, int | None] = field(default_factory=dict)
    # The counters that were written after that, with an outcome that nobody told.
    open: dict[str, list[int | None]] = field(default_factory=dict)
    # Names, counters and versions of acknowledged creations and updates.
    writes: list[tuple[str, int, int]] = field(default_factory=list)
    deletions: list[str] = field(default_factory=list)
    unknown: int = 0
    counter: int = 0
    backwards: list[str] = field(default_factory=list)
    last_version: int = 0

    def act(self, random: Random) -> None:
        """One write."""
        name = f"storm-{self.number}-{random.randrange(MAPS_OF_ONE)}"
        is_there = self.acknowledged.get(name) is not None
        deletes = is_there and random.random() < 0.2
        self.counter += 1
        value = None if deletes else self.counter
        try:
            version = self._write(name, value, is_there=is_there)
        except (OSError, HTTPException, ApiError) as error:
            self._failed(name, value, error)
            return
        self.acknowledged[name], self.open[name] = value, []
        if value is None:
            self.deletions.append(name)
            return
        if version <= self.last_version:
            self.backwards.append(f"{name}: version {version} after {self.last_version}")
        self.last_version = version
        self.writes.append((name, value, version))

    def _write(self, name: str, value: int | None, *, is_there: bool) -> int:
        path = f"{MAPS}/{name}"
        if value is None:
            self.client.ask("DELETE", path)
            return 0
        body: Object = {"metadata": {"name": name}, "data": {"counter": str(value)}}
        body |= {"apiVersion": "v1", "kind": "ConfigMap"}
        answer = self.client.ask("PUT" if is_there else "POST", path if is_there else MAPS, body)
        return int(answer["metadata"]["resourceVersion"])

    def _failed(self, name: str, value: int | None, error: Exception) -> None:
        self.unknown += 1
        told = error.status if isinstance(error, ApiError) else 0
        if told in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT} and not self.open.get(name):
            # Nobody else writes the map, and no outcome of it is open.
            self.backwards.append(f"{name} is not what was acknowledged: {error}")
        self.open.setdefault(name, []).append(value)
        self._look(name)
        time.sleep(PAUSE_SECONDS)

    def _look(self, name: str) -> None:
        """What became of writes without an answer, by a read that is no cache's."""
        try:
            found = self.client.ask("GET", f"{MAPS}/{name}")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                return
            value, version = None, self.last_version
        except (OSError, HTTPException):
            return
        else:
            value = int(found["data"]["counter"])
            version = int(found["metadata"]["resourceVersion"])
        allowed = [self.acknowledged.get(name), *self.open.get(name, [])]
        if value not in allowed:
            self.backwards.append(f"{name} is {value}, and was {allowed}")
        self.acknowledged[name], self.open[name] = value, []
        self.last_version = max(self.last_version, version)


class Storm:
    """The writers, and the kills."""

    def __init__(self, kubernetes: Cluster) -> None:
        self.kubernetes = kubernetes
        self.writers = [Writer(number, kubernetes.client()) for number in range(WRITERS)]
        self.ending = threading.Event()

    def run(self, kills: int) -> None:
        """Kills the store so many times while all write."""
        threads = [
            threading.Thread(target=self._write, args=(writer,), daemon=True)
            for writer in self.writers
        ]
        for thread in threads:
            thread.start()
        for _ in range(kills):
            time.sleep(BETWEEN_KILLS_SECONDS)
            self.kubernetes.engine("kill", "1")
            self.kubernetes.engine("restart", "1")
        time.sleep(AFTER_SECONDS)
        self.ending.set()
        for thread in threads:
            thread.join()

    def _write(self, writer: Writer) -> None:
        random = Random(writer.number)
        while not self.ending.is_set():
            writer.act(random)

    def audit(self, watcher: Watcher) -> list[str]:
        """What was acknowledged and is not there, or was told otherwise than it was."""
        wrong = [told for writer in self.writers for told in writer.backwards]
        held = self.kubernetes.client().items(MAPS)
        for writer in self.writers:
            for name, value in writer.acknowledged.items():
                found = int(held[name]["data"]["counter"]) if name in held else None
                if found not in {value, *writer.open.get(name, [])}:
                    wrong.append(f"{name} is {found}; {value} was acknowledged")
        return wrong + self._audit_watch(watcher, held)

    def _audit_watch(self, watcher: Watcher, held: dict[str, Object]) -> list[str]:
        last = max((int(o["metadata"]["resourceVersion"]) for o in held.values()), default=0)
        until(lambda: int(watcher.version) >= last or watcher.holes, "the watch is behind")
        events = list(watcher.events)
        versions = [int(item["metadata"]["resourceVersion"]) for _, item in events]
        wrong = [f"the watch went back to {b} after {a}" for a, b in pairwise(versions) if b <= a]
        seen = {
            (item["metadata"]["name"], int(item["data"]["counter"]), version)
            for (kind, item), version in zip(events, versions, strict=True)
            if kind in {"ADDED", "MODIFIED"} and item["metadata"]["name"].startswith("storm-")
        }
        acknowledged = {write for writer in self.writers for write in writer.writes}
        wrong += [f"the watch has not seen {write}" for write in acknowledged - seen]
        gone = [item["metadata"]["name"] for kind, item in events if kind == "DELETED"]
        for writer in self.writers:
            for name in set(writer.deletions):
                if gone.count(name) < writer.deletions.count(name):
                    wrong.append(f"the watch has not seen all deletions of {name}")
        return wrong

    def told(self) -> str:
        """What was done."""
        writes = sum(len(writer.writes) + len(writer.deletions) for writer in self.writers)
        unknown = sum(writer.unknown for writer in self.writers)
        return f"{writes} writes were acknowledged, {unknown} had no answer"
