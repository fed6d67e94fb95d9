"""A shared broker, or the start of one, that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from conftest import SECONDS, Program, gone, owner, shared, skip_where_it_cannot_run, started, until


def test_a_shared_broker_that_died_is_started_again(tmp_path: Path) -> None:
    kafka = Program("kafka", {"TMPDIR": str(tmp_path)})
    with owner() as process:
        before = started(shared(kafka, process.pid))
        os.kill(before["brokers"][0]["pid"], signal.SIGKILL)
        until(lambda: "dead" in kafka("status", "--dir", before["dir"]).stdout)
        after = started(shared(kafka, process.pid))
        assert (after["dir"], after["brokers"][0]["state"]) == (before["dir"], "running")
    until(gone(tmp_path))


def test_a_start_that_is_killed_leaves_the_next_one_free(tmp_path: Path) -> None:
    kafka = Program("kafka", {"TMPDIR": str(tmp_path)})
    with owner() as process:
        killed = shared(kafka, process.pid)
        until(lambda: list(tmp_path.glob("*/node-1")) or killed.poll() is not None)
        killed.kill()
        _, complaint = killed.communicate(timeout=SECONDS)
        skip_where_it_cannot_run(killed.returncode, complaint)
        assert started(shared(kafka, process.pid))["brokers"][0]["state"] == "running"
    until(gone(tmp_path))
