"""Starts, restarts and stops a real etcd, and reads what its own client writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from conftest import Engine, Program


def etcdctl(engine: Engine, *arguments: str) -> str:
    client = [engine.started["programs"]["etcdctl"], "--endpoints", engine.started["url"]]
    return subprocess.run([*client, *arguments], capture_output=True, text=True, check=True).stdout


def test_a_key_outlives_a_kill_and_the_folder_goes(tmp_path: Path) -> None:
    with Program("kube", {"TMPDIR": str(tmp_path)}).running() as engine:
        assert etcdctl(engine, "put", "k", "v") == "OK\n"
        engine("kill", "1")
        engine("restart", "1")
        assert etcdctl(engine, "get", "k") == "k\nv\n"
        folder = Path(engine.started["dir"])
    assert not folder.exists()
