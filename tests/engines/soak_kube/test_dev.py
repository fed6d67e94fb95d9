"""`helio dev kube`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from cluster import Client
from clusters import HELIO, needs_kubernetes

NOT_FOUND, REFUSED = 3, 4


def test_a_cluster_starts_is_told_of_and_leaves_nothing(tmp_path: Path) -> None:
    needs_kubernetes()
    # The cache is the user's, as nothing is to be built again.
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}

    def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(HELIO), "dev", "kube", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    try:
        started = dev("start", "--json", "--durability", "interval")
        assert started.returncode == 0, started.stderr
        told = json.loads(started.stdout)
        assert (
            str(HELIO.resolve()) in Path(f"/proc/{told['servers'][0]['pid']}/cmdline").read_text()
        )
        assert len(Client(told["kubernetes"]).items("/api/v1/nodes")) == told["kubernetes"]["nodes"]
        assert json.loads(dev("status", "--json").stdout)["url"] == told["url"]
        again = dev("start")
        assert (again.returncode, "helio dev kube stop" in again.stderr) == (REFUSED, True)
    finally:
        dev("stop")
    assert not (tmp_path / "heliograph" / "dev-kube").exists()
    gone = dev("status")
    assert (gone.returncode, "helio dev kube start" in gone.stderr) == (NOT_FOUND, True)
