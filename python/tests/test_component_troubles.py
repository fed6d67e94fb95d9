"""Components and remotes when something around them fails."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from probe import TIMEOUT_S, Configured, Probe, asynchronous, send

import heliograph as helio
from heliograph import State, testing
from heliograph._component import _component, _engine, _main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


async def values_of(topic: Any, count: int) -> list[tuple[int, float]]:
    """Return the numbers and values of this many samples."""
    read = [await topic.next(timeout=TIMEOUT_S) for _ in range(count)]
    assert topic.nqueued == 0
    return [(sample.private_seqNum, sample.value) for sample in read]


async def turns(count: int = 20) -> None:
    """Let the other tasks of the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynchronous
async def test_writers_beside_each_other_publish_their_own_values() -> None:
    async with testing.component(Probe) as (probe, remote):
        event = probe.evt_position
        results = await asyncio.gather(*(event.set_write(value=float(x)) for x in (1, 2, 3)))
        assert [result.was_written for result in results] == [True] * 3
        assert await values_of(remote.evt_position, 3) == [(1, 1.0), (2, 2.0), (3, 3.0)]


@asynchronous
async def test_a_cancelled_first_write_leaves_others_alone() -> None:
    async with testing.component(Probe) as (probe, remote):
        event = probe.evt_position
        first, second = (asyncio.ensure_future(event.set_write(value=float(x))) for x in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await values_of(remote.evt_position, 1))[0][1] == 2.0
        with pytest.raises(helio.EncodeError, match="value"):
            await event.set_write(text="kept?", value="no number")
        assert (event.data.value, event.data.text) == (2.0, "")


@asynchronous
async def test_what_waits_in_line_is_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.component(Probe) as (probe, remote):
        event = probe.evt_position
        await event.set_write(value=0.0)
        # As if another process blocked the topic.
        monkeypatch.setattr(event._topic, "_offer", lambda _value: None)
        await asyncio.gather(*(event.set_write(value=float(x)) for x in range(1, 6)))
        expected = [(x + 1, float(x)) for x in range(6)]
        assert await values_of(remote.evt_position, 6) == expected
        writing = asyncio.ensure_future(event.set_write(value=100.0))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        # The outcome is unknown, so the next values are written in any case.
        assert (await event.set_write(value=100.0)).was_written


@pytest.mark.parametrize(
    ("code", "report", "told"),
    [
        (1, ValueError("boom"), (1, "boom")),
        (1, None, (1, "")),
        (1, "half \ud800", (1, "half ?")),
        (2**40, "x", (2**31 - 1, "x")),
        ("many", "x", (2**31 - 1, "x")),
    ],
)
@asynchronous
async def test_a_fault_is_one_whatever_its_report_is(
    code: Any, report: Any, told: tuple[int, str]
) -> None:
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        await probe.fault(code, report)
        assert probe.summary_state is State.FAULT
        error = remote.evt_errorCode.get()
        assert (error.errorCode, error.errorReport) == told


@asynchronous
async def test_a_fault_whose_report_cannot_even_be_read() -> None:
    class Evil:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, _):
        await probe.fault(1, Evil())  # type: ignore[arg-type]
        assert probe.summary_state is State.FAULT


@asynchronous
async def test_close_tasks_that_awaits_a_cancelled_task() -> None:
    class Careless(Probe):
        async def close_tasks(self) -> None:
            task = asyncio.ensure_future(asyncio.Event().wait())
            await asyncio.sleep(0)
            task.cancel()
            await task

    async with testing.memory_bus() as bus:
        async with testing.component(Careless, bus=bus) as (careless, _):
            await careless.close()
            await careless.done_task
        async with testing.component(Probe, bus=bus):
            pass


@asynchronous
async def test_close_tasks_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_engine, "STOP_TIMEOUT_S", 0.01)

    class Endless(Probe):
        async def close_tasks(self) -> None:
            await asyncio.Event().wait()

    async with testing.memory_bus() as bus:
        async with testing.component(Endless, bus=bus) as (endless, _):
            await endless.close()
            await endless.done_task
        async with testing.component(Probe, bus=bus):
            pass


class Stuck(Probe):
    """A probe whose hooks hang."""

    def __init__(self, *arguments: Any, stuck: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stuck = stuck
        self.reached: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def _note(self, hook: str) -> None:
        super()._note(hook)
        self.reached[hook].set()

    async def begin_enable(self, data: Any) -> None:
        await super().begin_enable(data)
        if self.stuck == "begin_enable":
            await asyncio.Event().wait()

    async def end_exitControl(self, data: Any) -> None:  # noqa: N802
        await super().end_exitControl(data)
        if self.stuck == "end_exitControl":
            await asyncio.Event().wait()


@asynchronous
async def test_it_can_be_asked_to_end_while_it_starts() -> None:
    async with testing.memory_bus() as bus:
        probe = Stuck(bus, stuck="begin_enable", initial_state=State.ENABLED)
        asked = asyncio.Event()
        living = asyncio.ensure_future(_main.live(probe, asked, asyncio.Event()))
        await probe.reached["begin_enable"].wait()
        asked.set()
        await living
        assert probe.done_task.done()


@asynchronous
async def test_who_asks_twice_is_obeyed_at_once() -> None:
    async with testing.memory_bus() as bus:
        probe = Stuck(bus, stuck="end_exitControl", initial_state=State.ENABLED)
        asked, insisted = asyncio.Event(), asyncio.Event()
        living = asyncio.ensure_future(_main.live(probe, asked, insisted))
        await probe.reached["end_enable"].wait()
        asked.set()
        await probe.reached["end_exitControl"].wait()
        insisted.set()
        await living
        assert probe.done_task.done()


@asynchronous
async def test_what_works_for_ever_survives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_component, "HEARTBEAT_INTERVAL_S", 0.01)
    (tmp_path / "_init.yaml").write_text("host: a\n")
    policy = tmp_path / "policy.txt"
    policy.write_text("default: allow\n")
    async with testing.component(Configured, config_dir=tmp_path, authorization=policy) as (
        probe,
        remote,
    ):
        os.close(os.open(os.fsencode(tmp_path) + b"/bad\xff.yaml", os.O_CREAT))
        broken = True
        put = probe._engine.put

        def failing(event: str, **fields: Any) -> bool:
            if broken and event in ("heartbeat", "configurationsAvailable"):
                raise RuntimeError("broken")
            return put(event, **fields)

        monkeypatch.setattr(probe._engine, "put", failing)
        policy.write_text("default: deny\n")
        ack = helio.AckCode.FAILED
        while ack is not helio.AckCode.NO_PERM:
            call = send(remote.cmd_start, configurationOverride="none")
            ack = [said async for said in call][-1].ack
        broken = False
        remote.evt_heartbeat.flush()
        await remote.evt_heartbeat.next(timeout=TIMEOUT_S)
        while "bad" not in (remote.evt_configurationsAvailable.get().overrides):
            await remote.evt_configurationsAvailable.next(timeout=TIMEOUT_S)


@pytest.mark.parametrize("time", [float("nan"), float("inf"), 1e12])
@asynchronous
async def test_a_stream_s_command_whose_time_is_none_does_not_run(time: float) -> None:
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        for validate in (False, True):
            with pytest.raises(helio.CommandFailed, match=r"taiTime is .* not a valid time"):
                await send(remote.cmd_track, taiTime=time, validate=validate)
        assert probe.ran == []


@asynchronous
async def test_a_hook_cannot_wait_for_its_own_command() -> None:
    class Eager(Probe):
        async def end_start(self, data: Any) -> None:
            await self.go_to(State.ENABLED)

    async with testing.component(Eager) as (eager, remote):
        with pytest.raises(helio.CommandFailed, match="would wait for itself"):
            await send(remote.cmd_start)
        assert eager.summary_state is State.STANDBY


@asynchronous
async def test_a_bus_that_is_closed_ends_calls_and_components(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_component, "HEARTBEAT_INTERVAL_S", 0.01)
    bus = await helio.connect(testing.memory_url())
    probe = Probe(bus, initial_state=State.ENABLED)
    await probe.start()
    remote = helio.Remote(bus, "Probe")
    call = send(remote.cmd_hang, timeout=1000.0)
    await probe.hanging.wait()
    await bus.close()
    with pytest.raises(helio.NobodyThere, match="the bus was closed"):
        await call
    with pytest.raises(helio.ClosedError):
        await probe.done_task


@asynchronous
async def test_a_start_that_is_cancelled_lets_go_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with testing.memory_bus() as bus:
        probe = Probe(bus)
        opening, go_on = threading.Event(), threading.Event()
        opened = probe._engine._open

        def slow() -> Any:
            opening.set()
            assert go_on.wait(TIMEOUT_S)
            return opened()

        monkeypatch.setattr(probe._engine, "_open", slow)
        starting = asyncio.ensure_future(probe.start())
        await asyncio.to_thread(opening.wait)
        starting.cancel()
        await turns()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        async with testing.component(Probe, bus=bus):
            pass


@asynchronous
async def test_a_result_too_long_to_be_told_says_so() -> None:
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        probe.result = ["x" * 4000]
        ack = await send(remote.cmd_move, axis=1)
        assert (ack.ack, ack.value) == (helio.AckCode.COMPLETE, None)
        assert "4004 bytes is not told" in ack.result


@asynchronous
async def test_a_configuration_is_applied_when_the_state_has_changed(tmp_path: Path) -> None:
    (tmp_path / "_init.yaml").write_text("host: a\n")
    async with testing.component(Configured, config_dir=tmp_path) as (probe, remote):
        probe.fails["begin_start"] = helio.ExpectedError("no power")
        with pytest.raises(helio.CommandFailed, match="no power"):
            await send(remote.cmd_start)
        assert (probe.configuration, remote.evt_configurationApplied.get()) == (None, None)
        probe.fails.clear()
        await send(remote.cmd_start)
        assert remote.evt_configurationApplied.get().configurations == "_init.yaml"


@asynchronous
async def test_minus_zero_and_another_nan_are_no_change() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    async with testing.component(Probe) as (probe, _):
        event = probe.evt_position
        for first, second in ((0.0, -0.0), (float("nan"), other_nan)):
            fields = {"value": first, "forces": [first] * 4}
            assert (await event.set_write(**fields)).did_change
            fields = {"value": second, "forces": [second] * 4}
            assert not event.set(**fields)
            result = await event.set_write(**fields)
            assert (result.did_change, result.was_written) == (False, False)
        assert (await event.set_write(value=0.0)).did_change


@asynchronous
async def test_a_callback_that_takes_itself_away_is_called_no_more() -> None:
    async with testing.component(Probe) as (probe, remote):
        event = remote.evt_position
        for x in (1.0, 2.0, 3.0):
            await probe.evt_position.set_write(value=x)
        await event.aopen()
        seen: list[float] = []

        def once(sample: Any) -> None:
            seen.append(sample.value)
            event.callback = None

        event.callback = once
        await turns()
        # Untaken samples remain for others.
        assert (await event.next(timeout=TIMEOUT_S)).value == 2.0
        assert seen == [1.0]


@asynchronous
async def test_a_callback_that_sets_another_comes_to_its_own_end() -> None:
    async with testing.component(Probe) as (probe, remote):
        event = remote.evt_position
        seen: list[Any] = []
        all_seen = asyncio.Event()

        def second(sample: Any) -> None:
            seen.append(("second", sample.value))
            all_seen.set()

        async def first(sample: Any) -> None:
            event.callback = second
            await asyncio.sleep(0)
            seen.append(("first", sample.value))

        event.callback = first
        for x in (1.0, 2.0):
            await probe.evt_position.set_write(value=x)
        await all_seen.wait()
        assert sorted(seen) == [("first", 1.0), ("second", 2.0)]


@asynchronous
async def test_a_callback_may_close_its_remote() -> None:
    async with testing.component(Probe) as (probe, remote):
        called: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def close(_sample: Any) -> None:
            remote.close()
            called.set_result(asyncio.current_task())

        remote.evt_position.callback = close
        await probe.evt_position.set_write(value=1.0)
        calling = await called
        await asyncio.wait([calling])
        assert calling.exception() is None


@asynchronous
async def test_blocking_work_of_users_does_not_hold_up_writers() -> None:
    go_on = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    blocking = asyncio.ensure_future(asyncio.to_thread(go_on.wait, TIMEOUT_S))
    try:
        async with testing.component(Probe) as (probe, remote):
            await probe.evt_position.set_write(value=1.0)
            assert (await remote.evt_position.next(timeout=TIMEOUT_S)).value == 1.0
            assert not blocking.done()
    finally:
        go_on.set()
        await blocking
