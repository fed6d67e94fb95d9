"""What `kube` refuses, how it orders its processes, and what of it needs no build."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from conftest import FAILED, Program
from lib import certificates
from lib.control_plane import PROGRAMS, _api_server, _write_access
from lib.engine import Engine
from lib.go_modules import GoPrograms
from lib.kind import Node, Plan, make_node_folder
from lib.kube import Kube


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--durability", "disk"], "--durability is for --helio"),
        (["--helio", sys.executable, "--no-fsync"], "--no-fsync is for etcd"),
        (["--helio", "/nowhere/helio"], "there is no file /nowhere/helio"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    done = Program("kube", {"TMPDIR": str(tmp_path)})("start", *options)
    assert done.returncode == FAILED
    assert complaint in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_kubernetes_is_of_one_release() -> None:
    required = (PROGRAMS.sources / "go.mod").read_text()
    release = PROGRAMS.version().partition(".")[2]
    parts = re.findall(r"^\t(\S+) => (\S+) v0\.(\S+)$", required, re.M)
    assert len(parts) > 30
    assert {(name, of) for name, other, of in parts if name == other} == {
        (name, release) for name, _, _ in parts
    }
    assert f"component-base/version.gitVersion=v{PROGRAMS.version()} " in PROGRAMS.flags()


def test_programs_of_our_own_are_built_anew_when_their_text_changes(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("require (\n\texample.test/m v1.2.3\n)\n")
    own = GoPrograms("own", "example.test/m", {"p": "./p"}, sources=tmp_path, is_own=True)
    others = GoPrograms("others", "example.test/m", {"p": "./p"}, sources=tmp_path)
    before = own._edition(), others._edition()
    (tmp_path / "main.go").write_text("package main\n")
    assert own._edition() != before[0]
    assert others._edition() == before[1]


def test_a_stage_starts_when_the_one_before_serves(tmp_path: Path) -> None:
    class Staged(Kube):
        """Two processes: the second ends at once where the first does not serve yet."""

        marks = ("staged",)

        def ready(self, folder: Path, nodes: list[Node]) -> bool:
            return all((folder / f"node-{node.node}" / "serves").exists() for node in nodes)

    first = "import time; time.sleep(0.5); open('serves', 'w'); time.sleep(60)"
    second = "import time; open('../node-1/serves'); open('serves', 'w'); time.sleep(60)"
    for number in (1, 2):
        make_node_folder(tmp_path, number)
    nodes = [
        Node(2, 0, 0, [sys.executable, "-c", second, "staged"], stage=1),
        Node(1, 0, 0, [sys.executable, "-c", first, "staged"]),
    ]
    kind = Staged()
    kind.plan = lambda *_: Plan(nodes, "")  # type: ignore[method-assign]
    engine = Engine(kind, tmp_path)
    try:
        engine.launch_somewhere(Namespace(shared=False))
        assert {node.state() for node in engine.record().plan.nodes} == {"running"}
    finally:
        engine.stop()


def test_what_clients_need_is_the_users_own_to_read(tmp_path: Path) -> None:
    certificates.check()
    access = _write_access(tmp_path / "kubernetes", 6443)
    assert access["url"] == "https://127.0.0.1:6443"
    assert access["token"] in (tmp_path / "kubernetes" / "tokens.csv").read_text()
    assert access["token"] in Path(access["kubeconfig"]).read_text()
    assert (tmp_path / "kubernetes").stat().st_mode & 0o077 == 0
    server = _api_server(tmp_path / "kubernetes", "http://127.0.0.1:2379")
    assert "--etcd-servers=http://127.0.0.1:2379" in server
