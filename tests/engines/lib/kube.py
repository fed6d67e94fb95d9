"""A store with etcd's API, etcd's or Heliograph's, alone or with Kubernetes on it.

Everything is built from Go modules, but for Heliograph's program, which the caller names.
"""

from argparse import ArgumentParser, Namespace
from http.client import HTTPConnection
from pathlib import Path

from lib import control_plane, go_modules
from lib.control_plane import answers_ok
from lib.errors import FailureError
from lib.go_modules import SOURCES, GoPrograms
from lib.kind import Node, Plan, make_node_folder
from lib.ports import HOST, free_ports

NAME = "--name=node-1"
STORE, TAP = 1, 6
TOOLS = GoPrograms(
    "etcd-tools",
    "go.etcd.io/etcd/server/v3",
    {"etcd-tap": "./tap", "histories": "./histories"},
    is_own=True,
)
# etcd's API on SQL databases, beside which `helio state bench` measures; no start needs it.
KINE = GoPrograms(
    "kine",
    "github.com/k3s-io/kine",
    {"kine": "github.com/k3s-io/kine"},
    sources=SOURCES.parent / "kine",
    needs_c=True,
)


class Kube:
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
    marks: tuple[str, ...] = (NAME, control_plane.MARK)
    # Of a stage, on a machine that is busy with much else.
    start_seconds = 300.0

    def options(self, parser: ArgumentParser) -> None:
        """Adds what only this kind has."""
        parser.add_argument(
            "--no-fsync", action="store_true", help="etcd acknowledges before writes are on disk"
        )
        parser.add_argument(
            "--helio", type=Path, metavar="PROGRAM", help="its `state serve` takes etcd's place"
        )
        parser.add_argument("--durability", choices=["disk", "interval"], help="of --helio [disk]")
        parser.add_argument(
            "--kubernetes", action="store_true", help="a control plane and simulated nodes, too"
        )
        parser.add_argument(
            "--tap", action="store_true", help="a proxy before the store, which counts requests"
        )

    def check(self, options: Namespace) -> None:
        """Whether the options fit each other, and it can be built here."""
        if options.helio is None and options.durability:
            raise FailureError("--durability is for --helio; etcd has --no-fsync")
        if options.helio is not None and options.no_fsync:
            raise FailureError("--no-fsync is for etcd; --helio has --durability")
        if options.helio is not None and not options.helio.is_file():
            raise FailureError(f"--helio: there is no file {options.helio}")
        if options.helio is None or options.kubernetes or options.tap:
            go_modules.check()
        if options.kubernetes:
            control_plane.check()

    def plan(self, folder: Path, options: Namespace) -> Plan:
        """The store, and what is asked for on top of it."""
        programs: dict[str, str] = {}
        nodes = [self._helio(folder, options) if options.helio else self._etcd(folder, programs)]
        if options.no_fsync:
            nodes[0].command.append("--unsafe-no-fsync")
        url = f"http://{HOST}:{nodes[0].port}"
        details: dict[str, object] = {"programs": programs}
        if options.tap:
            nodes.append(_tap(folder, nodes[0], programs))
            url = f"http://{HOST}:{nodes[-1].port}"
            details["counts_url"] = f"http://{HOST}:{nodes[-1].probe}/counts"
        if options.kubernetes:
            more, kubernetes = control_plane.plan(folder, url, programs)
            nodes += more
            details["kubernetes"] = kubernetes
        return Plan(nodes, url, details)

    def _etcd(self, folder: Path, programs: dict[str, str]) -> Node:
        programs |= {name: str(file) for name, file in self.lock.programs().items()}
        port, peers = free_ports(2)
        url, peer_url = f"http://{HOST}:{port}", f"http://{HOST}:{peers}"
        make_node_folder(folder, STORE)
        command = [
            programs["etcd"],
            NAME,
            "--logger=zap",
            "--data-dir=data",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=node-1={peer_url}",
        ]
        return Node(STORE, port, port, command)

    def _helio(self, folder: Path, options: Namespace) -> Node:
        (port,) = free_ports(1)
        made = make_node_folder(folder, STORE)
        command = [
            str(options.helio.resolve()),
            *("state", "serve", NAME, f"--dir={made / 'data'}", f"--listen={HOST}:{port}"),
            f"--durability={options.durability or 'disk'}",
        ]
        return Node(STORE, port, port, command)

    def ready(self, folder: Path, nodes: list[Node]) -> bool:
        """Whether the store has a leader, and all others serve."""
        return all(
            answers_ok(HTTPConnection(HOST, node.probe, timeout=control_plane.TIMEOUT_SECONDS))
            if node.node in {STORE, TAP}
            else control_plane.ready(folder, node)
            for node in nodes
        )

    def finish(self, plan: Plan) -> None:
        """Kubernetes gets its nodes."""
        if "kubernetes" in plan.details:
            control_plane.finish(plan.details["kubernetes"])


def build(_kind: object, _options: Namespace) -> None:
    """Builds all that a start or a bench may need, which takes many minutes, once."""
    go_modules.check()
    for programs in (Kube.lock, TOOLS, KINE, control_plane.PROGRAMS):
        programs.programs()


def _tap(folder: Path, store: Node, programs: dict[str, str]) -> Node:
    programs |= {name: str(file) for name, file in TOOLS.programs().items()}
    port, probe = free_ports(2)
    make_node_folder(folder, TAP)
    where = [f"-listen={HOST}:{port}", f"-counts={HOST}:{probe}", f"-store={HOST}:{store.port}"]
    return Node(TAP, port, probe, [programs["etcd-tap"], control_plane.MARK, *where], stage=1)
