"""Our components beside those of SAL's own, of one name, on one broker and registry.

Each command has one final acknowledgement: salobj first, ours first, together, after an exit, after
``kill -9``, and with clocks that are a minute off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_csc
import pytest
from engines import TIMEOUT_S, Plain, url
from probe import Multi, asynchronous, send

import heliograph as helio
from heliograph import AckCode, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

INDEX = 3
PROGRAM = Path(foreign_csc.__file__)
HEARTBEAT_TIMEOUT_S = 5.0
CLOCKS_S = (0.0, -60.0, 60.0)


class Commands:
    """How many commands were sent, and how many had one final acknowledgement, none or several."""

    sent = 0
    answered = 0
    unanswered = 0
    repeated = 0


class Site:
    """A sub-name of its own on the broker."""

    def __init__(self, interfaces: Path) -> None:
        self.options: dict[str, Any] = {
            "kafka": url("kafka"),
            "registry": url("apicurio"),
            "subname": f"t{secrets.token_hex(4)}",
            "index": INDEX,
            "interfaces": str(interfaces),
            "clock_s": 0.0,
        }

    @property
    def bus_url(self) -> str:
        naming = f"naming=sal&subname={self.options['subname']}"
        return f"{self.options['kafka']}?{naming}&schema.registry.url={self.options['registry']}"

    @contextlib.contextmanager
    def foreign(self, clock_s: float = 0.0) -> Iterator[subprocess.Popen[str]]:
        """A component of SAL's own in another process, which has published a heartbeat."""
        options = json.dumps(self.options | {"clock_s": clock_s})
        command = [sys.executable, str(PROGRAM), options]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.stdin.close()

    def finals(self) -> list[tuple[int, str]]:
        """Number and result of all final acknowledgements."""
        topic = helio.load_interfaces(self.options["interfaces"])["Multi/ackcmd"]
        name = topic.kafka_name(self.options["subname"])
        with Plain(self.options["kafka"], self.options["registry"]) as plain:
            acks = [ack for _, ack in plain.read(name, plain.end(name))]
        return [(a["private_seqNum"], a["result"]) for a in acks if a["ack"] == AckCode.COMPLETE]


@pytest.fixture
def site(interfaces: Path) -> Site:
    return Site(interfaces)


@pytest.fixture(scope="module", autouse=True)
def storm(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints the line that the soak collects in its table."""
    yield
    sent, answered = Commands.sent, Commands.answered
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(
            f"\nstorm: commands in a mixed SAL site: tried {sent}, survived {answered}, "
            f"lost {Commands.unanswered}, unreported {Commands.repeated}"
        )


@contextlib.asynccontextmanager
async def ours(bus: helio.Bus) -> AsyncIterator[Multi]:
    async with Multi(bus, INDEX, initial_state=State.ENABLED) as component:
        yield component


async def has_one_answer(site: Site, remote: helio.Remote, result: str) -> None:
    Commands.sent += 1
    ack = await send(remote.cmd_move, axis=1, timeout=TIMEOUT_S)
    assert ack.result == result
    # A second component would have answered by now.
    await asyncio.sleep(0.5)
    finals = await asyncio.to_thread(site.finals)
    numbers = [number for number, _ in finals]
    Commands.repeated += len(numbers) - len(set(numbers))
    Commands.unanswered += finals[-1][1] != result
    assert len(numbers) == len(set(numbers)), finals
    assert finals[-1][1] == result, finals
    Commands.answered += 1


async def becomes(remote: helio.Remote, presence: str) -> None:
    for _ in range(int(TIMEOUT_S / 0.1)):
        if remote.presence() == presence:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{remote!r} is {remote.presence()}, not {presence}")


async def is_found(component: Multi) -> None:
    with pytest.raises(helio.LeaseError, match="found another instance of Multi:3"):
        await asyncio.wait_for(component.done_task, TIMEOUT_S)


@pytest.mark.parametrize("clock_s", CLOCKS_S)
@asynchronous
async def test_salobj_is_there_first(site: Site, clock_s: float) -> None:
    with site.foreign(clock_s):
        async with helio.connect(site.bus_url) as bus, helio.Remote(bus, "Multi", INDEX) as remote:
            with pytest.raises(helio.LeaseError, match="found another instance of Multi:3"):
                async with ours(bus):
                    pass
            assert remote.presence() == "unknown"
            await has_one_answer(site, remote, "foreign")


@pytest.mark.parametrize("clock_s", CLOCKS_S)
@asynchronous
async def test_salobj_comes_after_ours_ended(site: Site, clock_s: float) -> None:
    async with helio.connect(site.bus_url) as bus, helio.Remote(bus, "Multi", INDEX) as remote:
        async with ours(bus):
            await has_one_answer(site, remote, "Done")
        # Our own last heartbeat delays nothing.
        assert remote.presence() == "gone"
        with pytest.raises(helio.NobodyThere):
            await send(remote.cmd_move, axis=1)
        with site.foreign(clock_s):
            await becomes(remote, "unknown")
            await has_one_answer(site, remote, "foreign")


@pytest.mark.parametrize("clock_s", CLOCKS_S)
@asynchronous
async def test_salobj_comes_beside_ours(site: Site, clock_s: float) -> None:
    async with helio.connect(site.bus_url) as bus, helio.Remote(bus, "Multi", INDEX) as remote:
        component = Multi(bus, INDEX, initial_state=State.ENABLED)
        await component.start()
        with site.foreign(clock_s):
            await is_found(component)
            await has_one_answer(site, remote, "foreign")


@asynchronous
async def test_both_start_together(site: Site) -> None:
    async with helio.connect(site.bus_url) as bus, helio.Remote(bus, "Multi", INDEX) as remote:
        component = Multi(bus, INDEX, initial_state=State.ENABLED)

        async def run() -> None:
            await component.start()
            await component.done_task

        running = asyncio.create_task(run())
        with site.foreign():
            with pytest.raises(helio.LeaseError, match="found another instance of Multi:3"):
                await asyncio.wait_for(running, TIMEOUT_S)
            await has_one_answer(site, remote, "foreign")


@asynchronous
async def test_salobj_is_killed_and_ours_follows(site: Site) -> None:
    async with helio.connect(site.bus_url) as bus, helio.Remote(bus, "Multi", INDEX) as remote:
        with site.foreign() as process:
            await has_one_answer(site, remote, "foreign")
            process.kill()
            process.wait()
            killed = time.monotonic()
        await becomes(remote, "gone")
        assert time.monotonic() - killed > HEARTBEAT_TIMEOUT_S - 2
        with pytest.raises(helio.NobodyThere):
            await send(remote.cmd_move, axis=1)
        async with ours(bus):
            await has_one_answer(site, remote, "Done")
