"""A client of a cluster's API as the tests need it: requests, a watch, kubectl, figures."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

if TYPE_CHECKING:
    from conftest import Engine

REQUEST_SECONDS = 15.0
# Generous: nothing here is a test of speed.
PATIENCE_SECONDS = 180.0
POLL_SECONDS = 0.1
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"

Object = dict[str, Any]


class ApiError(Exception):
    """The server refused a request."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


class Cluster:
    """A running cluster; each client of it is of one thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.access: dict[str, Any] = engine.started["kubernetes"]
        self.programs: dict[str, str] = engine.started["programs"]

    def client(self) -> Client:
        """A new client with a connection of its own."""
        return Client(self.access)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """What kubectl prints, which must succeed."""
        command = [self.programs["kubectl"], "--kubeconfig", self.access["kubeconfig"], *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def counts(self) -> dict[str, int]:
        """What the tap has counted."""
        with urlopen(self.engine.started["counts_url"], timeout=REQUEST_SECONDS) as answer:
            counted: dict[str, int] = json.load(answer)
            return counted

    def comparisons(self) -> dict[str, dict[str, int]]:
        """How often caches were compared with the store: by resource, then by outcome."""
        found: dict[str, dict[str, int]] = {}
        line = re.compile(r"^apiserver_storage_consistency_checks_total\{(.*)\} (\S+)$", re.M)
        for labels, number in line.findall(self.client().text("/metrics")):
            of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            by_outcome = found.setdefault(f"{of['resource']}.{of['group']}", {})
            by_outcome[of["status"]] = int(float(number))
        return found

    def all_run(self) -> bool:
        """Whether all of the cluster's processes run."""
        return {node["state"] for node in self.engine.status()["servers"]} == {"running"}

    @contextmanager
    def watching(self, path: str) -> Iterator[Watcher]:
        """A watch of a path, from now on."""
        watcher = Watcher(self.client(), path)
        try:
            yield watcher
        finally:
            watcher.end()


class Client:
    """Requests over one connection, which is made anew where it breaks."""

    def __init__(self, access: dict[str, Any]) -> None:
        self.access = access
        self.context = ssl.create_default_context(cafile=access["ca"])
        self.connection: HTTPSConnection | None = None

    def open(self, method: str, path: str, body: Object | None = None) -> HTTPResponse:
        """Makes a request; its answer is still to be read."""
        if self.connection is None:
            host = self.access["url"].removeprefix("https://")
            self.connection = HTTPSConnection(host, timeout=REQUEST_SECONDS, context=self.context)
        headers = {"Authorization": f"Bearer {self.access['token']}"}
        headers["Content-Type"] = "application/json"
        try:
            self.connection.request(method, path, json.dumps(body) if body else None, headers)
            return self.connection.getresponse()
        except (OSError, HTTPException):
            self.close()
            raise

    def text(self, path: str) -> str:
        """What the server answers."""
        return self._read(self.open("GET", path))

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        """Makes a request, and reads its answer."""
        answer: Object = json.loads(self._read(self.open(method, path, body)))
        return answer

    def _read(self, response: HTTPResponse) -> str:
        try:
            said = response.read().decode()
        except (OSError, HTTPException):
            self.close()
            raise
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(response.status, said)
        return said

    def items(self, path: str) -> dict[str, Object]:
        """All objects of a path by name, as the store has them now."""
        return {item["metadata"]["name"]: item for item in self.ask("GET", path)["items"]}

    def close(self) -> None:
        """Closes the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Watcher:
    """All events of a path, by a thread that opens the watch again where it ends."""

    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = path
        self.version: str = client.ask("GET", path)["metadata"]["resourceVersion"]
        self.events: list[tuple[str, Object]] = []
        # Whether the server could not continue it where it had ended.
        self.holes: list[str] = []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.ending.is_set():
            try:
                asked = f"{self.path}?watch=1&resourceVersion={self.version}&timeoutSeconds=600"
                response = self.client.open("GET", f"{asked}&allowWatchBookmarks=true")
                if response.status >= HTTPStatus.BAD_REQUEST:
                    self._fail(json.loads(response.read()))
                    time.sleep(0.1)
                    continue
                for line in response:
                    if self.ending.is_set() or not self._take(json.loads(line)):
                        break
            except (OSError, HTTPException, ValueError):
                time.sleep(0.1)
            self.client.close()

    def _take(self, event: dict[str, Any]) -> bool:
        if event["type"] == "ERROR":
            self._fail(event["object"])
            return False
        self.version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self.events.append((event["type"], event["object"]))
        return True

    def _fail(self, status: Object) -> None:
        if status.get("code") == HTTPStatus.GONE:
            self.holes.append(str(status))
            self.ending.set()

    def end(self) -> None:
        """Ends it; the thread ends when its connection does."""
        self.ending.set()


def until(
    happened: Callable[[], object],
    what: str,
    seconds: float = PATIENCE_SECONDS,
    every: float = POLL_SECONDS,
) -> None:
    """Waits for what nobody announces."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(every)


def together(count: int, act: Callable[[int], None]) -> None:
    """Has threads act at the same instant, all of which must succeed."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def one(number: int) -> None:
        try:
            barrier.wait()
            act(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def pod(name: str) -> Object:
    """A pod, which a simulated node says it runs."""
    containers = [{"name": "c", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0},
    }


def config_map(name: str, value: object) -> Object:
    """An object that nobody looks after."""
    named = {"metadata": {"name": name}, "data": {"value": str(value)}}
    return {"apiVersion": "v1", "kind": "ConfigMap", **named}
