"""What the commands say when they cannot do what was asked, and what they leave behind then."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import (
    FAILED,
    REFUSED,
    SECONDS,
    SKIPPED,
    Program,
    skip_where_it_cannot_run,
    until,
)
from lib.maven import Lock


@pytest.fixture
def kafka(tmp_path: Path) -> Program:
    for folder in ("temporary", "cache"):
        (tmp_path / folder).mkdir()
    folders = {"TMPDIR": str(tmp_path / "temporary"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return Program("kafka", folders | {"HELIO_ENGINES_REQUIRED": ""})


def java(folder: Path, version: str) -> str:
    """A JAVA_HOME whose Java says that it is of a version, and does nothing else."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("version", ["1.8.0_402", "16.0.2"])
def test_an_old_java_means_skipped_not_failed(kafka: Program, tmp_path: Path, version: str) -> None:
    done = kafka("start", JAVA_HOME=java(tmp_path / "java", version))
    assert (done.returncode, done.stderr[:8]) == (SKIPPED, "skipped:")
    assert version in done.stderr
    missing = kafka("start", JAVA_HOME=str(tmp_path / "none"))
    assert (missing.returncode, missing.stderr[:8]) == (SKIPPED, "skipped:")
    required = kafka("start", JAVA_HOME=str(tmp_path / "none"), HELIO_ENGINES_REQUIRED="1")
    assert (required.returncode, required.stderr[:19]) == (FAILED, "kafka must run here")


def repository(folder: Path, *, bytes_of_each: bytes | None) -> dict[str, str]:
    """A repository for the program, which lacks all files or has others in their place."""
    lock = Path(__file__).parent / "lib" / "kafka.lock"
    for line in lock.read_text().splitlines() if bytes_of_each is not None else []:
        file = folder / line.split()[1]
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes_of_each or b"")
    return {"HELIO_MAVEN_URL": folder.as_uri()}


def test_files_that_cannot_be_had_or_trusted_are_named(kafka: Program, tmp_path: Path) -> None:
    newest = java(tmp_path / "java", "17.0.1")
    empty = repository(tmp_path / "empty", bytes_of_each=None)
    done = kafka("start", JAVA_HOME=newest, **empty)
    assert done.returncode == FAILED
    assert "cannot download file://" in done.stderr
    assert "HELIO_MAVEN_URL" in done.stderr
    forged = repository(tmp_path / "forged", bytes_of_each=b"something else")
    done = kafka("start", JAVA_HOME=newest, **forged)
    assert done.returncode == FAILED
    assert "the lock file says" in done.stderr
    assert not [
        file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.name != "lock"
    ]
    assert not list((tmp_path / "temporary").iterdir())


def test_options_that_make_no_sense_are_refused(kafka: Program, tmp_path: Path) -> None:
    done = kafka("start", "--acl")
    assert (done.returncode, done.stderr[:23]) == (FAILED, "kafka: --acl needs --sa")
    (tmp_path / "temporary" / "letter").touch()
    done = kafka("start", "--dir", str(tmp_path / "temporary"))
    assert done.returncode == FAILED
    assert "is not empty" in done.stderr
    assert kafka("start", "--nodes", "2").returncode == 2
    assert kafka("start", "--set", "nothing").returncode == 2


def test_there_is_nothing_to_stop_where_nothing_runs(kafka: Program, tmp_path: Path) -> None:
    assert kafka("stop").returncode == FAILED
    assert kafka("stop", "--dir", str(tmp_path)).returncode == FAILED
    assert kafka("stop", "--all").returncode == 0
    status = kafka("status", "--json")
    assert (status.returncode, status.stdout) == (0, "")


def test_a_start_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    starting = Program("kafka", {"TMPDIR": str(tmp_path)}).begin("start")
    while starting.poll() is None and not list(tmp_path.glob("*/node-1/log/broker.log")):
        pass
    starting.terminate()
    output, complaint = starting.communicate(timeout=SECONDS)
    skip_where_it_cannot_run(starting.returncode, complaint)
    assert (starting.returncode, output) == (128 + signal.SIGTERM, "")
    assert list(tmp_path.iterdir()) == []


def killed_when(starting: subprocess.Popen[str], happened: Callable[[], object]) -> None:
    """Kills a start where nothing of it can clean up."""
    until(lambda: happened() or starting.poll() is not None)
    starting.kill()
    _, complaint = starting.communicate(timeout=SECONDS)
    skip_where_it_cannot_run(starting.returncode, complaint)
    assert starting.returncode == -signal.SIGKILL, complaint


def test_what_a_killed_start_has_left_is_removed_by_stop(tmp_path: Path) -> None:
    kafka, folder = Program("kafka", {"TMPDIR": str(tmp_path)}), tmp_path / "engine"
    # A start waits for the cache, before it has written anything but its lock.
    with Lock("kafka").cache():
        starting = kafka.begin("start", "--dir", str(folder))
        killed_when(starting, lambda: (folder / "begun.lock").exists())
    assert not (folder / "engine.json").exists()
    status = kafka("status", "--dir", str(folder))
    assert status.returncode == FAILED
    assert f"stop --dir {folder}` removes what is there" in status.stderr
    assert kafka("stop", "--dir", str(folder)).returncode == 0
    assert not folder.exists()
    # What runs already ends, too.
    log = folder / "node-1" / "log" / "broker.log"
    starting = kafka.begin("start", "--dir", str(folder))
    killed_when(starting, lambda: log.exists() and log.read_text())
    assert kafka("stop", "--dir", str(folder)).returncode == 0
    assert not folder.exists()
    until(lambda: not running_in(folder / "node-1"))


def running_in(folder: Path) -> list[str]:
    """The processes that work in a folder, which may be gone."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if str(process.readlink()).startswith(str(folder)):
                found.append(process.parent.name)
    return found


def test_one_start_at_a_time_and_none_beside_an_engine(tmp_path: Path) -> None:
    kafka, folder = Program("kafka", {"TMPDIR": str(tmp_path)}), tmp_path / "engine"
    # A start after one that was killed clears what that has left.
    left = folder / "node-1" / "left"
    left.parent.mkdir(parents=True)
    left.touch()
    (folder / "begun.lock").touch()
    with Lock("kafka").cache():
        first = kafka.begin("start", "--dir", str(folder), "--json")
        until(lambda: not left.exists() or first.poll() is not None)
        if left.exists():
            _, complaint = first.communicate()
            skip_where_it_cannot_run(first.returncode, complaint)
            pytest.fail(f"the start ended with {first.returncode}: {complaint}")
        for command in ("start", "stop"):
            second = kafka(command, "--dir", str(folder))
            assert second.returncode == REFUSED, second.stderr
            assert "somebody starts or stops" in second.stderr
    output, complaint = first.communicate(timeout=2 * SECONDS)
    assert first.returncode == 0, complaint
    brokers = json.loads(output)["brokers"]
    again = kafka("start", "--dir", str(folder))
    assert (again.returncode, "already" in again.stderr) == (REFUSED, True)
    # As after a reboot.
    for broker in brokers:
        os.kill(broker["pid"], signal.SIGKILL)
    until(lambda: "dead" in kafka("status", "--dir", str(folder)).stdout)
    dead = kafka("start", "--dir", str(folder))
    assert dead.returncode == REFUSED
    assert "is dead" in dead.stderr
    assert f"stop --dir {folder}` removes it" in dead.stderr
    assert kafka("stop", "--dir", str(folder)).returncode == 0
    assert not folder.exists()


@pytest.mark.parametrize(
    ("property_", "complaint"),
    [("num.io.threads=none", "num.io.threads"), ("metric.reporters=No", "No")],
    ids=["seen by the formatter", "seen by the broker"],
)
def test_a_broker_that_does_not_come_up_says_why(
    tmp_path: Path, property_: str, complaint: str
) -> None:
    done = Program("kafka", {"TMPDIR": str(tmp_path)})("start", "--set", property_)
    skip_where_it_cannot_run(done.returncode, done.stderr)
    assert done.returncode == FAILED
    assert complaint in done.stderr
    assert list(tmp_path.iterdir()) == []
