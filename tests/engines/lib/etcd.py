"""etcd: one server, and the clients etcdctl and etcdutl, built from their Go modules."""

from argparse import ArgumentParser, Namespace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from lib import go_modules
from lib.go_modules import GoPrograms
from lib.kind import Node, Plan, make_node_folder
from lib.ports import HOST, free_ports

TIMEOUT_SECONDS = 5.0


class Etcd:
    """The kind of engine."""

    lock = GoPrograms(
        "etcd",
        "go.etcd.io/etcd/server/v3",
        {
            "etcd": "./etcd",
            "etcdctl": "go.etcd.io/etcd/etcdctl/v3",
            "etcdutl": "go.etcd.io/etcd/etcdutl/v3",
        },
    )
    processes = "servers"
    mark = "--logger=zap"
    start_seconds = 60.0

    def options(self, parser: ArgumentParser) -> None:
        """Adds what only this kind has."""
        parser.add_argument(
            "--no-fsync", action="store_true", help="acknowledge writes before they are on disk"
        )

    def check(self, _: Namespace) -> None:
        """Whether it can be built here."""
        go_modules.check()

    def plan(self, folder: Path, options: Namespace) -> Plan:
        """The only server."""
        programs = {name: str(file) for name, file in self.lock.programs().items()}
        port, peers = free_ports(2)
        url, peer_url = f"http://{HOST}:{port}", f"http://{HOST}:{peers}"
        make_node_folder(folder, 1)
        command = [
            programs["etcd"],
            self.mark,
            "--name=node-1",
            "--data-dir=data",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=node-1={peer_url}",
            *(["--unsafe-no-fsync"] if options.no_fsync else []),
        ]
        return Plan([Node(1, port, port, command)], url, {"programs": programs})

    def ready(self, _: Path, nodes: list[Node]) -> bool:
        """Whether it has elected itself."""
        (node,) = nodes
        connection = HTTPConnection(HOST, node.probe, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def finish(self, plan: Plan) -> None:
        """There is nothing more to do."""
