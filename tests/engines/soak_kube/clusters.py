"""Engines of this checkout's own store, with Kubernetes or without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from cluster import Cluster

from conftest import Engine, Program
from lib.control_plane import PROGRAMS

ROOT = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# HELIO names another one.
HELIO = Path(os.environ.get("HELIO", TARGET / "debug" / "helio"))


def needs_helio() -> None:
    """Refuses to pass without the program."""
    assert HELIO.exists(), f"{HELIO} is missing: `cargo build -p helio-cli` makes it"


def started(*options: str) -> AbstractContextManager[Engine]:
    """An engine in a temporary folder of its own, where no other commands look for one."""
    return Program("kube", {}).running(*options)


def needs_kubernetes() -> None:
    """Skips where it is not built, which takes longer than a unit of the soak may."""
    needs_helio()
    if not PROGRAMS.is_built():
        # tidy: allow(ignored-test): `tests/engines/kube build` makes it pass.
        pytest.skip("Kubernetes is not built: `tests/engines/kube build` does that in many minutes")


@contextmanager
def cluster(durability: str, *options: str) -> Iterator[Cluster]:
    """Kubernetes on our store."""
    needs_kubernetes()
    on = ["--kubernetes", "--helio", str(HELIO), "--durability", durability]
    with started(*on, *options) as engine:
        yield Cluster(engine)
