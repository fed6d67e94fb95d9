"""What each call of the API costs the store, in requests, as the tap counts them: a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cluster import MAPS, PODS, Client, Cluster, Object, config_map, pod, until
from clusters import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 10
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICAS = 3
# How long a count must stay as it is before the next call is made.
QUIET_SECONDS = 1.0

Costs = dict[str, float]


class Table:
    """Costs by call."""

    def __init__(self, kubernetes: Cluster) -> None:
        self.kubernetes = kubernetes
        self.rows: dict[str, Costs] = {}

    def row(self, name: str, of: tuple[str, ...], act: Callable[[int], object]) -> Costs:
        """Makes a call a few times; what one costs, of requests that name these resources."""
        before = self._settled(of)
        for number in range(TIMES):
            act(number)
        after = self._settled(of)
        costs = {
            shape: (count - before.get(shape, 0)) / TIMES
            for shape, count in after.items()
            if count != before.get(shape, 0)
        }
        self.rows[name] = costs
        return costs

    def _settled(self, of: tuple[str, ...]) -> dict[str, int]:
        """The counts, when nothing more comes of what was begun."""
        while True:
            first = self._of(of)
            time.sleep(QUIET_SECONDS)
            if self._of(of) == first:
                return first

    def _of(self, of: tuple[str, ...]) -> dict[str, int]:
        counts = self.kubernetes.counts().items()
        return {shape: n for shape, n in counts if shape.endswith(tuple(f" {name}" for name in of))}

    def told(self) -> str:
        """The table in Markdown."""
        lines = ["| call | requests to the store |", "| --- | --- |"]
        for name, costs in self.rows.items():
            parts = [f"{count:g} {shape}" for shape, count in sorted(costs.items())]
            lines.append(f"| {name} | {', '.join(parts) or 'none'} |")
        return "\n".join(lines)


def test_a_call_costs_the_store_few_requests() -> None:
    with cluster("interval", "--tap") as kubernetes:
        table, client = Table(kubernetes), kubernetes.client()
        assert plain_calls(table, client)["update"]["Txn update configmaps"] == 1.0
        pods(table, client)
        deployments(table, client)
        print(f"\n{table.told()}")


def plain_calls(table: Table, client: Client) -> dict[str, Costs]:
    """Calls on objects that nobody else looks after."""
    of = ("configmaps", "progress")
    name = "call-{}".format
    rows = {
        "create": lambda n: client.ask("POST", MAPS, config_map(name(n), 0)),
        "get": lambda n: client.ask("GET", f"{MAPS}/{name(n)}"),
        "get, resourceVersion=0": lambda n: client.ask(
            "GET", f"{MAPS}/{name(n)}?resourceVersion=0"
        ),
        "update": lambda n: client.ask("PUT", f"{MAPS}/{name(n)}", config_map(name(n), 1 + n)),
        "update without a change": lambda n: client.ask(
            "PUT", f"{MAPS}/{name(n)}", config_map(name(n), 1 + n)
        ),
        "list": lambda _: client.ask("GET", MAPS),
        "list, limit=2": lambda _: client.ask("GET", f"{MAPS}?limit=2"),
        "list, resourceVersion=0": lambda _: client.ask("GET", f"{MAPS}?resourceVersion=0"),
        "delete": lambda n: client.ask("DELETE", f"{MAPS}/{name(n)}"),
    }
    return {call: table.row(f"{call} (config map)", of, act) for call, act in rows.items()}


def pods(table: Table, client: Client) -> None:
    """A pod with all that scheduler, controllers and its simulated node do about it."""
    of = ("pods", "events")

    def launch(number: int) -> None:
        client.ask("POST", PODS, pod(f"pod-{number}"))
        until(lambda: _phase(client, number) == "Running", "a pod does not run")

    def delete(number: int) -> None:
        client.ask("DELETE", f"{PODS}/pod-{number}")
        until(lambda: f"pod-{number}" not in client.items(f"{PODS}?resourceVersion=0"), "stays")

    table.row("a pod, until it runs", of, launch)
    table.row("its deletion, until it is gone", of, delete)


def _phase(client: Client, number: int) -> str:
    # A read of the cache costs the store nothing.
    found = client.items(f"{PODS}?resourceVersion=0").get(f"pod-{number}", {})
    return str(found.get("status", {}).get("phase", ""))


def deployments(table: Table, client: Client) -> None:
    """A deployment with its replica set and pods."""
    of = ("deployments", "replicasets", "pods", "events")

    def launch(number: int) -> None:
        name = f"deployment-{number}"
        client.ask("POST", DEPLOYMENTS, deployment(name))
        asked = f"{DEPLOYMENTS}/{name}?resourceVersion=0"
        until(
            lambda: client.ask("GET", asked)["status"].get("readyReplicas") == REPLICAS,
            "replicas are not ready",
        )

    table.row(f"a deployment of {REPLICAS}, until it is ready", of, launch)


def deployment(name: str) -> Object:
    """A deployment of pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod("")["spec"] | {}}
    del template["spec"]["terminationGracePeriodSeconds"]
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    named = {"metadata": {"name": name}, "spec": spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", **named}
