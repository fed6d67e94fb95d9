"""SAL's `byte` is -128 to 255, on either side and at every door."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heater import ALL, every_value, heating, no_other_value, write_heater
from probe import asynchronous

import heliograph as helio

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@asynchronous
async def test_every_value_of_a_byte_arrives(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIO_INTERFACES", str(write_heater(tmp_path / "heater")))
    async with helio.connect(url) as bus, heating(bus) as (component, remote):
        await every_value(remote, ALL)
        await no_other_value(component, remote)
