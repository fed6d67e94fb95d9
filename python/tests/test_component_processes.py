"""Components in processes of their own, on a journal: started together, killed, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from probe import PATIENCE_S, asynchronous
from processes import started

import heliograph as helio
from heliograph import State, testing

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.usefixtures("interfaces")

PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from probe import Configured, Multi, Probe, Writer
{"Probe": Probe, "Multi": Multi, "Configured": Configured, "Writer": Writer}[sys.argv.pop(1)].run()
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"journal:{tmp_path / 'journal'}"


def run(url: str, *arguments: str, kind: str = "Probe") -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    return started(sys.executable, "-c", PROGRAM, here, kind, *arguments, "--url", url)


async def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    # With a limit, for a thread that waits for ever would keep the test from failing.
    _, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    return process.returncode, errors


async def until(remote: helio.Remote, state: State) -> None:
    async for value in remote.evt_summaryState:
        if value.summaryState == state:
            return


@asynchronous
async def test_a_component_s_life_from_the_command_line(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        process = run(url, "--state", "enabled", "--simulate", "--log-level", "INFO")
        await until(remote, State.ENABLED)
        assert remote.evt_simulationMode.get().mode == 1
        await remote.cmd_move.set_start(axis=1)
        assert remote.cmd_move.data.private_origin == 0
        process.send_signal(signal.SIGTERM)
        await until(remote, State.OFFLINE)
        code, errors = await ended(process)
        assert code == 0, errors
        async for record in remote.evt_logMessage:
            if "was asked to end" in record.message:
                break


@asynchronous
async def test_what_the_command_line_refuses(url: str, tmp_path: Path) -> None:
    for arguments, told in (
        (["--state", "dreaming"], "invalid choice"),
        (["--simulate", "9"], "invalid choice"),
        (["--interfaces", str(tmp_path)], "SALSubsystems.xml"),
        (["--authorization", str(tmp_path / "none.yaml")], "none.yaml"),
        (["--state", "enabled", "--override", "x.yaml"], "has no configuration"),
        (["--override", "x.yaml"], "--override is of the command start"),
        (["--log-level", "verbose"], "'verbose' is no level"),
    ):
        code, errors = await ended(run(url, *arguments))
        assert code in (1, 2)
        assert told in errors
        assert "Traceback" not in errors
    for index in ([], ["0"], ["-1"], ["one"]):
        code, errors = await ended(run(url, *index, kind="Multi"))
        assert (code, "index" in errors, "Traceback" in errors) == (2, True, False)


@asynchronous
async def test_of_two_that_start_together_one_runs(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        both = [run(url) for _ in range(2)]
        waits = [asyncio.ensure_future(ended(process)) for process in both]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        code, errors = done.pop().result()
        assert code == 1
        assert "Probe runs already" in errors
        await remote.cmd_start.set_start(timeout=20)
        (left,) = [process for process in both if process.returncode is None]
        left.send_signal(signal.SIGTERM)
        await asyncio.wait(waits)
        assert left.returncode == 0


@asynchronous
async def test_a_component_that_is_killed_is_gone_at_once(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        process = run(url, "--state", "enabled")
        await until(remote, State.ENABLED)
        call = remote.cmd_hang.set_start(timeout=1000.0)
        assert (await call.next_ack()).ack is helio.AckCode.IN_PROGRESS
        process.kill()
        with pytest.raises(helio.NobodyThere, match="went away"):
            await call
        with pytest.raises(helio.NobodyThere, match="nobody there"):
            await remote.cmd_move.set_start(axis=1, timeout=1000.0)
        last = remote.evt_heartbeat.get().private_seqNum
        # It may start again at once, and its numbers go on.
        run(url, "--state", "enabled")
        await until(remote, State.ENABLED)
        async for beat in remote.evt_heartbeat:
            if beat.private_seqNum > last:
                assert beat.private_seqNum == last + 1
                break


@asynchronous
async def test_one_that_was_stopped_knows_that_it_was_replaced(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        old = run(url, "--state", "enabled")
        await until(remote, State.ENABLED)
        call = remote.cmd_hang.set_start(timeout=1000.0)
        assert (await call.next_ack()).ack is helio.AckCode.IN_PROGRESS
        old.send_signal(signal.SIGSTOP)
        with pytest.raises(helio.NobodyThere, match="went away"):
            await call
        with pytest.raises(helio.NobodyThere, match="nobody there"):
            await remote.cmd_move.set_start(axis=1, timeout=1000.0)
        async with testing.component(_probe(), bus=bus, initial_state=State.ENABLED) as (
            probe,
            other,
        ):
            old.send_signal(signal.SIGCONT)
            await other.cmd_move.set_start(axis=1)
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
        call = remote.cmd_hang.set_start(timeout=1000.0)
        assert (await call.next_ack()).ack is helio.AckCode.IN_PROGRESS
        await remote.tel_sample.next()
        old.send_signal(signal.SIGSTOP)
        with pytest.raises(helio.NobodyThere, match="went away"):
            await call
        async with testing.component(_probe(), bus=bus, initial_state=State.ENABLED) as (probe, _):
            await probe.tel_sample.set_write(number=5)
            since = helio.Time.now()
            old.send_signal(signal.SIGCONT)
            code, errors = await ended(old)
            assert (code, "Traceback" in errors) == (1, False), errors
            told = "is not Probe's to write: its lease is lost, and another instance may run"
            # What it writes by itself, and what its handlers write.
            assert f"refused: Probe.tel_sample {told}" in errors
            assert f"refused: Probe.evt_position {told}" in errors
            assert "closed" in errors
            assert "another instance has taken over" in errors
            # The successor goes on, and nothing of the old one lies behind its takeover.
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


def _probe() -> Any:
    from probe import Probe

    return Probe


@asynchronous
async def test_a_remote_of_the_largest_component(shared_data: Path, url: str) -> None:
    folder = shared_data / "sal-interfaces" / "v27.1.1"

    class MTCamera(helio.Component):
        interface = folder

    async with (
        helio.connect(url) as bus,
        testing.component(MTCamera, bus=bus, initial_state=State.ENABLED) as (camera, remote),
    ):
        assert len(camera._interface.attributes) > 400
        await helio.set_summary_state(remote, State.DISABLED)
        assert remote.evt_summaryState.get().summaryState is State.DISABLED
