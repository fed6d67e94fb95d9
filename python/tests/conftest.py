"""What the tests share: the place of the real data, where there is any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
