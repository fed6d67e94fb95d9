"""A change reaches what is compiled of it, and never less; a path that nobody knows reaches all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SCRIPTS))

from reach import Package, Reach, Workspace, of_change  # noqa: E402


@pytest.fixture
def workspace() -> Workspace:
    packages = [
        Package("helio-core", "crates/core", frozenset()),
        Package("helio-bus", "crates/bus", frozenset({"helio-core"})),
        Package("helio-kafka", "crates/transports/kafka", frozenset({"helio-bus"})),
        Package("helio-cli", "crates/cli", frozenset({"helio-bus", "helio-kafka"})),
    ]
    workspace = Workspace({package.name: package for package in packages})
    source = '#[path = "../../../transports/kafka/tests/support/broker.rs"]\nmod broker;'
    workspace.note("helio-cli", "crates/cli/tests/soak/main.rs", source)
    return workspace


def reached(path: str, workspace: Workspace) -> tuple[set[str], set[str]]:
    reach = of_change([path], workspace)
    assert not reach.everything
    return reach.direct, reach.indirect


def test_a_source_reaches_its_package_and_all_that_depend_on_it(workspace: Workspace) -> None:
    path = "crates/bus/src/topic.rs"
    assert reached(path, workspace) == ({"helio-bus"}, {"helio-kafka", "helio-cli"})


def test_a_test_reaches_its_own_package_alone(workspace: Workspace) -> None:
    assert reached("crates/bus/tests/it/bus.rs", workspace) == ({"helio-bus"}, set())


def test_a_file_that_another_package_compiles_in_reaches_that_one(workspace: Workspace) -> None:
    path = "crates/transports/kafka/tests/support/broker.rs"
    assert reached(path, workspace) == ({"helio-kafka", "helio-cli"}, set())


def test_prose_reaches_nothing(workspace: Workspace) -> None:
    assert reached("docs/kafka.md", workspace) == (set(), set())
    assert reached("crates/transports/kafka/README.md", workspace) == (set(), set())


@pytest.mark.parametrize(
    "path", ["Cargo.lock", "Cargo.toml", "new/thing.rs", "scripts/requirements.txt"]
)
def test_what_no_rule_knows_reaches_everything(path: str, workspace: Workspace) -> None:
    reach = of_change([path], workspace)
    assert reach.everything
    assert reach.rank("helio-core") == 1


def test_what_is_changed_comes_before_what_depends_on_it() -> None:
    reach = Reach(direct={"a"}, indirect={"b"})
    assert [reach.rank(name) for name in "abc"] == [0, 1, None]


def test_the_checkouts_own_packages_and_paths_are_known() -> None:
    workspace = Workspace.of_checkout(SCRIPTS.parent)
    assert "helio-kafka" in workspace.dependents("helio-core")
    engines = of_change(["tests/engines/lib/kafka.py"], workspace)
    assert {"helio-kafka", "helio-cli"} <= engines.direct
    known = {"engines", "python", *workspace.packages}
    assert (
        of_change(["tests/engines/lib/kafka.py", "examples/x", "python/x"], workspace).direct
        <= known
    )
