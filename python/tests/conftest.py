"""Shared fixtures: folders, buses, domains and real data."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import end_all, program, started

from heliograph import testing

if TYPE_CHECKING:
    from collections.abc import Iterator

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real observatory data; without it the test is skipped with a reason."""
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
    """A bus of its own on each available transport."""
    if request.param == "memory":
        return testing.memory_url()
    return f"journal:{tmp_path / 'journal'}"


@pytest.fixture
def dds_domain() -> Iterator[int]:
    """A DDS domain that no other test of this machine uses: by a lock on a file.

    ``crates/transports/dds/tests/support/domain.rs`` follows the same rule.
    """
    for domain in range(1, 231):
        path = Path(tempfile.gettempdir()) / f"heliograph-dds-domain-{domain}"
        # Another user's file cannot be opened, another process's cannot be locked.
        with contextlib.suppress(OSError), path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield domain
            return
    pytest.fail("all DDS domains of this machine are in use")


@pytest.fixture
def dds_url(tmp_path: Path, dds_domain: int) -> str:
    """A DDS domain of its own on the loopback, with a durability service."""
    url = f"dds://{dds_domain}?interface=lo&multicast=false&service_ms=500"
    arguments = ["dds", "durability", "--json", "--url", url, "--dir", str(tmp_path / "kept")]
    service = started(program(), *arguments)
    assert service.stdout is not None
    line = service.stdout.readline()
    assert line, service.communicate()[1]
    assert json.loads(line)["keeps"] == url
    return url


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """End the processes that a test has started."""
    yield
    end_all()
