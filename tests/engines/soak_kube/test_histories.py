"""Histories of etcd's clients on the store, through kills: porcupine finds an order, or none."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from clusters import HELIO, needs_helio, started

from lib.go_modules import SOURCES

if TYPE_CHECKING:
    from conftest import Engine

CLIENTS = 10
KILLS = 6
# So that between kills there is time for what a client's own pause of a second delays.
KILL_EVERY_SECONDS = 4.0


def begin(engine: Engine, seconds: float) -> subprocess.Popen[str]:
    """Begins to record; straight at the store, without the tap."""
    store = engine.started["servers"][0]
    where = f"-endpoint={store['host']}:{store['port']}"
    how = [f"-clients={CLIENTS}", f"-seconds={seconds}", "-rate=2000"]
    program = engine.started["programs"]["histories"]
    return subprocess.Popen([program, where, *how], stdout=subprocess.PIPE, text=True)


def told(recording: subprocess.Popen[str]) -> dict[str, Any]:
    """What it found, which must be in order."""
    output, _ = recording.communicate()
    print(output)
    summary: dict[str, Any] = json.loads(output)
    assert recording.returncode == 0, summary
    assert summary["verdict"] == "Ok"
    return summary


def test_the_model_takes_what_etcd_answers_and_nothing_else() -> None:
    test = ["go", "test", "-mod=readonly", "./histories"]
    environment = os.environ | {"GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        test, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("durability", ["disk", "interval"])
def test_histories_of_ten_clients_are_linearizable(durability: str) -> None:
    needs_helio()
    with started("--helio", str(HELIO), "--durability", durability, "--tap") as engine:
        summary = told(begin(engine, 10.0))
        assert summary["unanswered"] == 0, summary["errors"]
        assert summary["watched_revisions"] == summary["writes"]


@pytest.mark.parametrize("durability", ["disk", "interval"])
def test_histories_through_kills_are_linearizable(durability: str) -> None:
    needs_helio()
    with started("--helio", str(HELIO), "--durability", durability, "--tap") as engine:
        recording = begin(engine, (KILLS + 1) * KILL_EVERY_SECONDS)
        for _ in range(KILLS):
            time.sleep(KILL_EVERY_SECONDS)
            engine("kill", "1")
            engine("restart", "1")
        summary = told(recording)
        assert summary["writes"] > 0
        name = f"state node kills under histories, {durability}"
        print(f"storm: {name}: tried {KILLS}, survived {KILLS}, lost 0, unreported 0")
