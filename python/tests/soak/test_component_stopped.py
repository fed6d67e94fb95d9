"""Components in processes that are stopped (SIGSTOP) for longer than their lease."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from instances import ended, run, until
from probe import Probe, asynchronous, send

import heliograph as helio
from heliograph import State, testing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"journal:{tmp_path / 'journal'}"


@asynchronous
async def test_one_that_was_stopped_knows_that_it_was_replaced(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        old = run(url, "--state", "enabled")
        await until(remote, State.ENABLED)
        call = send(remote.cmd_hang, timeout=1000.0)
        assert (await call.next_ack()).ack is helio.AckCode.IN_PROGRESS
        old.send_signal(signal.SIGSTOP)
        with pytest.raises(helio.NobodyThere, match="went away"):
            await call
        with pytest.raises(helio.NobodyThere, match="nobody there"):
            await send(remote.cmd_move, axis=1, timeout=1000.0)
        async with testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (
            probe,
            other,
        ):
            old.send_signal(signal.SIGCONT)
            await send(other.cmd_move, axis=1)
            code, errors = await ended(old)
            assert code == 1
            assert "another instance has taken over" in errors
            assert len(probe.ran) == 1
            assert other.presence() == "here"


@asynchronous
async def test_one_that_was_stopped_and_replaced_writes_no_more(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        old = run(url, "--state", "enabled", kind="Writer")
        await until(remote, State.ENABLED)
        call = send(remote.cmd_hang, timeout=1000.0)
        assert (await call.next_ack()).ack is helio.AckCode.IN_PROGRESS
        await remote.tel_sample.next()
        old.send_signal(signal.SIGSTOP)
        with pytest.raises(helio.NobodyThere, match="went away"):
            await call
        async with testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, _):
            await probe.tel_sample.set_write(number=5)
            since = helio.Time.now()
            old.send_signal(signal.SIGCONT)
            code, errors = await ended(old)
            assert (code, "Traceback" in errors) == (1, False), errors
            told = "is not Probe's to write: its lease is lost, and another instance may run"
            # Samples that it writes by itself, and those of its handlers.
            assert f"refused: Probe.tel_sample {told}" in errors
            assert f"refused: Probe.evt_position {told}" in errors
            assert "closed" in errors
            assert "another instance has taken over" in errors
            # The successor continues, and no sample of the old one is beyond its takeover.
            await probe.tel_sample.set_write(number=6)
            written: set[int] = set()
            for name in await bus.topics():
                if not name.startswith(("Probe/event/", "Probe/telemetry/", "Probe/ackcmd")):
                    continue
                kind = remote._interface.get(
                    {"event": "evt_", "telemetry": "tel_"}.get(name.split("/")[1], "ack_")
                    + name.split("/")[-1]
                )
                async with bus.topic(name, kind.schema).subscribe(start=helio.since(since)) as read:
                    written |= {s.value.private_origin for s in await read.batch(timeout=0)}
            assert written == {os.getpid()}
