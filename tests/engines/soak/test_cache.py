"""What starts of brokers keep in the cache."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import SECONDS, Program, skip_where_it_cannot_run


def cached(folder: Path) -> Path:
    """A cache that has the same files as the user's, and nothing that was made from them."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heliograph"
    for version in base.glob("kafka-*"):
        copy = folder / "heliograph" / version.name
        copy.mkdir(parents=True)
        for jar in version.glob("*.jar"):
            (copy / jar.name).symlink_to(jar)
    return folder


def test_starts_at_the_same_time_fill_it_once(tmp_path: Path) -> None:
    cache = cached(tmp_path / "cache")
    (tmp_path / "temporary").mkdir()
    folders = {"TMPDIR": str(tmp_path / "temporary"), "XDG_CACHE_HOME": str(cache)}
    kafka = Program("kafka", folders)
    begun = [kafka.begin("start", "--json", "--owner", str(os.getpid())) for _ in range(2)]
    try:
        for starting in begun:
            _, complaint = starting.communicate(timeout=4 * SECONDS)
            skip_where_it_cannot_run(starting.returncode, complaint)
            assert starting.returncode == 0, complaint
        (archive,) = cache.rglob("classes-*")
        assert archive.suffix == ".jsa"
        assert archive.stat().st_size > 0
        # The number of a node, and of a cluster, is each broker's own.
        names = [
            file.read_text()
            for file in (tmp_path / "temporary").glob("*/node-1/data/meta.properties")
        ]
        assert len(set(names)) == len(begun)
    finally:
        kafka("stop", "--all")
    assert list((tmp_path / "temporary").iterdir()) == []
