"""The live instance of a component, and what happens to samples that cannot be published."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from probe import TIMEOUT_S, Probe, asynchronous, send

import heliograph as helio
from heliograph import AckCode, State, testing
from heliograph._component import _send
from heliograph._component._commands import CommandOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heliograph.testing import ManualClock

pytestmark = pytest.mark.usefixtures("interfaces")

LEASE_S = 5.0


@pytest.fixture(params=["memory", "journal"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return testing.memory_url()
    return f"journal:{tmp_path / 'journal'}"


@pytest.fixture
def clock() -> ManualClock:
    return testing.ManualClock(helio.Time.now())


async def take_over(bus: helio.Bus, clock: ManualClock) -> Probe:
    """Start a successor of a component that is silent for longer than its lease."""
    while True:
        clock.advance(LEASE_S + 1.0)
        made = Probe(bus, initial_state=State.ENABLED)
        try:
            await made.start()
        except helio.LeaseError:
            # The lease thread ran in between.
            continue
        return made


@asynchronous
async def test_who_was_replaced_writes_no_more(url: str, clock: ManualClock) -> None:
    class Stubborn(Probe):
        told = ""

        async def do_hang(self, command: Any) -> str:
            try:
                return await super().do_hang(command)
            finally:
                try:
                    await self.evt_position.set_write(value=7.0)
                except helio.NotLive as error:
                    self.told = str(error)

    async with (
        testing.memory_bus(url, clock=clock) as theirs,
        testing.memory_bus(url, clock=clock) as ours,
    ):
        old = Stubborn(theirs, initial_state=State.ENABLED)
        with pytest.raises(helio.NotLive, match="it has not started"):
            await old.evt_position.set_write(value=0.0)
        await old.start()
        await old.tel_sample.set_write(number=1)
        remote = helio.Remote(ours, "Probe")
        call = send(remote.cmd_hang, timeout=1000.0)
        await old.hanging.wait()
        new = await take_over(ours, clock)
        await new.evt_position.set_write(value=1.0)
        # It may write neither unopened nor opened topics; nothing is queued.
        for write in (old.evt_position.set_write(value=7.0), old.tel_sample.write()):
            with pytest.raises(helio.NotLive, match=r"not Probe's to write: its lease is lost"):
                await write
        assert old.evt_position.data.value == 0.0
        with pytest.raises(helio.LeaseError, match="another instance has taken over"):
            await old.done_task
        assert "is not Probe's to write" in old.told
        assert "close_tasks" in old.hooks
        # A caller may look between the end of the old lease and the new one.
        with pytest.raises(helio.NobodyThere, match=r"was replaced|went away"):
            await call
        # The successor's topics are its own, without any other writer.
        await new.evt_position.set_write(value=2.0)
        await send(remote.cmd_move, axis=1)
        async with ours.topic("Probe/event/position").subscribe(start=helio.earliest()) as samples:
            assert [s.value["value"] for s in await samples.batch(timeout=0)] == [1.0, 2.0]
        await new.close()
        with pytest.raises(helio.NotLive, match="given back"):
            await new.evt_position.set_write(value=3.0)


@pytest.mark.parametrize("validate", [False, True])
@asynchronous
async def test_a_handler_that_had_to_wait_looks_again(clock: ManualClock, validate: bool) -> None:
    class Slow(Probe):
        command_options = {"move": CommandOptions(concurrent=True)}  # noqa: RUF012

        async def do_move(self, command: Any) -> None:
            self.ran.append(command)
            # As if the event loop were blocked for less than the lease.
            clock.advance(3.0)

    async with (
        testing.memory_bus(clock=clock) as bus,
        testing.component(Slow, bus=bus, initial_state=State.ENABLED) as (slow, remote),
    ):
        # Open what is needed, so that both are sent at once.
        await send(remote.cmd_move, axis=1, validate=True)
        options: dict[str, Any] = {"axis": 1, "timeout": 100.0, "expiry": 2.0}
        first = send(remote.cmd_move, **options)
        # Samples that are available together are processed in the order of their times.
        clock.advance(0.001)
        second = send(remote.cmd_move, validate=validate, **options)
        assert (await first).ack is AckCode.COMPLETE
        with pytest.raises(helio.CommandTimeout, match=r"expired .* before it could be taken"):
            await second
        assert len(slow.ran) == 1


class Counting(Probe):
    """A component that reports when three commands have run."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.three = asyncio.Event()

    async def do_move(self, command: Any) -> None:
        await super().do_move(command)
        if len(self.ran) == 3:
            self.three.set()


async def turns(count: int = 20) -> None:
    """Let the other tasks of the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


class Full:
    """A raw topic on a disk that is full."""

    full = False

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._raw, name)
        if name not in ("offer", "offer_with", "publish", "publish_with"):
            return real

        def publish(*arguments: Any) -> Any:
            if Full.full:
                raise helio.StorageError("no space left")
            return real(*arguments)

        return publish


class Held(Full):
    """A raw topic whose partition's lock is held by a stopped process."""

    go_on = threading.Event()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._raw, name)

        def publish(*arguments: Any) -> Any:
            assert Held.go_on.wait(TIMEOUT_S)
            return real(*arguments)

        if name.startswith("offer"):
            return lambda *arguments: real(*arguments) if Held.go_on.is_set() else None
        return publish if name.startswith("publish") else real


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Probe], None]:
    """Make the disk full for a component's engine, until `Full.full` is false again."""
    monkeypatch.setattr(_send, "RETRY_INTERVAL_S", 0.01)

    def fill(probe: Probe) -> None:
        engine = probe._engine
        monkeypatch.setattr(engine, "_acks", Full(engine._acks))
        monkeypatch.setattr(engine, "_audit", Full(engine._audit))
        for event in engine.events.values():
            monkeypatch.setattr(event._topic, "_raw", Full(event._topic._raw))
        monkeypatch.setattr(Full, "full", True)

    return fill


async def audit(bus: helio.Bus, count: int = 0) -> list[tuple[str, str, int]]:
    """Return the audit's records, once there are this many."""
    records: list[Any] = []
    async with bus.topic("Probe/audit").subscribe(start=helio.earliest()) as samples:
        while len(records) < count:
            records.append((await samples.next(timeout=TIMEOUT_S)).value)
        records += [sample.value for sample in await samples.batch(timeout=0)]
    return [(record["command"], record["phase"], record["ack"]) for record in records]


@asynchronous
async def test_what_cannot_be_told_is_told_later(fill_disk: Callable[[Probe], None]) -> None:
    async with (
        testing.memory_bus() as bus,
        testing.component(Counting, bus=bus, initial_state=State.ENABLED) as (probe, remote),
    ):
        remote.evt_summaryState.flush()
        remote.evt_errorCode.flush()
        fill_disk(probe)
        hanging = send(remote.cmd_hang, timeout=100.0)
        await probe.hanging.wait()
        calls = [send(remote.cmd_move, axis=1, timeout=100.0) for _ in range(2)]
        await probe.three.wait()
        await probe.fault(3, "oil is cold")
        probe.log.warning("nobody will read this")
        await turns()
        assert await audit(bus) == []
        assert not any(call.done for call in calls)
        Full.full = False
        for call in calls:
            assert (await call).ack is AckCode.COMPLETE
        assert (await remote.evt_errorCode.next(timeout=TIMEOUT_S)).errorCode == 3
        assert (await remote.evt_summaryState.next(timeout=TIMEOUT_S)).summaryState is State.FAULT
        probe.release.set()
        # Samples of that moment only are dropped: that it hangs, and log messages.
        assert [ack.ack async for ack in hanging] == [AckCode.COMPLETE]
        assert not any("nobody" in r.message for r in await logged(bus))
        complete = int(AckCode.COMPLETE)
        assert await audit(bus, 6) == [
            ("hang", "received", 0),
            ("move", "received", 0),
            ("move", "received", 0),
            ("move", "finished", complete),
            ("move", "finished", complete),
            ("hang", "finished", complete),
        ]


async def logged(bus: helio.Bus) -> list[Any]:
    remote = helio.Remote(bus, "Probe")
    kind = remote.evt_logMessage.type
    async with bus.topic(kind.topic, kind.schema).subscribe(start=helio.earliest()) as samples:
        return [sample.value for sample in await samples.batch(timeout=0)]


@asynchronous
async def test_what_waits_to_be_told_is_bounded_and_goes_with_the_lease(
    fill_disk: Callable[[Probe], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_send, "QUEUE_MAX", 2)
    # No retry takes a sample out of its queue while the test looks into it.
    monkeypatch.setattr(_send, "RETRY_INTERVAL_S", TIMEOUT_S)
    async with testing.component(Counting, initial_state=State.ENABLED) as (probe, remote):
        fill_disk(probe)
        calls = [send(remote.cmd_move, axis=1, timeout=100.0) for _ in range(3)]
        await probe.three.wait()
        await turns()
        assert not any(call.done for call in calls)
        queues = probe._engine.sender._queues
        records, acks = queues["Probe/audit"], queues["Probe/ackcmd"]
        # The audit drops its newest samples, others their oldest.
        assert [item.value["phase"] for item in records.samples] == ["received"] * 2
        told = [item.value["private_seqNum"] for item in acks.samples]
        assert told == [call.number for call in calls[1:]]
        assert (records.shed, acks.shed) == (4, 1)
        # Closing waits for it for a while, then continues.
        monkeypatch.setattr("heliograph._component._engine.STOP_TIMEOUT_S", 0.05)
        await probe.close()
        assert "2 samples were not published to Probe/ackcmd: no space left" in caplog.text
        assert acks.task is not None
        await asyncio.wait([acks.task])


@asynchronous
async def test_a_component_without_its_audit_takes_no_commands(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_send, "RETRY_INTERVAL_S", 0.01)
    async with (
        testing.memory_bus(clock=clock) as bus,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, remote),
    ):
        monkeypatch.setattr(probe._engine, "_audit", Full(probe._engine._audit))
        monkeypatch.setattr(Full, "full", True)
        move: dict[str, Any] = {"axis": 1, "timeout": 100.0}
        # For a while commands are accepted and acknowledged.
        assert (await send(remote.cmd_move, **move)).ack is AckCode.COMPLETE
        for _ in range(4):
            clock.advance(3.0)
            probe._engine.tick()
        # By that clock it was silent for longer than its lease, too; there is nothing to drop.
        probe._engine.admits()
        assert probe.summary_state is State.FAULT
        assert remote.evt_errorCode.get().errorCode == -1
        assert "audit of Probe cannot be written" in remote.evt_errorCode.get().errorReport
        with pytest.raises(helio.CommandFailed, match="audit of Probe cannot be written"):
            await send(remote.cmd_move, **move)
        assert len(probe.ran) == 1
        monkeypatch.setattr(Full, "full", False)
        async for record in remote.evt_logMessage:
            if record.message == "the audit is written again; commands are taken":
                break
        assert await audit(bus, 3) == [
            ("move", "received", 0),
            ("move", "finished", int(AckCode.COMPLETE)),
            ("move", "finished", int(AckCode.FAILED)),
        ]
        await remote.cmd_standby.set_start(timeout=100.0)


@asynchronous
async def test_topics_that_another_process_takes_are_taken_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_send, "RETRY_INTERVAL_S", 0.01)
    async with (
        helio.connect(url) as bus,
        helio.connect(url) as other,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, remote),
    ):
        await probe.evt_position.set_write(value=1.0)
        names = ("audit", "ackcmd", "event/summaryState", "event/position")
        intruders = [other.topic(f"Probe/{name}", producer="Probe") for name in names]
        for intruder in intruders:
            intruder._raw.claim()
        move = send(remote.cmd_move, axis=1, timeout=100.0)
        assert (await move).ack is AckCode.COMPLETE
        remote.evt_summaryState.flush()
        await remote.cmd_disable.set_start(timeout=100.0)
        state = await remote.evt_summaryState.next(timeout=TIMEOUT_S)
        assert state.summaryState is State.DISABLED
        assert (await probe.evt_position.set_write(value=2.0)).was_written
        complete = int(AckCode.COMPLETE)
        assert await audit(other, 4) == [
            ("move", "received", 0),
            ("move", "finished", complete),
            ("disable", "received", 0),
            ("disable", "finished", complete),
        ]
        for intruder in intruders:
            with pytest.raises(helio.Fenced):
                intruder._raw.assert_alive()


@asynchronous
async def test_no_topic_holds_up_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_send, "ORDER_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(Held, "go_on", threading.Event())
    async with (
        testing.memory_bus() as bus,
        testing.component(Counting, bus=bus, initial_state=State.ENABLED) as (probe, remote),
    ):
        remote.evt_heartbeat.flush()
        monkeypatch.setattr(probe._engine, "_audit", Held(probe._engine._audit))
        calls = [send(remote.cmd_move, axis=1, timeout=100.0) for _ in range(3)]
        await probe.three.wait()
        await probe.fault(3, "oil is cold")
        assert remote.evt_summaryState.get().summaryState is State.FAULT
        await remote.evt_heartbeat.next(timeout=TIMEOUT_S)
        # But no outcome is acknowledged before the audit has it.
        assert (await audit(bus), [call.done for call in calls]) == ([], [False] * 3)
        Held.go_on.set()
        for call in calls:
            await call
        assert len(await audit(bus, 6)) == 6


@asynchronous
async def test_acknowledgements_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_send, "ORDER_TIMEOUT_S", 0.01)
    monkeypatch.setattr(Held, "go_on", threading.Event())
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        monkeypatch.setattr(probe._engine, "_audit", Held(probe._engine._audit))
        assert (await send(remote.cmd_move, axis=1, timeout=100.0)).ack is AckCode.COMPLETE
        Held.go_on.set()


@asynchronous
async def test_components_that_never_ran_leave_the_log_alone() -> None:
    async with testing.memory_bus() as bus:
        # Objects of other tests go first: a failed one keeps its own.
        gc.collect()
        log = logging.getLogger("Probe")
        before = list(log.handlers)
        probe = Probe(bus)
        assert len(log.handlers) == len(before) + 1
        del probe
        gc.collect()
        assert log.handlers == before
