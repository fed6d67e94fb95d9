"""A component and callers of different releases: resolvable schemas cause no messages."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from engines import Plain
from engines import url as engine_url
from probe import COMMANDS, EVENTS, TIMEOUT_S, Probe, asynchronous, send, write_interfaces
from registry_server import Served

import heliograph as helio
from heliograph import AckCode, State, testing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def releases(tmp_path: Path, probes: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An older and a newer release: a field was added, another's type changed."""
    generics = probes / "SALGenerics.xml"
    old = write_interfaces(tmp_path / "old", generics)
    monkeypatch.setitem(COMMANDS, "move", [*COMMANDS["move"], ("height", "double", 1, "")])
    monkeypatch.setitem(COMMANDS, "hang", [("name", "double", 1, "")])
    monkeypatch.setitem(EVENTS, "position", [*EVENTS["position"], ("height", "double", 1, "")])
    new = write_interfaces(tmp_path / "new", generics)
    return old, new


@pytest.mark.parametrize("newer_component", [False, True])
@asynchronous
async def test_what_resolves_goes_on_and_what_does_not_is_named(
    releases: tuple[Path, Path], newer_component: bool
) -> None:
    theirs, ours = releases[::-1] if newer_component else releases

    class Lax(Probe):
        missing_fields = "default"

    async with testing.memory_bus() as bus:
        early = helio.Remote(bus, "Probe", interface=ours)
        assert early.evt_position.get() is None
        async with Lax(bus, interface=theirs, initial_state=State.ENABLED) as probe:
            remote = helio.Remote(bus, "Probe", interface=ours)
            assert (await send(remote.cmd_move, axis=1, position=2.0)).ack is AckCode.COMPLETE
            assert probe.ran[0].position == 2.0
            assert getattr(probe.ran[0], "height", 0.0) == 0.0
            await probe.evt_position.set_write(value=3.0)
            assert remote.evt_position.get().value == 3.0
            with pytest.raises(helio.HelioError, match="name"):
                await send(remote.cmd_hang, timeout=5)
            # Validated commands are read like executed ones.
            move: dict[str, Any] = {"axis": 1, "validate": True}
            assert (await send(remote.cmd_move, **move)).result == "valid"
            with pytest.raises(helio.CommandFailed, match="position is 11"):
                await send(remote.cmd_move, position=11.0, **move)
            with pytest.raises(helio.CommandFailed, match="nobody cannot be moved"):
                await send(remote.cmd_move, name="nobody", **move)
            with pytest.raises(helio.HelioError, match="name"):
                await send(remote.cmd_hang, validate=True)
            assert (await send(remote.cmd_move, axis=1)).ack is AckCode.COMPLETE


@asynchronous
async def test_a_field_that_the_caller_does_not_know_is_missing(
    releases: tuple[Path, Path], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = releases
    async with helio.connect(url) as bus, helio.connect(url) as other:
        async with Probe(bus, interface=new, initial_state=State.ENABLED) as probe:
            # A choice of the caller is none about fields that it does not know.
            for choice in ("refuse", "default"):
                remote: Any = helio.Remote(other, "Probe", interface=old, missing_fields=choice)
                for validate in (False, True):
                    with pytest.raises(helio.CommandFailed, match="no value for height"):
                        await send(remote.cmd_move, axis=1, validate=validate)
            assert not probe.ran
            newer = helio.Remote(other, "Probe", interface=new)
            await send(newer.cmd_move, axis=1, height=0.0)
            assert len(probe.ran) == 1
        monkeypatch.setenv("HELIO_MISSING_FIELDS", "default")
        async with Probe(bus, interface=new, initial_state=State.ENABLED) as probe:
            await send(remote.cmd_move, axis=1)
            assert probe.ran[0].height == 0.0


@asynchronous
async def test_a_field_that_a_caller_of_sal_s_own_does_not_know_is_missing(
    releases: tuple[Path, Path], tmp_path: Path
) -> None:
    """The schema that it was written with is the registered one; there is no header of ours."""
    old, new = (helio.load_interfaces(folder) for folder in releases)
    broker, registry = engine_url("kafka", "--shared"), Served(tmp_path / "registry")
    subname = f"t{secrets.token_hex(4)}"
    address = f"{broker}?naming=sal&subname={subname}&schema.registry.url={registry.url}"

    def foreign(interfaces: helio.Interfaces) -> None:
        topic = interfaces["Probe/command/move"]
        schema = json.loads(topic.sal_schema.text)
        value = {"private_identity": "salobj", "private_seqNum": 7, "axis": 1}
        with Plain(broker, registry.url) as plain:
            plain.write(topic.kafka_name(subname), schema, value)

    async with (
        helio.connect(address) as bus,
        Probe(bus, interface=new, initial_state=State.ENABLED) as probe,
    ):
        acks = bus.topic("Probe/ackcmd", qos=None).subscribe(start=helio.earliest())
        await asyncio.to_thread(foreign, old)
        ack = await testing.next_value(acks, identity="salobj", timeout=TIMEOUT_S)
        assert ack["ack"] == AckCode.FAILED
        assert "no value for height" in ack["result"]
        assert not probe.ran
        await asyncio.to_thread(foreign, new)
        ack = await testing.next_value(acks, identity="salobj", timeout=TIMEOUT_S)
        assert ack["ack"] == AckCode.COMPLETE
        assert len(probe.ran) == 1


@asynchronous
async def test_a_policy_keeps_others_out(
    releases: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    old, new = releases

    class Strict(Probe):
        evolution = "full"

    async with testing.memory_bus() as bus:
        async with Probe(bus, interface=old):
            await send(helio.Remote(bus, "Probe", interface=old).cmd_hang, wait_done=False)
        async with Strict(bus, interface=new, initial_state=State.ENABLED) as probe:
            assert "Probe.cmd_hang" in caplog.text
            assert "is skipped" in caplog.text
            remote = helio.Remote(bus, "Probe", interface=new)
            assert (await send(remote.cmd_move, axis=1)).ack is AckCode.COMPLETE
            assert len(probe.ran) == 1


@asynchronous
async def test_a_callback_that_can_never_be_called_is_said(
    releases: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    old, new = releases
    async with testing.memory_bus() as bus, Probe(bus, interface=new) as probe:
        await probe.evt_position.set_write(value=1.0)
        remote = helio.Remote(bus, "Probe", interface=old, evolution="full")
        remote.evt_position.callback = print
        await asyncio.wait([remote.evt_position._calling])
        assert "the callback of <evt_position of Probe> is no longer called" in caplog.text
        assert "height" in caplog.text


@asynchronous
async def test_a_value_that_cannot_be_read_is_said(
    releases: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = releases
    async with testing.memory_bus() as bus, Probe(bus, interface=old):
        remote = helio.Remote(bus, "Probe", interface=old)
        kind = remote.evt_position.type
        assert remote.evt_position.get_oldest() is None
        # SAL's schema has no lengths, so that its writers can send any.
        foreign = bus.topic(kind.topic, kind.info.sal_schema, qos=kind.qos)
        await foreign.publish({"forces": [1.0]})
        assert remote.evt_position.get_oldest() is None
        assert "evt_position of Probe> cannot be read: forces" in caplog.text


@pytest.mark.parametrize(("theirs", "ours"), [("v26.0.0", "v27.1.1"), ("v27.1.1", "v26.0.0")])
@asynchronous
async def test_real_releases_run_together(shared_data: Path, theirs: str, ours: str) -> None:
    """Every component whose interface has changed between two releases of the observatory."""
    places = [shared_data / "sal-interfaces" / release for release in (theirs, ours)]
    before, after = (helio.load_interfaces(place) for place in places)
    names = {
        after[name].component
        for name in after
        if name in before and before[name].schema.text != after[name].schema.text
    }
    assert len(names) > 5
    for name in sorted(names):
        kind: Any = type(name, (helio.Component,), {"interface": before})
        index = 1 if before[f"{name}/event/summaryState"].indexed else 0
        async with testing.memory_bus() as bus:
            remote = helio.Remote(bus, name, index, interface=after)
            async with kind(bus, index):
                told = await remote.evt_summaryState.aget(timeout=10)
                goal = State.STANDBY if told.summaryState is State.OFFLINE else State.DISABLED
                await helio.set_summary_state(remote, goal)
                assert remote.evt_summaryState.get().summaryState is goal
