"""The audit of a storm finds each kind of loss; without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from storm import Storm

if TYPE_CHECKING:
    from cluster import Object


def config_map(name: str, counter: int, version: int) -> Object:
    metadata = {"name": name, "resourceVersion": str(version)}
    return {"metadata": metadata, "data": {"counter": str(counter)}}


def audited(**spoiled: Any) -> list[str]:
    """What the audit says of one writer's storm, of which the store tells wrongly."""
    one, two = "storm-0-1", "storm-0-2"
    events = [
        ("ADDED", config_map(one, 1, 11)),
        ("ADDED", config_map(two, 2, 12)),
        ("MODIFIED", config_map(one, 3, 13)),
        ("DELETED", config_map(two, 2, 14)),
    ]
    held = {one: config_map(one, 3, 13)}
    watcher: Any = SimpleNamespace(version="14", holes=[], events=spoiled.get("events", events))
    client = SimpleNamespace(items=lambda _: spoiled.get("held", held))
    kubernetes: Any = SimpleNamespace(client=lambda: client)
    storm = Storm(kubernetes)
    writer = storm.writers[0]
    writer.acknowledged = {one: 3, two: None}
    writer.open = {one: spoiled.get("open", [])}
    writer.writes = [(one, 1, 11), (two, 2, 12), (one, 3, 13)]
    writer.deletions = [two]
    return storm.audit(watcher)


ONE = config_map("storm-0-1", 3, 13)


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ({"held": {}}, "is None; 3 was acknowledged"),
        ({"held": {"storm-0-1": config_map("storm-0-1", 1, 13)}}, "is 1; 3 was acknowledged"),
        (
            {"held": {"storm-0-1": ONE, "storm-0-2": config_map("storm-0-2", 2, 12)}},
            "is 2; None was acknowledged",
        ),
        ({"events": []}, "the watch has not seen"),
        ({"events": [("ADDED", ONE), ("ADDED", config_map("storm-0-2", 2, 12))]}, "went back"),
    ],
)
def test_each_loss_is_found(spoiled: dict[str, Any], said: str) -> None:
    assert any(said in wrong for wrong in audited(**spoiled))


def test_an_outcome_that_nobody_told_may_be_either() -> None:
    assert audited() == []
    assert audited(open=[4], held={"storm-0-1": config_map("storm-0-1", 4, 13)}) == []
