"""Apicurio Registry: a schema registry with Confluent's API, one process, its tables in a file."""

import tarfile
import tempfile
from argparse import ArgumentParser, Namespace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from lib.java import find_java
from lib.kind import JVM, Node, Plan, make_node_folder
from lib.maven import Lock
from lib.ports import HOST, free_ports

API = "/apis/ccompat/v7"
TIMEOUT_SECONDS = 5.0
OLDEST_JAVA = 21
HEAP = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class Apicurio:
    """The kind of engine."""

    lock = Lock("apicurio")
    processes = "servers"
    marks: tuple[str, ...] = (JVM[0],)
    start_seconds = 180.0

    def options(self, parser: ArgumentParser) -> None:
        """It has none of its own."""

    def check(self, options: Namespace) -> None:
        """Whether Java is here."""
        find_java(OLDEST_JAVA)

    def plan(self, folder: Path, options: Namespace) -> Plan:
        """The registry's only process."""
        port, management = free_ports(2)
        tables = make_node_folder(folder, 1) / "tables"
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": str(port),
            "quarkus.management.host": HOST,
            "quarkus.management.port": str(management),
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            # H2 keeps an acknowledged commit in memory for half a second otherwise.
            "apicurio.datasource.url": f"jdbc:h2:file:{tables};WRITE_DELAY=0",
        }
        flags = [f"-D{name}={value}" for name, value in settings.items()]
        program = ["-jar", str(self._program() / "quarkus-run.jar")]
        command = [find_java(OLDEST_JAVA), *HEAP, *JVM, *flags, *program]
        return Plan([Node(1, port, port, command)], f"http://{HOST}:{port}{API}")

    def _program(self) -> Path:
        """The unpacked distribution, which takes its name in the cache when it is whole."""
        with self.lock.cache() as cache:
            program = cache / "program"
            if program.exists():
                return program
            (archive,) = self.lock.fetch(cache)
            with tempfile.TemporaryDirectory(dir=cache) as name, tarfile.open(archive) as packed:
                # The archive is the one of the lock file; Debian 12's Python knows no filter.
                packed.extraction_filter = lambda member, _: member
                packed.extractall(name)
                (jar,) = Path(name).rglob("quarkus-run.jar")
                jar.parent.rename(program)
            archive.unlink()
            return program

    def ready(self, folder: Path, nodes: list[Node]) -> bool:
        """Whether the registry lists its subjects."""
        (node,) = nodes
        connection = HTTPConnection(HOST, node.probe, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", f"{API}/subjects")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def finish(self, plan: Plan) -> None:
        """There is nothing more to do."""
