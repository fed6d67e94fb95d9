"""Commands: acknowledgements, refusals, cancellation, keys, expiry, locks and streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from probe import TIMEOUT_S, Multi, Probe, asynchronous, send

import heliograph as helio
from heliograph import AckCode, State, testing
from heliograph._heliograph import PRESENCE_POLL_INTERVAL_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


def enabled(**options: Any) -> Any:
    return testing.component(Probe, initial_state=State.ENABLED, **options)


def write(path: Path, text: str | None) -> None:
    """Write a file, or remove it."""
    if text is None:
        path.unlink()
    else:
        path.write_text(text)


async def audit(bus: helio.Bus, component: str = "Probe") -> list[dict[str, Any]]:
    async with bus.topic(f"{component}/audit").subscribe(start=helio.earliest()) as samples:
        return [sample.value for sample in await samples.batch(timeout=0)]


@asynchronous
async def test_results_are_told(url: str) -> None:
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, remote):
        ack = await send(remote.cmd_move, axis=1, position=3.0, timeout=TIMEOUT_S)
        assert ack == helio.Ack(AckCode.COMPLETE, result="Done")
        (command,) = probe.ran
        assert (command.position, command.axis) == (3.0, probe.enums.Axis.Azimuth)
        assert command.private_origin == os.getpid()
        assert "@" in command.private_identity
        assert command.private_rcvStamp >= command.private_sndStamp > 1.7e9
        for result, text, value in (
            ("in place", "in place", None),
            ({"at": [1, 2]}, "Done", {"at": [1, 2]}),
            (np.float64(2.5), "Done", 2.5),
            (np.arange(3), "Done", [0, 1, 2]),
            (False, "Done", False),
        ):
            probe.result = result
            ack = await send(remote.cmd_move, axis=1)
            assert (ack.result, ack.value) == (text, value)
        probe.result = object()
        with pytest.raises(helio.CommandFailed, match="no result"):
            await send(remote.cmd_move, axis=1)


@asynchronous
async def test_handlers_fail_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with enabled() as (probe, remote):
        for error, kind, code, text in (
            (helio.ExpectedError("expected", code=5), helio.CommandFailed, 5, "expected"),
            (RuntimeError("boom"), helio.CommandFailed, 1, "RuntimeError: boom"),
            (TimeoutError("too long"), helio.CommandTimeout, 0, "too long"),
            (asyncio.CancelledError(), helio.CommandAborted, 0, "cancelled"),
        ):
            caplog.clear()
            probe.fails["move"] = error
            with pytest.raises(kind, match=text) as caught:
                await send(remote.cmd_move, axis=1)
            assert caught.value.ack.error == code
            assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)
            assert isinstance(caught.value, helio.AckError)
        probe.fails.clear()
        assert (await send(remote.cmd_move, axis=1)).ack is AckCode.COMPLETE
        assert isinstance(helio.AckTimeoutError("x", helio.Ack(AckCode.TIMEOUT)), TimeoutError)


@asynchronous
async def test_progress_extends_the_deadline() -> None:
    clock = testing.ManualClock(helio.Time.now())
    async with testing.memory_bus(clock=clock) as bus, enabled(bus=bus) as (probe, remote):
        heard: list[helio.Ack] = []
        call = send(remote.cmd_hang, name="x", timeout=0.2, progress=heard.append)
        await probe.hanging.wait()
        first = await call.next_ack(timeout=TIMEOUT_S)
        assert first == helio.Ack(AckCode.IN_PROGRESS, 0, "hanging", 20.0, 0.25, {"of": 4})
        assert heard == [first]
        assert not call.done
        assert "IN_PROGRESS 'hanging'" in repr(call)
        clock.advance(0.25)
        remote._calling._tick()
        assert not call.done
        probe.release.set()
        acks = [ack async for ack in call]
        assert [ack.ack for ack in acks] == [AckCode.COMPLETE]
        assert (await call).result == "released x"
        with pytest.raises(RuntimeError, match="ended"):
            await call.next_ack()
        with pytest.raises(RuntimeError, match="is not running"):
            await probe.in_progress(probe.ran[0], 1.0)


@asynchronous
async def test_not_waiting_for_the_end() -> None:
    async with enabled() as (probe, remote):
        call = send(remote.cmd_hang, wait_done=False)
        assert (await call).ack is AckCode.IN_PROGRESS
        probe.release.set()
        assert (await call.wait()).ack is AckCode.COMPLETE


@asynchronous
async def test_a_component_that_says_nothing_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Probe):
        async def do_move(self, command: Any) -> None:
            await self.release.wait()

    async with testing.component(Silent) as (probe, remote):
        with pytest.raises(
            helio.CommandTimeout, match="no acknowledgement from Probe within 50 ms"
        ):
            await send(remote.cmd_move, axis=1, timeout=0.05)
        with pytest.raises(helio.CommandError):
            await remote.cmd_unhandled.set_start(timeout=0.05)
        probe.release.set()


@asynchronous
async def test_wrong_values_are_refused_before_they_are_sent() -> None:
    async with enabled() as (probe, remote):
        for fields, field in (
            ({"height": 1}, "height"),
            ({"position": "high"}, "position"),
            ({"forces": [1, 2, 3]}, "forces"),
            ({"forces": [1, 2, 3, 4, 5]}, "forces"),
            ({"forces": 1.0}, "forces"),
            ({"axis": 3}, "axis"),
            ({"axis": 300}, "axis"),
            ({"flags": 8}, "flags"),
            ({"count": -1}, "count"),
            ({"count": 70_000}, "count"),
            ({"big": 2**63}, "big"),
            ({"name": 5}, "name"),
            ({"speed": 1e300}, "speed"),
            ({"salIndex": 1}, "salIndex"),
        ):
            with pytest.raises(helio.EncodeError, match=field) as caught:
                send(remote.cmd_move, **{"axis": 1, **fields})
            assert field in caught.value.path
            with pytest.raises(helio.EncodeError, match=field):
                remote.cmd_move.set(**{"axis": 1, **fields})
        assert probe.ran == []
        with pytest.raises(AttributeError, match="cmd_fly"):
            _ = remote.cmd_fly
        # Flags may be joined; set values are sent.
        whole = remote.cmd_move.data_type(axis=1).as_dict()
        remote.cmd_move.set(**{**whole, "axis": 2, "flags": 5})
        remote.cmd_move.set(position=None)
        await remote.cmd_move.start()
        await remote.cmd_move.start(remote.cmd_move.data_type(**whole))
        assert [(each.axis, each.flags) for each in probe.ran] == [(2, 5), (1, 0)]


@asynchronous
async def test_an_enumeration_that_nobody_set_is_judged_by_the_component() -> None:
    async with testing.memory_bus() as bus, enabled(bus=bus) as (probe, _):
        move = helio.Remote(bus, "Probe", missing_fields="default").cmd_move
        # As SAL's own callers send it, whatever else is set.
        for call in (move.set_start(position=1.0), move.start(), move.set_start(validate=True)):
            with pytest.raises(helio.CommandFailed, match=r"axis is 0; it must be 1 \(Azimuth\)"):
                await call
        data = move.data_type()
        for refused in (
            lambda: move.set_start(axis=0),
            lambda: move.set(axis=0),
            lambda: move.set_start(axis=probe.enums.Flag.C),
        ):
            with pytest.raises(helio.EncodeError, match=r"Probe\.cmd_move: axis is") as caught:
                refused()
            assert caught.value.path == "axis"
        data.axis = 3
        with pytest.raises(helio.EncodeError, match="axis is 3"):
            move.start(data)
        assert probe.ran == []


@asynchronous
async def test_what_could_not_be_sent_is_refused_and_nothing_waits() -> None:
    async with enabled() as (probe, remote):
        wrong: list[dict[str, Any]] = [
            {"key": ""},
            {"key": "k" * 129},
            {"expiry": float("inf")},
            {"expiry": float("nan")},
            {"expiry": 1e10},
            {"timeout": float("inf")},
            {"timeout": float("nan")},
            {"timeout": -1.0},
        ]
        for options in wrong:
            with pytest.raises(ValueError, match=r"helio-key|not a valid (expiry|timeout)"):
                send(remote.cmd_move, axis=1, **options)
        for caller in ("", "x" * 257, "x" * 5000):
            with pytest.raises(ValueError, match="helio-caller"):
                helio.Remote(remote.bus, "Probe", caller=caller)
        calling = remote._calling
        assert (calling._caller.pending, calling._calls, probe.ran) == (0, {}, [])
        assert (await send(remote.cmd_move, axis=1, key="k" * 128)).ack is AckCode.COMPLETE


@asynchronous
async def test_no_caller_passes_for_the_component_itself() -> None:
    async with helio.connect(testing.memory_url()) as bus, enabled(bus=bus) as (_, remote):
        remote._calling._origin = -1
        await send(remote.cmd_move, axis=1)
        records = [(record["command"], record["origin"]) for record in await audit(bus)]
        # Two of the caller's command, and none of the component's own at its start.
        assert records == [("move", -1)] * 2


@asynchronous
async def test_arguments_in_the_audit_are_json() -> None:
    def refuse(number: str) -> None:
        raise AssertionError(f"{number} is not in JSON")

    async with helio.connect(testing.memory_url()) as bus, enabled(bus=bus) as (_, remote):
        await send(remote.cmd_move, axis=1, position=float("nan"), forces=[-np.inf, 0, 0.1, 1])
        first = (await audit(bus))[0]["arguments"]
        # Numbers of the schema's type, with no more digits than necessary.
        assert json.loads(first, parse_constant=refuse) == {
            "position": "NaN",
            "speed": 0.0,
            "axis": 1,
            "flags": 0,
            "count": 0,
            "forces": ["-Infinity", 0.0, 0.1, 1.0],
            "name": "",
            "big": 0,
        }
        async with testing.component(Multi, 3, bus=bus) as (_, other):
            await send(other.cmd_track, taiTime=helio.Time.now().tai_seconds + 100)
            assert set(json.loads((await audit(bus, "Multi"))[0]["arguments"])) == {
                "taiTime",
                "target",
            }


class Broken:
    """A subscription that cannot be read any more."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def seek(self, partition: int, offset: int) -> None:
        self._raw.seek(partition, offset)
        # The real one reads ahead while it is waited for; this one keeps its position.
        at = self._raw.positions()
        self.positions = lambda: at

    def take_many(self, _count: int) -> Any:
        raise helio.SubscribeError("the disk is gone")


def break_pump(dispatcher: Any, place: int) -> None:
    pump = dispatcher._sources[place]
    pump.raw = Broken(pump.raw)


@asynchronous
async def test_calls_end_where_acknowledgements_cannot_be_read() -> None:
    async with enabled() as (probe, remote):
        call = send(remote.cmd_hang, timeout=1000.0)
        await probe.hanging.wait()
        await call.next_ack(timeout=TIMEOUT_S)
        break_pump(remote._calling._acks, 0)
        probe.release.set()
        told = "whether it ran is unknown: the disk is gone"
        with pytest.raises(helio.NobodyThere, match=told):
            await call
        # The next one reopens it.
        assert (await send(remote.cmd_move, axis=1)).ack is AckCode.COMPLETE


@pytest.mark.parametrize("times", [1, 2])
@asynchronous
async def test_commands_that_cannot_be_read_are_read_again(
    times: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph._component._engine.REOPEN_INTERVAL_S", 0.01)
    async with enabled() as (probe, remote):
        engine = probe._engine
        subscribe, left = engine._subscribe, times - 1

        def failing(command: Any) -> Any:
            nonlocal left
            left -= 1
            return subscribe(command) if left < 0 else Broken(subscribe(command))

        monkeypatch.setattr(engine, "_subscribe", failing)
        break_pump(engine._dispatcher, place_of(engine, "move"))
        lost = send(remote.cmd_move, axis=1, timeout=1000.0)
        # The others continue.
        hanging = send(remote.cmd_hang, timeout=1000.0)
        await probe.hanging.wait()
        assert "commands move cannot be read: the disk is gone; all others are" in caplog.text
        # A sample that failed once is processed; one that fails twice is skipped.
        told = "commands move are read again"
        told += "; stored requests are skipped" if times == 2 else ""
        async for record in remote.evt_logMessage:
            if record.message == told:
                break
        if times == 1:
            assert (await lost).ack is AckCode.COMPLETE
        assert (await send(remote.cmd_move, axis=2)).ack is AckCode.COMPLETE
        assert [c.axis for c in probe.ran if hasattr(c, "axis")] == [1, 2][times - 1 :]
        probe.release.set()
        await hanging


class Lapsed:
    """A lease that had expired again for a while, and was not taken meanwhile."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease
        self.lapses = lease.lapses + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)


def place_of(engine: Any, name: str | None) -> int:
    """Return the index of a command's source, or of the topic `control`."""
    for place, pump in enumerate(engine._dispatcher._sources):
        command = engine._sources[pump][0]
        if (command and command.topic.name) == name:
            return place
    raise AssertionError(name)


@asynchronous
async def test_cancelling_beside_commands_that_cannot_be_read() -> None:
    async with enabled() as (probe, remote):
        dispatcher = probe._engine._dispatcher
        hanging = send(remote.cmd_hang, timeout=1000.0)
        await probe.hanging.wait()
        # A request on `control` is found in one turn with an unreadable topic, and polls all
        # commands.
        break_pump(dispatcher, place_of(probe._engine, "move"))
        cancelled = hanging.cancel(timeout=TIMEOUT_S)
        count = len(dispatcher)
        dispatcher.run([*dispatcher._sources])
        assert len(dispatcher) == count - 1
        assert (await cancelled).ack is AckCode.COMPLETE
        with pytest.raises(helio.CommandAborted):
            await hanging
        # All other topics are read.
        probe.hanging.clear()
        hanging = send(remote.cmd_hang, timeout=1000.0)
        await probe.hanging.wait()
        assert (await hanging.cancel(timeout=TIMEOUT_S)).ack is AckCode.COMPLETE


@asynchronous
async def test_a_lapse_is_one_for_all_commands_whichever_can_be_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nowhere(Broken):
        def positions(self) -> Any:
            raise helio.SubscribeError("the disk is gone")

    async with enabled() as (probe, remote):
        engine = probe._engine
        # Its topic is open and the presence known, so that it is sent at once.
        await send(remote.cmd_hang, validate=True)
        remote.presence()
        dropped = send(remote.cmd_hang, timeout=1000.0)
        place = place_of(engine, None)
        assert place < place_of(engine, "hang")
        pump = engine._dispatcher._sources[place]
        pump.raw = Nowhere(pump.raw)
        monkeypatch.setattr(engine, "lease", Lapsed(engine.lease))
        assert not engine.admits()
        assert "control requests cannot be read: the disk is gone" in caplog.text
        assert "the lease had lapsed; 1 requests are dropped" in caplog.text
        assert (await send(remote.cmd_move, axis=1)).ack is AckCode.COMPLETE
        assert [hasattr(command, "axis") for command in probe.ran] == [True]
        assert not dropped.done


class Unfetched:
    """A subscription that fetches nothing for now, and does not know what is stored meanwhile."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.is_frozen = True
        self._positions = [
            (partition, following, following) for partition, following, _ in raw.positions()
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def positions(self) -> Any:
        return self._positions if self.is_frozen else self._raw.positions()

    def arm(self, *arguments: Any) -> bool:
        return not self.is_frozen and self._raw.arm(*arguments)

    def take_many(self, count: int) -> Any:
        return ([], [], 0) if self.is_frozen else self._raw.take_many(count)

    def take_stored(self, count: int) -> Any:
        return ([], [], False) if self.is_frozen else self._raw.take_stored(count)


@pytest.mark.parametrize("replaced", [False, True])
@asynchronous
async def test_a_call_does_not_end_before_its_stored_acknowledgement_is_fetched(
    replaced: bool,
) -> None:
    url = testing.memory_url()
    async with (
        helio.connect(url) as calling,
        helio.connect(url) as bus,
        contextlib.AsyncExitStack() as later,
    ):
        remote = helio.Remote(calling, "Probe")
        async with testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, _):
            await send(remote.cmd_move, axis=1)
            assert remote._calling._acks is not None
            (source,) = remote._calling._acks._sources
            unfetched: Any = Unfetched(source.raw)
            source.raw = unfetched
            done = send(remote.cmd_move, axis=1, timeout=1000.0)
            # Commands of one name run in order.
            await send(helio.Remote(bus, "Probe").cmd_move, axis=1)
            assert len(probe.ran) == 3
        if replaced:
            await later.enter_async_context(Probe(bus, initial_state=State.ENABLED))
        for _ in range(5):
            assert await remote.apresence() == ("here" if replaced else "gone")
            await asyncio.sleep(PRESENCE_POLL_INTERVAL_S)
        assert not done.done
        if replaced:
            # A new command is not sent to the old instance, and waits.
            other = send(remote.cmd_move, axis=1, timeout=1000.0)
        unfetched.is_frozen = False
        assert (await done).ack is AckCode.COMPLETE
        # The frozen subscription has armed no bell of the transport.
        source.wake()
        if replaced:
            assert (await other).ack is AckCode.COMPLETE


@asynchronous
async def test_requests_from_before_a_lapse_that_come_late_do_not_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = testing.memory_url()
    # Each sample is delivered some polls late, too.
    late = testing.fault_url(url, delay=1.0, seed=3)
    async with (
        helio.connect(url) as calling,
        helio.connect(late) as bus,
        testing.component(Probe, bus=bus, initial_state=State.ENABLED) as (probe, _),
        helio.Remote(calling, "Probe") as remote,
    ):
        engine = probe._engine
        hanging = send(remote.cmd_hang, timeout=1000.0)
        await probe.hanging.wait()
        sources = [*engine._dispatcher._sources]
        for source in sources:
            source.raw = Unfetched(source.raw)
        topic = remote.cmd_move.type
        stored = calling.topic(topic.topic, topic.schema, qos=topic.qos).subscribe()
        lapsed = [send(remote.cmd_move, axis=1, timeout=1000.0) for _ in range(3)]
        for _ in lapsed:
            await testing.next_value(stored)
        cancelled = hanging.cancel(timeout=TIMEOUT_S)
        control = calling.topic("Probe/control", qos=None).subscribe(start=helio.earliest())
        await testing.next_value(control)
        monkeypatch.setattr(engine, "lease", Lapsed(engine.lease))
        assert not engine.admits()
        assert "the lease had lapsed; 0 requests are dropped" in caplog.text
        for source in sources:
            source.raw.is_frozen = False

        async def ring() -> None:
            # The frozen subscriptions have armed no bell of the transport.
            while True:
                engine._dispatcher.run(sources)
                await asyncio.sleep(0.01)

        bell = asyncio.create_task(ring())
        for _ in range(int(TIMEOUT_S * 100)):
            if "more requests" in caplog.text:
                break
            await asyncio.sleep(0.01)
        assert "3 more requests that were stored are dropped" in caplog.text
        assert (await send(remote.cmd_move, axis=2)).ack is AckCode.COMPLETE
        assert [command.axis for command in probe.ran if hasattr(command, "axis")] == [2]
        # A cancellation is processed, however late it arrives.
        assert (await cancelled).ack is AckCode.COMPLETE
        with pytest.raises(helio.CommandAborted):
            await hanging
        assert not any(call.done for call in lapsed)
        bell.cancel()


class Unconfirmed(Lapsed):
    """A lease that has expired, and is unconfirmed because the bus does not answer."""

    def __init__(self, lease: Any) -> None:
        super().__init__(lease)
        self.lapses = lease.lapses

    def standing(self) -> tuple[str, int]:
        return ("lapsed", self._lease.standing()[1])


@asynchronous
async def test_a_lease_that_cannot_be_confirmed_ends_nobody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with enabled() as (probe, remote):
        engine = probe._engine
        lease = engine.lease
        monkeypatch.setattr(engine, "lease", Unconfirmed(lease))
        refused = send(remote.cmd_move, axis=1, timeout=1000.0)
        with pytest.raises(helio.StorageError, match="the lease is not confirmed"):
            await probe.evt_position.set_write(value=3.0)
        for _ in range(int(TIMEOUT_S * 100)):
            # Its acknowledgement is queued.
            if "ackcmd" in caplog.text:
                break
            await asyncio.sleep(0.01)
        assert "no command runs for now" in caplog.text
        # What lies in the topics when the bus is back is answered, too.
        late = send(remote.cmd_move, axis=1, timeout=1000.0)
        monkeypatch.setattr(engine, "lease", Lapsed(lease))
        assert not engine.admits()
        assert "the lease had lapsed; 0 requests are dropped" in caplog.text
        for call in (refused, late):
            with pytest.raises(helio.CommandFailed, match="cannot be confirmed; not run"):
                await call
        assert (await send(remote.cmd_move, axis=2)).ack is AckCode.COMPLETE
        assert [command.axis for command in probe.ran] == [2]


@asynchronous
async def test_a_lapse_while_commands_are_subscribed_to_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph._component._engine.REOPEN_INTERVAL_S", 0.01)
    async with enabled() as (probe, remote):
        engine, loop = probe._engine, asyncio.get_running_loop()
        resume, subscribed, go_on = engine._resume, asyncio.Event(), threading.Event()

        def slow(*arguments: Any) -> Any:
            raw = resume(*arguments)
            loop.call_soon_threadsafe(subscribed.set)
            assert go_on.wait(TIMEOUT_S)
            return raw

        monkeypatch.setattr(engine, "_resume", slow)
        break_pump(engine._dispatcher, place_of(engine, "move"))
        dropped = send(remote.cmd_move, axis=1, timeout=1000.0)
        await subscribed.wait()
        monkeypatch.setattr(engine, "lease", Lapsed(engine.lease))
        assert not engine.admits()
        go_on.set()
        async for record in remote.evt_logMessage:
            if record.message.startswith("commands move are read again"):
                break
        assert (await send(remote.cmd_move, axis=2)).ack is AckCode.COMPLETE
        assert [command.axis for command in probe.ran] == [2]
        assert not dropped.done


@asynchronous
async def test_a_component_that_cannot_read_its_commands_ends() -> None:
    async with testing.memory_bus() as bus:
        probe = Probe(bus)
        await probe.start()
        for place in range(len(probe._engine._dispatcher)):
            break_pump(probe._engine._dispatcher, place)
        probe._engine._dispatcher.poll()
        with pytest.raises(helio.SubscribeError, match="the disk is gone"):
            await probe.done_task
        async with testing.component(Probe, bus=bus):
            pass


@asynchronous
async def test_wrong_values_are_refused_where_they_arrive(url: str) -> None:
    """Callers that check nothing: their commands are answered, and the component continues."""
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, remote):
        topic = remote.cmd_move.type
        raw = bus.topic(topic.topic, topic.schema, qos=topic.qos)
        acks = bus.topic("Probe/ackcmd", qos=None).subscribe()

        async def refused(**fields: Any) -> str:
            value = topic.data_type(**{"axis": 1, "private_identity": "me@here", **fields})
            value.private_origin, value.private_seqNum = 7, 11
            await raw.publish(value)
            ack = await testing.next_value(acks)
            assert (ack["identity"], ack["origin"], ack["private_seqNum"]) == ("me@here", 7, 11)
            assert ack["ack"] == AckCode.FAILED
            # Its index among all of the component's topics, sorted by SAL's names.
            assert ack["cmdtype"] == 5
            return str(ack["result"])

        nan = float("nan")
        for fields, told in (
            ({"axis": 7}, "axis is 7"),
            ({"flags": 16}, "flags is 16"),
            ({"count": -1}, "count is -1"),
            ({"position": 10.5}, "position is 10.5"),
            ({"position": -11.0}, "position is -11"),
            ({"forces": [1, 2, 3, 101]}, r"forces[3] is 101"),
            ({"speed": nan}, "speed is NaN"),
            ({"forces": [1, nan, 3, 4]}, r"forces[1] is NaN"),
        ):
            assert told in await refused(**fields)
        assert probe.ran == []
        assert (await send(remote.cmd_move, axis=1, position=nan)).ack is AckCode.COMPLETE
        entries = [each for each in await audit(bus) if each["command"] == "move"]
        assert [each["phase"] for each in entries] == ["finished"] * 8 + ["received", "finished"]


@asynchronous
async def test_an_array_of_another_length_is_answered(url: str) -> None:
    """SAL's own schema has no lengths, so that its writers can send any."""
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, remote):
        topic = remote.cmd_move.type
        acks = bus.topic("Probe/ackcmd").subscribe()
        raw = bus.topic(topic.topic, topic.info.sal_schema, qos=topic.qos)
        for forces in ([1.0, 2.0], [1.0] * 5):
            value = {"forces": forces, "axis": 1, "private_seqNum": 3, "private_identity": "x"}
            await raw.publish(value)
            ack = await testing.next_value(acks)
            assert "forces" in ack["result"]
            assert (ack["private_seqNum"], ack["identity"]) == (3, "x")
        await raw.publish({"axis": 1})
        assert (await testing.next_value(acks))["ack"] == AckCode.COMPLETE
        assert len(probe.ran) == 1


@asynchronous
async def test_commands_without_handler_or_in_the_wrong_state() -> None:
    async with testing.component(Probe) as (_, remote):
        with pytest.raises(helio.CommandFailed, match="unhandled"):
            await remote.cmd_unhandled.set_start()
        with pytest.raises(helio.CommandFailed, match=r"enable.*STANDBY"):
            await remote.cmd_enable.set_start()
        with pytest.raises(helio.CommandFailed, match="move is not allowed in state STANDBY"):
            await send(remote.cmd_move, axis=1)


@asynchronous
async def test_a_running_command_is_cancelled(url: str) -> None:
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, remote):
        running = send(remote.cmd_hang, name="one")
        await probe.hanging.wait()
        waiting = send(remote.cmd_hang, name="two")
        assert (await waiting.cancel()).ack is AckCode.COMPLETE
        with pytest.raises(helio.CommandAborted):
            await waiting
        await running.cancel(timeout=TIMEOUT_S)
        with pytest.raises(helio.CommandAborted):
            await running
        with pytest.raises(helio.CommandFailed, match="not running"):
            await running.cancel()
        # The queue is free again.
        probe.release.set()
        assert (await send(remote.cmd_hang, name="three")).result == "released three"
        assert [each.name for each in probe.ran] == ["one", "three"]


@asynchronous
async def test_commands_of_a_lane_run_one_after_the_other() -> None:
    class Both(Probe):
        @helio.command(concurrent=True)
        async def do_hang(self, command: Any) -> str:
            return await Probe.do_hang(self, command)

    for kind, together in ((Probe, 1), (Both, 3)):
        async with testing.component(kind, initial_state=State.ENABLED) as (probe, remote):
            calls = [send(remote.cmd_hang, name=str(number)) for number in range(3)]
            await probe.hanging.wait()
            await asyncio.gather(*(send(remote.cmd_move, axis=1) for _ in range(3)))
            assert len([each for each in probe.ran if hasattr(each, "big")]) == 3
            assert len(probe.ran) == 3 + together
            probe.release.set()
            results = [(await call).result for call in calls]
            assert results == ["released 0", "released 1", "released 2"]


@asynchronous
async def test_a_command_is_validated_and_not_run() -> None:
    async with enabled() as (probe, remote):
        ack = await send(remote.cmd_move, axis=1, validate=True)
        assert (ack.ack, ack.result) == (AckCode.COMPLETE, "valid")
        for fields, told in (
            ({"position": 11.0}, "position is 11"),
            ({"name": "nobody"}, "nobody cannot be moved"),
            ({"speed": float("nan")}, "speed"),
        ):
            with pytest.raises(helio.CommandFailed, match=told):
                await send(remote.cmd_move, axis=1, validate=True, **fields)
        with pytest.raises(helio.CommandFailed, match="ENABLED"):
            await send(remote.cmd_start, validate=True)
        assert (await remote.cmd_disable.set_start(validate=True)).result == "valid"
        assert probe.ran == []
        assert probe.summary_state is State.ENABLED


@asynchronous
async def test_a_key_is_run_once(url: str) -> None:
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, remote):
        first = send(remote.cmd_hang, name="x", key="night-1")
        await probe.hanging.wait()
        second = send(remote.cmd_hang, name="x", key="night-1", wait_done=False)
        assert (await second).ack is AckCode.IN_PROGRESS
        probe.release.set()
        assert (await first).result == (await second.wait()).result == "released x"
        third = await send(remote.cmd_hang, name="x", key="night-1")
        assert third.result == "released x"
        with pytest.raises(helio.CommandFailed, match="was given to hang with other values before"):
            await send(remote.cmd_hang, name="y", key="night-1")
        probe.fails["move"] = helio.ExpectedError("not today")
        for _ in range(2):
            with pytest.raises(helio.CommandFailed, match="not today"):
                await send(remote.cmd_move, axis=1, key="night-2")
        assert len(probe.ran) == 2


@asynchronous
async def test_a_stale_command_is_never_run() -> None:
    clock = testing.ManualClock(helio.Time.parse("2026-01-01T00:00:00Z"))
    async with testing.memory_bus(clock=clock) as bus, enabled(bus=bus) as (probe, remote):
        running = send(remote.cmd_hang, name="x", timeout=1000.0)
        await probe.hanging.wait()
        waiting = send(remote.cmd_hang, name="y", expiry=3.0, timeout=1000.0)
        # It was read, and waits for the first one; then it is too old.
        await send(remote.cmd_move, axis=1)
        clock.advance(4.0)
        probe.release.set()
        with pytest.raises(helio.CommandTimeout, match="not run"):
            await waiting
        await running
        late = send(remote.cmd_move, axis=1, expiry=-1.0)
        with pytest.raises(helio.CommandTimeout, match="expired"):
            await late
        assert [getattr(each, "name", None) for each in probe.ran] == ["x", ""]


@asynchronous
async def test_a_lock_keeps_others_out(url: str) -> None:
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, _):
        alice = helio.Remote(bus, "Probe", caller="alice@summit")
        bob = helio.Remote(bus, "Probe", caller="bob@base")
        assert (await alice.lock(60.0)).ack is AckCode.COMPLETE
        assert probe.locked_by == "alice@summit"
        await send(alice.cmd_move, axis=1)
        with pytest.raises(helio.NotPermitted, match="alice@summit"):
            await send(bob.cmd_move, axis=1)
        with pytest.raises(helio.NotPermitted, match="alice@summit"):
            await bob.lock(1.0)
        with pytest.raises(helio.CommandFailed):
            await alice.lock(4000.0)
        # The component's own requests are not locked out.
        await probe.go_to(State.DISABLED)
        await alice.unlock()
        assert probe.locked_by is None
        await bob.cmd_enable.set_start()


@asynchronous
async def test_a_lock_ends_by_itself() -> None:
    clock = testing.ManualClock(helio.Time.parse("2026-01-01T00:00:00Z"))
    async with testing.memory_bus(clock=clock) as bus, enabled(bus=bus):
        alice, bob = (helio.Remote(bus, "Probe", caller=who) for who in ("alice", "bob"))
        await alice.lock(2.0)
        clock.advance(1.9)
        with pytest.raises(helio.NotPermitted):
            await send(bob.cmd_move, axis=1)
        clock.advance(0.2)
        await send(bob.cmd_move, axis=1)


@pytest.fixture
def authorization(tmp_path: Path) -> Path:
    path = tmp_path / "authorization.yaml"
    path.write_text(
        "default: deny\ntrust: declared\n"
        "roles:\n  all: ['*']\n  look: ['Probe.move', '*.setLogLevel']\n"
        "identities:\n  'alice*': [all]\n  'bob@base': [look]\n"
    )
    return path


@asynchronous
async def test_authorization_is_by_command_and_caller(
    authorization: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with enabled(authorization=authorization) as (probe, remote):
        bus = remote.bus
        alice, bob = (helio.Remote(bus, "Probe", caller=c) for c in ("alice@x", "bob@base"))
        await alice.cmd_disable.set_start()
        await alice.cmd_enable.set_start()
        await send(bob.cmd_move, axis=1)
        with pytest.raises(helio.NotPermitted, match=r"bob@base.*look.*disable"):
            await bob.cmd_disable.set_start()
        with pytest.raises(helio.NotPermitted, match="named nowhere"):
            await send(remote.cmd_move, axis=1)
        # An invalid file changes nothing, and is logged once.
        write(authorization, "default: perhaps\n")
        assert not await probe.reload_authorization()
        assert not await probe.reload_authorization()
        assert caplog.text.count("the last valid one stays in force") == 1
        await send(bob.cmd_move, axis=1)
        write(authorization, None)
        for _ in range(2):
            assert not await probe.reload_authorization()
        assert caplog.text.count("the last valid one stays in force") == 2
        write(authorization, "default: allow\n")
        assert await probe.reload_authorization()
        await bob.cmd_disable.set_start()
        await remote.cmd_enable.set_start()
        refused = [e for e in await audit(bus) if e["ack"] == AckCode.NO_PERM]
        first = refused[0]
        assert (first["caller"], first["command"]) == ("declared:bob@base", "disable")


@asynchronous
async def test_a_changed_authorization_is_noticed(authorization: Path) -> None:
    async with enabled(authorization=authorization) as (_, remote):
        with pytest.raises(helio.NotPermitted):
            await send(remote.cmd_move, axis=1)
        write(authorization, "default: allow\n")
        async for value in remote.evt_logMessage:
            if "is in force" in value.message:
                break
        await send(remote.cmd_move, axis=1)


@asynchronous
async def test_a_wrong_authorization_is_refused_at_the_start(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    async with testing.memory_bus() as bus:
        for text in (None, "default: perhaps\n", "roles: 3\n"):
            if text is not None:
                wrong.write_text(text)
            with pytest.raises(helio.HelioError, match=r"wrong\.yaml"):
                await Probe(bus, authorization=wrong).start()


@asynchronous
async def test_every_command_is_in_the_audit(url: str) -> None:
    async with helio.connect(url) as bus, enabled(bus=bus) as (probe, _):
        remote = helio.Remote(bus, "Probe", caller="alice@summit")
        await send(remote.cmd_move, axis=2, position=1.5, name="x")
        probe.fails["move"] = helio.ExpectedError("no", code=3)
        with pytest.raises(helio.CommandFailed):
            await send(remote.cmd_move, axis=2)
        entries = await audit(bus)
        assert [(e["command"], e["phase"], e["ack"], e["error"]) for e in entries] == [
            ("move", "received", 0, 0),
            ("move", "finished", 303, 0),
            ("move", "received", 0, 0),
            ("move", "finished", -302, 3),
        ]
        first = entries[0]
        assert (first["caller"], first["component"]) == ("declared:alice@summit", "Probe")
        assert first["index"] == 0
        assert json.loads(first["arguments"])["position"] == 1.5
        assert entries[1]["duration"] >= 0.0


@asynchronous
async def test_late_commands_of_a_stream_are_ignored_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with enabled() as (probe, remote):
        remote.cmd_track.stream("taiTime")
        now = helio.Time.now().tai_seconds
        await send(remote.cmd_track, taiTime=now + 100.0)
        for _ in range(4):
            with pytest.raises(helio.CommandTimeout, match="after its time"):
                await send(remote.cmd_track, taiTime=now - 1.0)
        await send(remote.cmd_track, taiTime=now + 100.0)
        assert len(probe.ran) == 2
        stats = probe.stream_stats("track")
        assert stats == {"received": 6, "late": 4, "lost": 0, "missing": 0, "most_missing": 4}
        assert remote.late_sent == 4
        assert "late" in caplog.text
        assert "50 ms ahead" in caplog.text
        with pytest.raises(ValueError, match="no stream"):
            probe.stream_stats("move")
        with pytest.raises(helio.EncodeError, match="nothing"):
            remote.cmd_track.stream("nothing")


@asynchronous
async def test_nobody_there_is_told_at_once(url: str) -> None:
    async with helio.connect(url) as bus:
        async with enabled(bus=bus) as (_, remote):
            await send(remote.cmd_move, axis=1)
            other = helio.Remote(bus, "Probe")
            await send(remote.cmd_move, axis=1)
        for each in (remote, other):
            if each is remote:
                continue
            with pytest.raises(helio.NobodyThere, match="nobody there: Probe is not running"):
                await send(each.cmd_move, axis=1, timeout=1000.0)
            with pytest.raises(helio.NobodyThere):
                await each.lock(1.0, timeout=1000.0)


@asynchronous
async def test_one_that_never_had_a_lease_may_be_foreign() -> None:
    async with testing.memory_bus() as bus:
        remote = helio.Remote(bus, "Probe")
        assert remote.presence() == "gone"
        with pytest.raises(helio.NobodyThere, match="nobody there: Probe is not running"):
            await send(remote.cmd_move, axis=1, timeout=1000.0)
        with pytest.raises(helio.NobodyThere):
            await helio.set_summary_state(remote, helio.State.ENABLED, timeout=1000.0)
        # A process without a lease writes acknowledgements.
        kind = remote._interface.get("ack_ackcmd")
        assert kind is not None
        foreign = bus.topic(kind.topic, kind.schema, qos=kind.qos)
        await foreign.publish(kind.data_type())
        assert remote.presence() == "unknown"
        with pytest.raises(helio.NobodyThere, match="no acknowledgement"):
            await send(remote.cmd_move, axis=1, timeout=0.02)
        with pytest.raises(helio.CommandFailed, match="no lease"):
            await send(remote.cmd_move, axis=1, validate=True)


@asynchronous
async def test_a_component_that_ends_aborts_what_runs() -> None:
    async with testing.memory_bus() as bus:
        async with enabled(bus=bus) as (probe, _):
            remote = helio.Remote(bus, "Probe")
            call = send(remote.cmd_hang, name="x")
            queued = send(remote.cmd_hang, name="y")
            await probe.hanging.wait()
        for each in (call, queued):
            with pytest.raises(helio.CommandAborted):
                await each
        with pytest.raises(helio.NobodyThere):
            await send(remote.cmd_move, axis=1, timeout=1000.0)


@asynchronous
async def test_foreign_callers_and_components_are_understood() -> None:
    """Without headers and traces: an acknowledgement is matched by sender and number."""
    async with testing.memory_bus() as bus:
        remote = helio.Remote(bus, "Probe", identity="me@here")
        topic = remote.cmd_move.type
        commands = bus.topic(topic.topic, topic.schema, qos=topic.qos).subscribe()
        kind = remote._interface.get("ack_ackcmd")
        assert kind is not None
        acks = bus.topic(kind.topic, kind.schema, qos=kind.qos)
        await acks.publish(kind.data_type())
        call = send(remote.cmd_move, axis=1)
        command = await testing.next_value(commands)
        assert command.private_identity == "me@here"

        async def say(number: int, identity: str, code: AckCode) -> None:
            value = kind.data_type(
                ack=int(code), result="x", identity=identity, origin=command.private_origin
            )
            value.private_seqNum = number
            await acks.publish(value)

        await say(command.private_seqNum, "other@here", AckCode.FAILED)
        await say(command.private_seqNum + 1, "me@here", AckCode.FAILED)
        await say(command.private_seqNum, "me@here", AckCode.COMPLETE)
        assert (await call).ack is AckCode.COMPLETE


@asynchronous
async def test_commands_reach_their_index_only() -> None:
    async with (
        testing.memory_bus() as bus,
        testing.component(Multi, 1, bus=bus, initial_state=State.ENABLED) as (one, first),
        testing.component(Multi, 2, bus=bus, initial_state=State.ENABLED) as (two, second),
    ):
        await asyncio.gather(
            *(send(first.cmd_move, axis=1) for _ in range(5)),
            *(send(second.cmd_move, axis=2) for _ in range(7)),
        )
        assert (len(one.ran), len(two.ran)) == (5, 7)
        hanging = send(second.cmd_hang)
        await two.hanging.wait()
        await hanging.cancel()
        with pytest.raises(helio.CommandAborted):
            await hanging
