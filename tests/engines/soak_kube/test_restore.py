"""A store that is restored from a snapshot: no API server may go on with objects that it lost.

Whoever restores etcd at its old revisions has API servers that serve lost objects from their caches
without an error (etcd issue 16028).
"""

from __future__ import annotations

import shutil
import subprocess
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import MAPS, ApiError, Cluster, config_map, until
from clusters import HELIO, cluster

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT, LOST, CHANGED, DELETED = 50, 20, 10, 10
REPLICAS = 20
# Where a restored store's revisions begin at the least.
JUMP = 1 << 36


def test_caches_and_controllers_follow_a_restored_store() -> None:
    with cluster("interval") as kubernetes:
        client = kubernetes.client()
        for number in range(KEPT):
            client.ask("POST", MAPS, config_map(f"kept-{number}", "first"))
        folder = Path(kubernetes.engine.started["dir"]) / "node-1"
        store = kubernetes.engine.started["servers"][0]
        helio("snapshot", folder / "saved", "--endpoint", f"http://127.0.0.1:{store['port']}")
        for number in range(LOST):
            client.ask("POST", MAPS, config_map(f"lost-{number}", "first"))
        for number in range(CHANGED):
            client.ask("PUT", f"{MAPS}/kept-{number}", config_map(f"kept-{number}", "second"))
        for number in range(CHANGED, CHANGED + DELETED):
            client.ask("DELETE", f"{MAPS}/kept-{number}")
        with kubernetes.watching(MAPS) as watcher:
            kubernetes.engine("kill", "1")
            shutil.move(folder / "data", folder / "lost")
            helio("restore", folder / "saved", "--dir", folder / "data")
            kubernetes.engine("restart", "1")
            kept = {f"kept-{number}": "first" for number in range(KEPT)}
            for how in ("", "?resourceVersion=0"):
                until(lambda how=how: answered(lambda: values(kubernetes, how)) == kept, how)
            # The watch is told that it cannot go on, so that its client lists again.
            until(lambda: watcher.holes, "the watch goes on")
        made = kubernetes.client().ask("POST", MAPS, config_map("after", "first"))
        assert int(made["metadata"]["resourceVersion"]) > JUMP
        kubernetes.kubectl("create", "deployment", "d", "--image=none", f"--replicas={REPLICAS}")
        asked = "/apis/apps/v1/namespaces/default/deployments/d"
        until(
            lambda: client.ask("GET", asked)["status"].get("readyReplicas") == REPLICAS,
            "the controllers do not work on",
        )
        assert kubernetes.all_run()


def helio(command: str, *arguments: object) -> None:
    """A command of `helio state`, which succeeds."""
    whole = [HELIO, "state", command, *map(str, arguments)]
    subprocess.run(whole, check=True, capture_output=True)


def values(kubernetes: Cluster, how: str) -> dict[str, str]:
    """The maps of this test: from the store, or from the cache."""
    items = kubernetes.client().items(MAPS + how).items()
    return {name: item["data"]["value"] for name, item in items if "value" in item["data"]}


def answered(ask: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What is answered; nothing while the server has lost the store."""
    try:
        return ask()
    except (OSError, HTTPException, ApiError):
        return {}
