"""Pytest fixtures, loaded by pytest wherever the package is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph import sync


@pytest.fixture
def helio_url() -> str:
    """The URL of an in-memory bus, a new one for each test."""
    from heliograph import testing

    return testing.memory_url()


@pytest.fixture
def helio_bus(helio_url: str) -> Iterator[sync.Bus]:
    """A synchronous bus on ``helio_url``, closed after the test."""
    from heliograph import testing

    with testing.sync_memory_bus(helio_url) as bus:
        yield bus
