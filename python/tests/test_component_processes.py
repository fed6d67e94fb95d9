"""Components in processes of their own, on a journal: started together, killed, stopped."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from instances import ended, run, until
from probe import asynchronous, send

import heliograph as helio
from heliograph import State, testing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"journal:{tmp_path / 'journal'}"


@asynchronous
async def test_a_component_s_life_from_the_command_line(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        process = run(url, "--state", "enabled", "--simulate", "--log-level", "INFO")
        await until(remote, State.ENABLED)
        assert remote.evt_simulationMode.get().mode == 1
        await send(remote.cmd_move, axis=1)
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
    expected = [
        (["--state", "dreaming"], "invalid choice"),
        (["--simulate", "9"], "invalid choice"),
        (["--interfaces", str(tmp_path)], "SALSubsystems.xml"),
        (["--authorization", str(tmp_path / "none.yaml")], "none.yaml"),
        (["--state", "enabled", "--override", "x.yaml"], "has no configuration"),
        (["--override", "x.yaml"], "--override is of the command start"),
        (["--log-level", "verbose"], "'verbose' is not a level"),
    ]
    ends = await asyncio.gather(*(ended(run(url, *arguments)) for arguments, _ in expected))
    for (_, text), (code, errors) in zip(expected, ends, strict=True):
        assert code in (1, 2)
        assert text in errors
        assert "Traceback" not in errors
    indexes: list[list[str]] = [[], ["0"], ["-1"], ["one"]]
    ends = await asyncio.gather(*(ended(run(url, *index, kind="Multi")) for index in indexes))
    for code, errors in ends:
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
        await send(remote.cmd_start, timeout=20)
        (left,) = [process for process in both if process.returncode is None]
        left.send_signal(signal.SIGTERM)
        await asyncio.wait(waits)
        assert left.returncode == 0


@asynchronous
async def test_a_component_that_is_killed_is_gone_at_once(url: str) -> None:
    async with helio.connect(url) as bus, helio.Remote(bus, "Probe") as remote:
        process = run(url, "--state", "enabled")
        await until(remote, State.ENABLED)
        call = send(remote.cmd_hang, timeout=1000.0)
        assert (await call.next_ack()).ack is helio.AckCode.IN_PROGRESS
        process.kill()
        with pytest.raises(helio.NobodyThere, match="went away"):
            await call
        with pytest.raises(helio.NobodyThere, match="nobody there"):
            await send(remote.cmd_move, axis=1, timeout=1000.0)
        last = remote.evt_heartbeat.get().private_seqNum
        # It may start again at once, and its numbers continue.
        run(url, "--state", "enabled")
        await until(remote, State.ENABLED)
        async for beat in remote.evt_heartbeat:
            if beat.private_seqNum > last:
                assert beat.private_seqNum == last + 1
                break


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
