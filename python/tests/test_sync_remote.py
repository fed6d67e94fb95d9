"""The synchronous twin of remotes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from probe import TIMEOUT_S, Probe

import heliograph as helio
from heliograph import AckCode, State, sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("interfaces")


@pytest.fixture
def probe(url: str, interfaces: Path) -> Iterator[Probe]:
    """A component in a thread of its own."""
    ready = threading.Event()
    there: list[Any] = []

    async def main() -> None:
        async with helio.connect(url) as bus, Probe(bus, initial_state=State.ENABLED) as made:
            stop = asyncio.Event()
            there.extend((made, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(TIMEOUT_S)
    yield there[0]
    there[1].call_soon_threadsafe(there[2].set)
    thread.join()


def test_commands_and_topics(url: str, probe: Probe) -> None:
    with sync.connect(url) as bus, sync.Remote(bus, "Probe") as remote:
        assert remote.presence() == "here"
        whole = remote.cmd_move.data_type(axis=1, position=2.0).as_dict()
        assert remote.cmd_move.set_start(**whole).ack is AckCode.COMPLETE
        remote.cmd_move.set(axis=remote.enums.Axis.Elevation)
        with pytest.raises(helio.EncodeError, match="no value for position, speed, flags"):
            remote.cmd_move.start()
        with sync.Remote(bus, "Probe", missing_fields="default") as lax:
            lax.cmd_move.set(axis=remote.enums.Axis.Elevation)
            assert lax.cmd_move.start().result == "Done"
        assert [each.axis for each in probe.ran] == [1, 2]
        with pytest.raises(helio.EncodeError, match="axis"):
            remote.cmd_move.set_start(axis=5)
        assert remote.evt_summaryState.aget(timeout=TIMEOUT_S).summaryState is State.ENABLED
        assert remote.evt_summaryState.next(timeout=TIMEOUT_S).summaryState is State.ENABLED
        assert remote.evt_summaryState.get_oldest() is None
        with pytest.raises(helio.WaitTimeout):
            remote.evt_summaryState.next(timeout=0.01)
        heard: list[int] = []
        told = threading.Event()
        remote.evt_errorCode.callback = lambda value: (heard.append(value.errorCode), told.set())
        states = remote.set_summary_state(State.STANDBY)
        assert states == [State.ENABLED, State.DISABLED, State.STANDBY]
        seen = [value.summaryState for _, value in zip("12", remote.evt_summaryState, strict=False)]
        assert seen == [State.DISABLED, State.STANDBY]
        assert told.wait(TIMEOUT_S)
        assert heard == [0]
        assert remote.evt_summaryState.nqueued == remote.evt_summaryState.lost == 0
    with pytest.raises(helio.ClosedError):
        remote.evt_summaryState.get()
    remote.close()


def test_calls_that_go_on(url: str, probe: Probe) -> None:
    with sync.connect(url) as bus, sync.Remote(bus, "Probe", caller="alice") as remote:
        call = remote.cmd_hang.send(name="x")
        assert call.next_ack(timeout=TIMEOUT_S).progress == 0.25
        assert not call.done
        assert call.cancel().ack is AckCode.COMPLETE
        with pytest.raises(helio.CommandAborted):
            call.wait()
        assert [ack.ack for ack in call] == [AckCode.ABORTED]
        assert call.ack == helio.Ack(AckCode.ABORTED, 0, "cancelled by alice")
        assert remote.lock(5.0).ack is AckCode.COMPLETE
        assert probe.locked_by == "alice"
        assert remote.unlock().ack is AckCode.COMPLETE


def test_nobody_there(url: str, interfaces: Path) -> None:
    with sync.connect(url) as bus, sync.Remote(bus, "Probe") as remote:
        assert remote.presence() == "gone"
        with pytest.raises(helio.NobodyThere):
            remote.cmd_enable.set_start()
        with pytest.raises(helio.SchemaError, match="Nobody"):
            sync.Remote(bus, "Nobody")
    assert not [each for each in threading.enumerate() if each.name == "heliograph-remote"]
