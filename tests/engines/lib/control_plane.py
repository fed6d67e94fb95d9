"""Kubernetes' control plane as its own programs, and nodes that KWOK simulates.

The API server compares its caches with the store, and ends itself where they differ.
"""

import json
import secrets
import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from lib import certificates
from lib.errors import FailureError
from lib.go_modules import SOURCES, GoPrograms
from lib.kind import Node, make_node_folder
from lib.ports import HOST, free_ports
from lib.process import until

# All programs of Kubernetes and KWOK have this option.
MARK = "--v=1"
TIMEOUT_SECONDS = 5.0
API_SERVER, CONTROLLERS, SCHEDULER, KWOK = 2, 3, 4, 5
NODES = 10
NODE_SECONDS = 60.0
# What the server says of itself to clients inside of the cluster, of which there are none: an
# address for documentation, as it refuses those of the loopback.
ADVERTISED = "192.0.2.1"
SERVICES = "10.96.0.0/16"
# Controllers and scheduler end when they could not renew their leases for 10 s; an outage on a busy
# machine may last longer.
PATIENCE = ["--leader-elect-lease-duration=40s", "--leader-elect-renew-deadline=35s"]
STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
STAMPS = {"gitVersion": "v{version}", "gitMajor": "{major}", "gitMinor": "{minor}"}
PROGRAMS = GoPrograms(
    "kubernetes",
    "k8s.io/kubernetes",
    {
        **{
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    },
    sources=SOURCES.parent / "kubernetes",
    linker=" ".join(
        ["-s -w", *(f"-X {at}.{name}={value}" for at in STAMPED for name, value in STAMPS.items())]
    ),
)


def check() -> None:
    """Refuses a machine without openssl."""
    certificates.check()


def plan(folder: Path, store: str, programs: dict[str, str]) -> tuple[list[Node], dict[str, Any]]:
    """The control plane's processes on a store's URL, and what its clients need."""
    programs |= {name: str(file) for name, file in PROGRAMS.programs().items()}
    ports = free_ports(4)
    access = _write_access(folder / "kubernetes", ports[0])
    (folder / "kubernetes" / "kwok.yaml").write_text((PROGRAMS.sources / "kwok.yaml").read_text())
    commands = {
        API_SERVER: [*_api_server(folder / "kubernetes", store), f"--secure-port={ports[0]}"],
        CONTROLLERS: [*_controllers(folder / "kubernetes"), f"--secure-port={ports[1]}"],
        SCHEDULER: [*_client("kube-scheduler", folder / "kubernetes"), f"--secure-port={ports[2]}"],
        KWOK: [*_kwok(folder / "kubernetes"), f"--server-address={HOST}:{ports[3]}"],
    }
    nodes = []
    for (number, (program, *options)), port in zip(commands.items(), ports, strict=True):
        make_node_folder(folder, number)
        checked = ["env", "KUBE_WATCHCACHE_CONSISTENCY_CHECKER=true"]
        command = [*(checked if number == API_SERVER else []), programs[program], MARK, *options]
        nodes.append(Node(number, port, port, command, stage=2 if number == API_SERVER else 3))
    return nodes, access


def _write_access(folder: Path, port: int) -> dict[str, Any]:
    """Writes the keys and tokens; what clients need of them."""
    folder.mkdir(mode=0o700)
    certificates.make(folder / "tls")
    token, url = secrets.token_hex(16), f"https://{HOST}:{port}"
    (folder / "tokens.csv").write_text(f"{token},administrator,administrator,system:masters\n")
    authority, config = folder / "tls" / "ca.crt", folder / "kubeconfig"
    name = {"name": "heliograph"}
    cluster = {"server": url, "certificate-authority": str(authority)}
    context = {"cluster": name["name"], "user": name["name"]}
    held = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [name | {"cluster": cluster}],
        "users": [name | {"user": {"token": token}}],
        "contexts": [name | {"context": context}],
        "current-context": name["name"],
    }
    # JSON is YAML, too.
    config.write_text(json.dumps(held, indent=1))
    access = {"url": url, "token": token, "ca": str(authority), "kubeconfig": str(config)}
    return access | {"version": PROGRAMS.version(), "nodes": NODES}


def _api_server(folder: Path, store: str) -> list[str]:
    tls = folder / "tls"
    certificate, key = tls / "server.crt", tls / "server.key"
    return [
        "kube-apiserver",
        f"--etcd-servers={store}",
        f"--bind-address={HOST}",
        f"--advertise-address={ADVERTISED}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--cert-dir={tls}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificate}",
        f"--service-account-signing-key-file={key}",
    ]


def _client(program: str, folder: Path) -> list[str]:
    access = [f"--kubeconfig={folder / 'kubeconfig'}", f"--bind-address={HOST}"]
    return [program, *access, *PATIENCE]


def _controllers(folder: Path) -> list[str]:
    return [
        *_client("kube-controller-manager", folder),
        f"--root-ca-file={folder / 'tls' / 'ca.crt'}",
        f"--service-account-private-key-file={folder / 'tls' / 'server.key'}",
        "--use-service-account-credentials",
    ]


def _kwok(folder: Path) -> list[str]:
    return [
        "kwok",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--config={folder / 'kwok.yaml'}",
        "--manage-all-nodes",
        "--node-lease-duration-seconds=40",
    ]


def ready(folder: Path, node: Node) -> bool:
    """Whether a process serves: all but KWOK do so with TLS."""
    if node.node == KWOK:
        return answers_ok(HTTPConnection(HOST, node.probe, timeout=TIMEOUT_SECONDS), "/healthz")
    # Controllers and scheduler make certificates of their own in memory.
    context = ssl._create_unverified_context()
    if node.node == API_SERVER:
        context = ssl.create_default_context(cafile=folder / "kubernetes" / "tls" / "ca.crt")
    connection = HTTPSConnection(HOST, node.probe, timeout=TIMEOUT_SECONDS, context=context)
    return answers_ok(connection, "/readyz" if node.node == API_SERVER else "/healthz")


def answers_ok(connection: HTTPConnection, path: str = "/readyz") -> bool:
    """Whether a server answers a probe, and is well."""
    try:
        connection.request("GET", path)
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def finish(access: dict[str, Any]) -> None:
    """Gives the cluster its nodes, and waits until they and the first account are there."""
    for number in range(1, access["nodes"] + 1):
        _request(access, "POST", "/api/v1/nodes", _node(f"node-{number}"))
    until(
        lambda: _is_usable(access),
        NODE_SECONDS,
        lambda: f"{access['nodes']} nodes are not ready, or there is no account for pods",
    )


def _node(name: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _is_usable(access: dict[str, Any]) -> bool:
    nodes = _request(access, "GET", "/api/v1/nodes")["items"]
    ready = [
        node
        for node in nodes
        if not node["spec"].get("taints")
        and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", [])
        )
    ]
    accounts = _request(access, "GET", "/api/v1/namespaces/default/serviceaccounts")["items"]
    return len(ready) == access["nodes"] and bool(accounts)


def _request(access: dict[str, Any], method: str, path: str, body: Any = None) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=access["ca"])
    host = access["url"].removeprefix("https://")
    connection = HTTPSConnection(host, timeout=TIMEOUT_SECONDS, context=context)
    headers = {"Authorization": f"Bearer {access['token']}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        said = response.read()
    finally:
        connection.close()
    if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
        raise FailureError(f"{method} {path}: {response.status} {said.decode(errors='replace')}")
    answer: dict[str, Any] = json.loads(said)
    return answer
