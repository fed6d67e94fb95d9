"""Kubernetes itself on the store: pods at once, open watches, compared caches, kills in a storm.

The API server compares its caches with the store every five to eight minutes, and ends itself where
they differ; HELIO_KUBE_COMPARISONS=2 has the last test wait for two comparisons of each resource.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from cluster import MAPS, PODS, Cluster, Watcher, pod, together, until
from clusters import cluster
from storm import Storm

# The prototype that the store follows failed above 50.
PODS_AT_ONCE = 100
ROUNDS = 2
# What an API server of 1.36 was seen to open.
OPEN_WATCHES = 58
KILLS = 8
COMPARISONS = int(os.environ.get("HELIO_KUBE_COMPARISONS", "0"))
COMPARISON_SECONDS = 480.0


def test_kubectl_creates_gets_and_deletes() -> None:
    with cluster("interval") as kubernetes:
        version = kubernetes.kubectl("version")
        assert version.count(f"v{kubernetes.access['version']}") == 2, version
        kubernetes.kubectl("create", "configmap", "lamp", "--from-literal=state=on")
        assert kubernetes.kubectl("get", "cm", "lamp", "-o", "jsonpath={.data.state}") == "on"
        kubernetes.kubectl("delete", "configmap", "lamp")
        assert "lamp" not in kubernetes.kubectl("get", "configmap", "-o", "name")
        assert kubernetes.all_run()


# Once with clientv3 straight at the store, once with what counts its watches between them.
@pytest.mark.parametrize(
    ("durability", "options"), [("disk", []), ("interval", ["--tap"])], ids=["disk", "interval"]
)
def test_a_hundred_pods_at_once_come_and_go_twice_and_a_storm_loses_nothing(
    durability: str, options: list[str]
) -> None:
    with cluster(durability, *options) as kubernetes:
        with kubernetes.watching(PODS) as watcher:
            for round_ in range(ROUNDS):
                launch_and_delete(kubernetes, watcher, round_)
        assert watcher.holes == []
        if options:
            assert kubernetes.counts()["open watches"] >= OPEN_WATCHES
        storm(kubernetes, durability)
        compare(kubernetes)
        assert kubernetes.all_run()


def launch_and_delete(kubernetes: Cluster, watcher: Watcher, round_: int) -> None:
    """All pods at the same instant; what was acknowledged runs, and goes, and nothing else does."""
    names = [f"pod-{round_}-{number}" for number in range(PODS_AT_ONCE)]
    together(PODS_AT_ONCE, lambda n: _ask(kubernetes, "POST", PODS, pod(names[n])))
    client = kubernetes.client()
    until(
        lambda: (
            [item["status"]["phase"] for item in client.items(PODS).values()]
            == ["Running"] * PODS_AT_ONCE
        ),
        f"{PODS_AT_ONCE} pods do not run",
    )
    assert set(client.items(PODS)) == set(names)
    together(PODS_AT_ONCE, lambda n: _ask(kubernetes, "DELETE", f"{PODS}/{names[n]}"))
    until(lambda: not client.items(PODS), "pods do not go")

    def seen() -> bool:
        of_round = Counter(
            kind for kind, item in list(watcher.events) if item["metadata"]["name"] in names
        )
        return of_round["ADDED"] == of_round["DELETED"] == PODS_AT_ONCE

    until(seen, "the watch has not seen each pod come and go once")


def _ask(
    kubernetes: Cluster, method: str, path: str, body: dict[str, object] | None = None
) -> None:
    client = kubernetes.client()
    client.ask(method, path, body)
    client.close()


def storm(kubernetes: Cluster, durability: str) -> None:
    """The store is killed in a storm of writes through the API, and nothing it said is lost."""
    with kubernetes.watching(MAPS) as watcher:
        writing = Storm(kubernetes)
        writing.run(KILLS)
        lost = writing.audit(watcher)
    print(writing.told())
    name = f"Kubernetes' store, {durability}"
    survived = KILLS if kubernetes.all_run() else 0
    print(f"storm: {name}: tried {KILLS}, survived {survived}, lost {len(lost)}, unreported 0")
    assert lost == []
    assert watcher.holes == []


def compare(kubernetes: Cluster) -> None:
    """No cache differs from the store; where asked, all were compared so many times."""

    def compared() -> bool:
        found = kubernetes.comparisons().values()
        return bool(found) and all(of.get("success", 0) >= COMPARISONS for of in found)

    if COMPARISONS > 0:
        until(compared, "not all caches were compared", COMPARISON_SECONDS * COMPARISONS, 5.0)
    comparisons = kubernetes.comparisons()
    assert [name for name, of in comparisons.items() if of.get("failure")] == []
    print(f"comparisons: {comparisons}")
