"""What the tests share: the place of the real data, where there is any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import end_all

from heliograph import testing

if TYPE_CHECKING:
    from collections.abc import Iterator

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real observatory data; the test is skipped, and says so, without it."""
    place = Path(os.environ.get("HELIO_SHARED_DATA", _BESIDE))
    if not place.is_dir():
        # tidy: allow(ignored-test): the data is not part of the repository
        pytest.skip(f"no real data at {place}; set HELIO_SHARED_DATA")
    return place


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the interfaces of ``probe.py``."""
    from probe import write_interfaces

    generics = Path(__file__).parents[2] / "examples" / "interfaces" / "SALGenerics.xml"
    return write_interfaces(tmp_path_factory.mktemp("interfaces"), generics)


@pytest.fixture
def interfaces(probes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, named by the environment."""
    monkeypatch.setenv("HELIO_INTERFACES", str(probes))
    return probes


@pytest.fixture(params=["memory", "journal"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A bus of its own on each transport that is there."""
    if request.param == "memory":
        return testing.memory_url()
    return f"journal:{tmp_path / 'journal'}"


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """End what a test has started, however it ended itself."""
    yield
    end_all()
