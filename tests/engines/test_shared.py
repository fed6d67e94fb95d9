"""One engine for several programs: the first starts it, the last ends it, and none may hurt it."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import FAILED, REFUSED, Program, gone, owner, shared, started, until


def test_programs_that_start_at_once_share_one_that_outlives_all_but_the_last(
    tmp_path: Path,
) -> None:
    kafka = Program("kafka", {"TMPDIR": str(tmp_path)})
    with owner() as first, owner() as second:
        begun = [shared(kafka, process.pid) for process in (first, second, first)]
        engines = [started(starting) for starting in begun]
        assert len({engine["url"] for engine in engines}) == 1
        engine = engines[0]
        assert engine["shared"] is True
        assert [Path(engine["dir"])] == list(tmp_path.iterdir())
        # Commands without --dir are for engines that are somebody's own.
        assert kafka("status").stdout == "no engine runs here\n"
        for command in (["freeze", "1"], ["kill", "1"], ["restart"], ["stop"]):
            refused = kafka(*command, "--dir", engine["dir"])
            assert refused.returncode == REFUSED, refused.stderr
            assert "is shared" in refused.stderr
        first.kill()
        first.wait()
        with owner() as third:
            assert started(shared(kafka, third.pid))["url"] == engine["url"]
            assert started(shared(kafka, second.pid))["brokers"] == engine["brokers"]
    until(gone(tmp_path))


def test_a_shared_engine_has_an_owner_and_no_options(tmp_path: Path) -> None:
    kafka = Program("kafka", {"TMPDIR": str(tmp_path)})
    done = kafka("start", "--shared")
    assert (done.returncode, "needs --owner" in done.stderr) == (FAILED, True), done.stderr
    for options in (["--nodes", "3"], ["--set", "num.partitions=2"], ["--dir", str(tmp_path)]):
        done = kafka("start", "--shared", "--owner", str(os.getpid()), *options)
        assert (done.returncode, options[0] in done.stderr) == (FAILED, True), done.stderr
    assert not list(tmp_path.iterdir())
