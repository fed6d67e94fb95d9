"""Components and remotes in one process: states, hooks, events, configuration, logs."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from probe import TIMEOUT_S, Camera, Configured, Multi, Probe, asynchronous, send

import heliograph as helio
from heliograph import State, testing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


@asynchronous
async def test_all_states_and_what_each_refuses(url: str) -> None:
    async with helio.connect(url) as bus, testing.component(Probe, bus=bus) as (probe, remote):
        assert await remote.evt_softwareVersions.aget(timeout=TIMEOUT_S)
        await testing.check_standard_state_transitions(remote, ["move"])
        await probe.done_task
        assert probe.hooks == [
            "STANDBY",
            "begin_start",
            "DISABLED",
            "end_start",
            "begin_enable",
            "ENABLED",
            "end_enable",
            "DISABLED",
            "begin_standby",
            "STANDBY",
            "OFFLINE",
            "end_exitControl",
            "close_tasks",
        ]


@asynchronous
async def test_it_begins_where_it_is_told_to() -> None:
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        assert probe.summary_state is State.ENABLED
        for state in (State.STANDBY, State.DISABLED, State.ENABLED):
            await testing.assert_next_summary_state(remote, state)
        assert repr(probe) == "<Probe Probe ENABLED>"


@asynchronous
async def test_one_of_enter_control_begins_offline() -> None:
    async with testing.component(Camera) as (camera, remote):
        await testing.assert_next_summary_state(remote, State.OFFLINE)
        gone_through = await helio.set_summary_state(remote, State.ENABLED)
        assert gone_through == [State.OFFLINE, State.STANDBY, State.DISABLED, State.ENABLED]
        await helio.set_summary_state(remote, State.OFFLINE)
        await camera.done_task


@asynchronous
async def test_a_begin_hook_that_fails_keeps_the_state() -> None:
    async with testing.component(Probe) as (probe, remote):
        await testing.assert_next_summary_state(remote, State.STANDBY)
        probe.fails["begin_start"] = helio.ExpectedError("no power", code=7)
        with pytest.raises(helio.CommandFailed, match="no power") as caught:
            await send(remote.cmd_start)
        assert caught.value.ack.error == 7
        assert probe.summary_state is State.STANDBY
        probe.fails.clear()
        await send(remote.cmd_start)
        await testing.assert_next_summary_state(remote, State.DISABLED)


@pytest.mark.parametrize("hook", ["end_enable", "ENABLED"])
@asynchronous
async def test_an_end_hook_that_fails_restores_the_state(hook: str) -> None:
    async with testing.component(Probe, initial_state=State.DISABLED) as (probe, remote):
        for state in (State.STANDBY, State.DISABLED):
            await testing.assert_next_summary_state(remote, state)
        probe.fails[hook] = RuntimeError("it burns")
        with pytest.raises(helio.CommandFailed, match="RuntimeError: it burns"):
            await remote.cmd_enable.set_start()
        assert probe.summary_state is State.DISABLED
        await testing.assert_next_summary_state(remote, State.ENABLED)
        await testing.assert_next_summary_state(remote, State.DISABLED)


@asynchronous
async def test_a_fault_is_told_and_left_behind() -> None:
    async with testing.component(Probe, initial_state=State.ENABLED) as (probe, remote):
        remote.evt_summaryState.flush()
        remote.evt_errorCode.flush()
        await probe.fault(42, "the drive is hot", traceback="here")
        await testing.assert_next_summary_state(remote, State.FAULT)
        await testing.assert_next_sample(
            remote.evt_errorCode, errorCode=42, errorReport="the drive is hot", traceback="here"
        )
        assert probe.hooks[-1] == "FAULT"
        why = r"not allowed in state FAULT \(error 42: the drive is hot\)"
        with pytest.raises(helio.CommandFailed, match=f"{why}: it must be ENABLED"):
            await send(remote.cmd_move, axis=1)
        with pytest.raises(helio.CommandFailed, match=f"start {why}") as caught:
            await send(remote.cmd_start)
        assert caught.value.ack.error == 42
        await remote.cmd_standby.set_start()
        await testing.assert_next_summary_state(remote, State.STANDBY)
        await testing.assert_next_sample(remote.evt_errorCode, errorCode=0, errorReport="")


@asynchronous
async def test_a_fault_in_a_hook_wins() -> None:
    class Hot(Probe):
        async def end_enable(self, data: Any) -> None:
            await self.fault(1, "too hot")

    async with testing.component(Hot, initial_state=State.DISABLED) as (probe, remote):
        with pytest.raises(helio.CommandFailed, match="too hot"):
            await remote.cmd_enable.set_start()
        assert probe.summary_state is State.FAULT


@asynchronous
async def test_events_are_published_on_change_only(url: str) -> None:
    async with helio.connect(url) as bus, testing.component(Probe, bus=bus) as (probe, remote):
        event = probe.evt_position
        assert (await event.set_write(value=1.0, forces=[1, 2, 3, 4])).was_written
        assert not (await event.set_write(value=1.0)).was_written
        # NaN equals NaN, and a number that is no exact float equals itself.
        changed = [
            (await event.set_write(**fields)).did_change
            for fields in (
                {"value": float("nan")},
                {"value": float("nan")},
                {"single": 0.1},
                {"single": 0.1},
                {"forces": np.array([1, 2, 3, np.nan])},
                {"forces": [1.0, 2.0, 3.0, float("nan")]},
                {"text": None},
            )
        ]
        assert changed == [True, False, True, False, True, False, False]
        forced = await event.set_write(force_output=True)
        assert (forced.did_change, forced.was_written) == (False, True)
        await event.write()
        received = [await remote.evt_position.next(timeout=TIMEOUT_S) for _ in range(6)]
        assert [each.private_seqNum for each in received] == [1, 2, 3, 4, 5, 6]
        assert received[3] == received[5]
        assert received[0] == event.data.__class__(value=1.0, forces=[1, 2, 3, 4])
        assert received[0].private_identity == "Probe"
        assert received[0].private_revCode == probe.evt_position.type.revcode
        assert received[0].private_rcvStamp >= received[0].private_sndStamp > 1.7e9
        assert received[0].private_sndStamp - received[0].private_efdStamp == pytest.approx(37)


@asynchronous
async def test_telemetry_is_published_always() -> None:
    async with testing.component(Probe) as (probe, remote):
        for _ in range(3):
            assert (await probe.tel_sample.set_write(number=3)).was_written
        assert remote.tel_sample.get().number == 3
        assert remote.tel_sample.get().private_seqNum == 3
        assert not (await probe.tel_sample.set_write(force_output=False)).was_written


@asynchronous
async def test_values_that_do_not_fit_are_refused_by_field() -> None:
    async with testing.component(Probe) as (probe, _):
        event = probe.evt_position
        await event.set_write(value=1.0)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"nothing": 1}, "nothing"),
            ({"value": "x"}, "value"),
            ({"forces": [1, 2, 3]}, "forces"),
            ({"forces": [1, 2, 3, 4, 5]}, "forces"),
            ({"text": 1}, "text"),
            ({"axis": 2**40}, "axis"),
            ({"axis": 3}, "axis"),
            ({"axis": 0}, "axis"),
            ({"single": 1e300}, "single"),
            ({"private_seqNum": 1}, "private_seqNum"),
        ]
        for fields, field in wrong:
            with pytest.raises(helio.EncodeError, match=field):
                await event.set_write(text="kept", **fields) if "text" not in fields else (
                    await event.set_write(**fields)
                )
            with pytest.raises(helio.EncodeError, match=field):
                event.set(**fields)
            assert event.data.text == ""
        assert event.set(value=2.0)
        assert not event.set(value=2.0)
        assert (await event.set_write()).was_written
        with pytest.raises(AttributeError, match="evt_nothing"):
            _ = probe.evt_nothing


@asynchronous
async def test_values_are_whose_they_were_given_to() -> None:
    async with testing.component(Probe) as (probe, remote):
        forces = [1.0, 2.0, 3.0, 4.0]
        first = await probe.evt_position.set_write(value=1.0, axis=2, forces=np.array(forces))
        probe.evt_position.data.forces[0] = 9.0
        second = await probe.evt_position.set_write(value=2.0)
        unchanged = await probe.evt_position.set_write(value=2.0)
        telemetry = await probe.tel_sample.write()
        await probe.tel_sample.set_write(number=5)
        results = (first, second, unchanged)
        assert [result.data.value for result in results] == [1.0, 2.0, 2.0]
        assert [result.data.private_seqNum for result in results] == [1, 2, 2]
        assert first.data.forces.tolist() == forces
        assert first.data.axis is probe.enums.Axis.Elevation
        assert (telemetry.number, telemetry.private_seqNum) == (0, 1)
        mine, yours = remote.evt_position.get(), await remote.evt_position.aget()
        mine.value = 100.0
        with pytest.raises(ValueError, match="read-only"):
            mine.forces[0] = 100.0
        assert (yours.value, remote.evt_position.get().value) == (2.0, 2.0)
        assert mine.private_rcvStamp == yours.private_rcvStamp > 0.0


@asynchronous
async def test_reading_verbs(url: str) -> None:
    async with helio.connect(url) as bus, testing.component(Probe, bus=bus) as (probe, remote):
        topic = remote.evt_position
        assert topic.get() is None
        assert not topic.has_data
        with pytest.raises(helio.WaitTimeout):
            await topic.next(timeout=0.01)
        with pytest.raises(helio.WaitTimeout):
            await topic.aget(timeout=0.01)
        waiting = [asyncio.create_task(topic.aget()), asyncio.create_task(topic.next())]
        await asyncio.sleep(0)
        for number in range(5):
            await probe.evt_position.set_write(value=float(number))
        assert (await waiting[1]).value == 0.0
        assert (await waiting[0]).value in range(5)
        assert topic.get().value == 4.0
        assert topic.nqueued == 4
        assert topic.get_oldest().value == 1.0
        assert (await topic.next()).value == 2.0
        topic.flush()
        assert (topic.nqueued, topic.get_oldest()) == (0, None)
        assert topic.get().value == 4.0
        await probe.evt_position.set_write(value=5.0)
        async for value in topic:
            assert value.value == 5.0
            break
        assert repr(topic) == "<evt_position of Probe>"


@asynchronous
async def test_events_since_the_opening_are_given_after_the_newest_before(url: str) -> None:
    async with helio.connect(url) as bus, testing.component(Probe, bus=bus) as (probe, early):
        for number in range(3):
            await probe.evt_position.set_write(value=float(number))
            await probe.tel_sample.set_write(number=number)
        remote = helio.Remote(bus, "Probe")
        quiet = helio.Remote(bus, "Probe")
        assert (await quiet.evt_position.next()).value == 2.0
        for number in range(3, 6):
            await probe.evt_position.set_write(value=float(number))
            await probe.tel_sample.set_write(number=number)
        events = [remote.evt_position.get_oldest().value for _ in range(4)]
        assert events == [2.0, 3.0, 4.0, 5.0]
        assert remote.evt_position.get_oldest() is None
        # For telemetry the newest, and all from the first use on.
        assert remote.tel_sample.get_oldest().number == 5
        assert remote.tel_sample.get_oldest() is None
        assert [quiet.evt_position.get_oldest().value for _ in range(3)] == [3.0, 4.0, 5.0]
        assert early.evt_position.nqueued == 6


@asynchronous
async def test_a_slow_reader_loses_the_oldest_and_is_told() -> None:
    async with testing.component(Probe) as (probe, remote):
        assert remote.evt_position.nqueued == 0
        for number in range(1500):
            await probe.evt_position.set_write(value=float(number))
        assert remote.evt_position.nqueued == 1000
        assert remote.evt_position.lost == 500
        assert remote.evt_position.get_oldest().value == 500.0


@asynchronous
async def test_callbacks_get_every_value_in_order(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.component(Probe) as (probe, remote):
        heard: list[float] = []
        done = asyncio.Event()

        async def call(value: Any) -> None:
            heard.append(value.value)
            if value.value == 1.0:
                raise RuntimeError("in a callback")
            if value.value == 4.0:
                done.set()

        await probe.evt_position.set_write(value=0.5)
        remote.evt_position.callback = call
        with pytest.raises(RuntimeError, match="callback"):
            await remote.evt_position.next()
        for number in range(5):
            await probe.evt_position.set_write(value=float(number))
        await done.wait()
        assert heard == [0.5, 0.0, 1.0, 2.0, 3.0, 4.0]
        assert "in a callback" in caplog.text
        remote.evt_position.callback = None
        await probe.evt_position.set_write(value=9.0)
        assert (await remote.evt_position.next()).value == 9.0
        with pytest.raises(TypeError):
            remote.evt_position.callback = 1


@asynchronous
async def test_closing_ends_those_who_wait() -> None:
    async with testing.component(Probe) as (_, remote):
        waiting = [
            asyncio.create_task(remote.evt_position.next()),
            asyncio.create_task(remote.tel_sample.aget()),
        ]
        await asyncio.sleep(0)
        remote.close()
        for task in waiting:
            with pytest.raises(helio.ClosedError):
                await task
        with pytest.raises(helio.ClosedError):
            send(remote.cmd_start)


@asynchronous
async def test_instances_of_an_indexed_component(url: str) -> None:
    async with (
        helio.connect(url) as bus,
        testing.component(Multi, 1, bus=bus, initial_state=State.ENABLED) as (one, first),
        testing.component(Multi, 2, bus=bus) as (two, second),
    ):
        assert (one.name, two.name) == ("Multi:1", "Multi:2")
        await one.evt_position.set_write(value=1.0)
        for _ in range(50):
            await two.evt_position.set_write(value=2.0, force_output=True)
        everybody = helio.Remote(bus, "Multi")
        found = [everybody.evt_position.get_oldest() for _ in range(2)]
        # The newest value of every index, also of the quiet one.
        assert sorted((each.salIndex, each.value) for each in found) == [(1, 1.0), (2, 2.0)]
        assert first.evt_position.get().value == 1.0
        assert second.evt_position.get().salIndex == 2
        await send(first.cmd_move, position=1.0, axis=1)
        assert [command.salIndex for command in one.ran] == [1]
        assert two.ran == []
        with pytest.raises(helio.CommandFailed):
            await send(second.cmd_move, axis=1)
        with pytest.raises(ValueError, match="name an index"):
            send(everybody.cmd_start)
        assert helio.Remote(bus, "Multi:2").index == 2
    for wrong in ({"name": "Multi:x"}, {"name": "Probe", "index": 3}, {"name": "Multi:*"}):
        async with testing.memory_bus() as other:
            with pytest.raises(ValueError, match="index"):
                helio.Remote(other, **wrong)  # type: ignore[arg-type]


@asynchronous
async def test_numbers_go_on_after_a_restart(url: str) -> None:
    async with helio.connect(url) as bus:
        for life in range(3):
            async with testing.component(Multi, 4, bus=bus) as (probe, remote):
                await probe.evt_position.set_write(value=float(life))
                await probe.tel_sample.write()
                assert remote.evt_position.get().private_seqNum == life + 1
                assert remote.tel_sample.get().private_seqNum == life + 1


@asynchronous
async def test_a_second_instance_is_refused(url: str) -> None:
    async with helio.connect(url) as bus, testing.component(Probe, bus=bus) as (_, remote):
        with pytest.raises(helio.LeaseError, match="Probe runs already: process"):
            async with Probe(bus):
                pass
        async with helio.connect(url) as other:
            with pytest.raises(helio.LeaseError, match="Probe runs already"):
                await Probe(other).start()
        assert remote.presence() == "here"
        await send(remote.cmd_start)
    async with helio.connect(url) as bus:
        assert helio.Remote(bus, "Probe").presence() == "gone"
        async with testing.component(Probe, bus=bus):
            pass


def _write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


@asynchronous
async def test_configuration_is_merged_and_refused_before_the_state_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(
        tmp_path / "config",
        _init="host: a\nport: 1\nmetadata: {by: me}\n",
        _summit="port: 2\n",
        fast="port: 3\naxes: {az: 2.5}\n",
        wrong="port: 0\n",
        stranger="colour: red\n",
        kind="port: many\n",
        broken="port: [\n",
    )
    monkeypatch.setenv("HELIO_SITE", "summit")
    async with testing.component(Configured, config_dir=folder) as (probe, remote):
        available = await remote.evt_configurationsAvailable.aget(timeout=TIMEOUT_S)
        assert available.overrides == "broken.yaml,fast.yaml,kind.yaml,stranger.yaml,wrong.yaml"
        assert (available.url, available.schemaVersion) == (folder.as_uri(), "v3")
        assert len(available.version) == 16
        refused = {
            "wrong.yaml": "port",
            "stranger.yaml": "colour",
            "kind.yaml": "port is a text",
            "broken.yaml": "broken.yaml",
            "absent.yaml": "absent.yaml",
            "../fast.yaml": "not the name of a file",
            "_init.yaml": "not the name of a file",
        }
        for name, told in refused.items():
            with pytest.raises(helio.CommandFailed, match=told):
                await send(remote.cmd_start, configurationOverride=name)
            assert probe.summary_state is State.STANDBY
        assert probe.configs == []
        await send(remote.cmd_start, configurationOverride="fast.yaml")
        (config,) = probe.configs
        assert (config.host, config.port, config.axes.az) == ("a", 3, 2.5)
        applied = remote.evt_configurationApplied.get()
        assert applied.configurations == "_init.yaml,_summit.yaml,fast.yaml"
        assert applied.version == probe.configuration.version
        await remote.cmd_standby.set_start()
        await send(remote.cmd_start)
        assert (probe.configs[1].port, hasattr(probe.configs[1], "axes")) == (2, False)


@asynchronous
async def test_a_configuration_that_is_not_wanted_is_refused() -> None:
    async with testing.component(Probe) as (_, remote):
        with pytest.raises(helio.CommandFailed, match="has no configuration"):
            await send(remote.cmd_start, configurationOverride="a.yaml")


@asynchronous
async def test_simulation_modes() -> None:
    async with testing.component(Probe, simulation_mode=1) as (probe, remote):
        assert remote.evt_simulationMode.get().mode == probe.simulation_mode == 1
    async with testing.memory_bus() as bus:
        with pytest.raises(helio.ExpectedError, match="it has 0, 1"):
            Probe(bus, simulation_mode=2)


@asynchronous
async def test_log_records_are_published(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.memory_bus() as bus:
        probe = Probe(bus)
        remote = helio.Remote(bus, "Probe")
        probe.log.setLevel(logging.INFO)
        for number in range(1200):
            probe.log.info("early %d", number)
        await remote.evt_logMessage.aopen()
        async with probe:
            # Records from before the start are published, up to a bound, and the loss is reported.
            first = await remote.evt_logMessage.next(timeout=TIMEOUT_S)
            assert (first.level, first.message.split()[:4]) == (
                30,
                ["200", "log", "records", "were"],
            )
            await testing.assert_next_sample(remote.evt_logMessage, message="early 200", level=20)
            while (await remote.evt_logMessage.next(timeout=TIMEOUT_S)).message != "early 1199":
                pass
            threading.Thread(target=probe.log.warning, args=("from a thread",)).start()
            await testing.assert_next_sample(remote.evt_logMessage, message="from a thread")
            probe.log.debug("not this")
            try:
                raise ValueError("cause")
            except ValueError:
                probe.log.exception("it failed")
            told = await testing.assert_next_sample(remote.evt_logMessage, message="it failed")
            assert "ValueError: cause" in told.traceback
            assert told.functionName == "test_log_records_are_published"
            assert told.filePath.endswith("test_component.py")
            await send(remote.cmd_setLogLevel, level=logging.DEBUG)
            assert remote.evt_logLevel.get().level == logging.DEBUG
            probe.log.debug("and this")
            await testing.assert_next_sample(remote.evt_logMessage, message="and this")
            await send(remote.cmd_setLogLevel, level=logging.ERROR, subsystem="probe.part")
            assert logging.getLogger("probe.part").level == logging.ERROR
        assert probe.log.handlers == []
        probe.log.info("after the end")
        probe.log.setLevel(logging.NOTSET)


@asynchronous
async def test_logging_while_publishing_fails_does_not_recur() -> None:
    async with (
        testing.memory_bus() as bus,
        testing.component(Probe, bus=bus, logger=logging.getLogger()) as (probe, _),
    ):
        before = logging.getLogger().handlers[:]
        # An invalid name of a log message: the record cannot be encoded.
        probe._engine.events["logMessage"]._set("name", 1)
        probe._engine.events["logMessage"]._names = frozenset()
        for _ in range(10):
            logging.getLogger("anything").error("lost")
            await asyncio.sleep(0)
        assert logging.getLogger().handlers == before
    assert len(logging.getLogger().handlers) < len(before)


@asynchronous
async def test_a_component_and_its_handlers_must_fit() -> None:
    class Strange(Probe):
        async def do_fly(self, command: Any) -> None: ...

    class Later(Strange):
        extra_commands = ("fly",)

    class Limited(Probe):
        command_options: ClassVar[dict[str, helio.CommandOptions]] = {
            "move": helio.CommandOptions(limits={"height": (0, 1)})
        }

    async with testing.memory_bus() as bus:
        with pytest.raises(TypeError, match="'fly'"):
            Strange(bus)
        with pytest.raises(TypeError, match="height"):
            Limited(bus)
        with pytest.raises(ValueError, match="index"):
            Probe(bus, 1)
        with pytest.raises(ValueError, match="index"):
            Multi(bus)
        async with Later(bus):
            pass


@asynchronous
async def test_a_start_that_fails_lets_go(url: str) -> None:
    class Broken(Probe):
        async def begin_enable(self, data: Any) -> None:
            raise helio.ExpectedError("no")

    async with helio.connect(url) as bus:
        with pytest.raises(helio.ExpectedError, match="no"):
            async with Broken(bus, initial_state=State.ENABLED):
                pass
        async with testing.component(Probe, bus=bus):
            pass


@asynchronous
async def test_heartbeats_and_versions() -> None:
    async with testing.component(Probe) as (_, remote):
        first = await remote.evt_heartbeat.next(timeout=TIMEOUT_S)
        second = await remote.evt_heartbeat.next(timeout=TIMEOUT_S)
        assert second.private_seqNum == first.private_seqNum + 1
        versions = remote.evt_softwareVersions.get()
        assert versions.cscVersion == "1.2.3"
        assert "heliograph" in versions.salVersion
        assert versions.xmlVersion == "2.5.0"


@asynchronous
async def test_assertions_of_the_testing_module_fail_when_they_should() -> None:
    async with testing.component(Probe) as (probe, remote):
        with pytest.raises(AssertionError, match="STANDBY, not ENABLED"):
            await testing.assert_next_summary_state(remote, State.ENABLED)
        await probe.evt_position.set_write(value=1.0)
        with pytest.raises(AssertionError, match=r"value is 1\.0, not 2\.0"):
            await testing.assert_next_sample(remote.evt_position, value=2.0)
        with pytest.raises(AssertionError, match="no value"):
            await testing.assert_next_sample(remote.evt_position, timeout=0.01)
        with pytest.raises(AssertionError, match="start was not refused"):
            await testing.check_bad_commands(remote, ["start"])
