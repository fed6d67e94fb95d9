"""A component on a real broker: it creates all its topics at its start, many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines import shared_kafka
from probe import Probe, asynchronous

import heliograph as helio
from heliograph import testing

if TYPE_CHECKING:
    from pathlib import Path


@asynchronous
async def test_all_topics_are_there_when_it_has_started(interfaces: Path) -> None:
    wanted = {name for name in helio.load_interfaces(interfaces) if name.startswith("Probe/")}
    assert wanted
    address = shared_kafka()
    async with (
        helio.connect(address) as bus,
        testing.component(Probe, bus=bus),
        # Another connection, as this one caches its topics.
        helio.connect(address) as other,
    ):
        made = set(await other.topics())
        assert wanted | {"Probe/audit", "Probe/control"} <= made
