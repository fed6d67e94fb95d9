"""Several processes on one journal, and Ctrl-C in a waiting process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from processes import TIMEOUT_S, started

import heliograph as helio
from heliograph import sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


RECORD = """
import asyncio, os, sys
import heliograph as helio
from heliograph import sync

@helio.record
class Wind:
    speed: helio.Float64

url = sys.argv[1]
"""


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return f"journal:{tmp_path / 'journal'}"


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    program = RECORD + textwrap.dedent(program)
    return started(sys.executable, "-c", program, *arguments, stdin=subprocess.PIPE)


READER = """
    async def main():
        async with helio.connect(url) as bus:
            wind = bus.topic("wind", Wind, qos=helio.STREAM)
            async with wind.subscribe() as samples:
                print("ready", flush=True)
                total = 0
                async for s in samples:
                    if s.value.speed < 0:
                        break
                    total += s.value.speed
                print(total, samples.stats.received, samples.stats.lost, flush=True)
    asyncio.run(main())
"""

SYNC_READER = """
    with sync.connect(url) as bus, bus.topic("wind", Wind, qos=helio.STREAM).subscribe() as samples:
        print("ready", flush=True)
        total = 0
        for s in samples:
            if s.value.speed < 0:
                break
            total += s.value.speed
        print(total, samples.stats.received, samples.stats.lost, flush=True)
"""


def test_samples_go_from_process_to_process(journal: str) -> None:
    readers = [start(program, journal) for program in (READER, SYNC_READER)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n", reader.communicate(timeout=TIMEOUT_S)[1]
    writer = start(
        """
        with sync.connect(url, producer="Writer") as bus:
            wind = bus.topic("wind", Wind, qos=helio.STREAM)
            for number in range(10_000):
                wind.publish(Wind(speed=number))
            wind.publish_many([Wind(speed=number) for number in range(10_000)])
            wind.publish(Wind(speed=-1.0))
        """,
        journal,
    )
    assert writer.communicate(timeout=TIMEOUT_S)[1] == ""
    total = float(sum(range(10_000)) * 2)
    for reader in readers:
        out, err = reader.communicate(timeout=TIMEOUT_S)
        assert err == ""
        assert out == f"{total} 20001 0\n"


def test_a_writer_that_is_killed_harms_nobody(journal: str) -> None:
    @helio.record
    class Wind:
        speed: helio.Float64

    writer = start(
        """
        bus = sync.connect(url, producer="Writer")
        wind = bus.topic("wind", Wind, qos=helio.STREAM)
        number = 0
        while True:
            wind.publish(Wind(speed=number))
            number += 1
        """,
        journal,
    )
    with sync.connect(journal, producer="Writer") as bus:
        wind = bus.topic("wind", Wind, qos=helio.STREAM)
        with wind.subscribe(start=helio.earliest()) as samples:
            for number in range(1000):
                assert samples.next(timeout=TIMEOUT_S).value.speed == number
            writer.kill()
            writer.communicate(timeout=TIMEOUT_S)
            wind.publish(Wind(speed=-1.0))
            first = None
            for sample in samples:
                if sample.value.speed < 0:
                    first = sample
                    break
            assert first is not None
            assert (first.incarnation, first.sequence) == (2, 1)
            assert samples.stats.lost == 0


WAITS = {
    "iteration": "synchronously(lambda: list(samples))",
    "next": "synchronously(samples.next)",
    "batch": "synchronously(samples.batch)",
    "asyncio": "asyncio.run(asynchronously())",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
@pytest.mark.parametrize("scheme", ["memory", "journal"])
def test_ctrl_c_ends_a_wait(scheme: str, wait: str, request: pytest.FixtureRequest) -> None:
    url = "memory:" if scheme == "memory" else request.getfixturevalue("journal")
    waiter = start(
        f"""
        async def asynchronously():
            async with helio.connect(url) as bus:
                samples = bus.topic("wind", Wind, qos=helio.STREAM).subscribe()
                print("ready", flush=True)
                async for s in samples:
                    pass

        def synchronously(wait):
            print("ready", flush=True)
            wait()

        with sync.connect(url) as bus:
            samples = bus.topic("wind", Wind, qos=helio.STREAM).subscribe()
            try:
                {wait}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        print("closed", flush=True)
        """,
        url,
    )
    assert waiter.stdout is not None
    assert waiter.stdout.readline() == "ready\n", waiter.communicate(timeout=TIMEOUT_S)[1]
    # Wherever the process is by now, the signal stays pending until it checks.
    os.kill(waiter.pid, signal.SIGINT)
    out, err = waiter.communicate(timeout=TIMEOUT_S)
    assert (out, err, waiter.returncode) == ("interrupted\nclosed\n", "", 0)


def threads() -> list[str]:
    """Return the names of this process's threads."""
    names = Path("/proc/self/task").glob("*/comm")
    return [name.read_text().strip() for name in names]


@pytest.mark.parametrize("pipes", [True, False], ids=["pipes", "no pipes"])
def test_a_loop_is_woken_from_another_process(journal: str, pipes: bool) -> None:
    with sync.connect(journal) as bus:
        bus.topic("wind", bytes, qos=helio.TELEMETRY)
    if not pipes:
        # As on a file system without pipes.
        Path(journal.removeprefix("journal:"), "bells").write_text("in the way")
    writer = """
with sync.connect(url) as bus:
    wind = bus.topic("wind", bytes)
    for line in sys.stdin:
        wind.publish(line.encode())
"""

    async def read() -> None:
        async with helio.connect(journal) as bus:
            wind = bus.topic("wind", bytes)
            process = start(writer, journal)
            assert process.stdin is not None
            async with wind.subscribe() as one, wind.subscribe() as other:
                for number in range(20):
                    waiting = [asyncio.create_task(each.next()) for each in (one, other)]
                    await asyncio.sleep(0)
                    process.stdin.write(f"{number}\n")
                    process.stdin.flush()
                    for sample in await asyncio.gather(*waiting):
                        assert sample.value == f"{number}\n".encode()
                assert ("helio-bridge" in threads()) is not pipes
                task = asyncio.create_task(one.next())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            process.communicate()

    asyncio.run(asyncio.wait_for(read(), TIMEOUT_S))


def stop_inside_lock(process: subprocess.Popen[str], control: Path) -> None:
    """Stop a publishing process while it holds the partition's lock."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        # The C library's mutex begins with the thread that has it.
        if any(control.read_bytes()[128:132]):
            return
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    raise AssertionError("the publisher was never met inside the lock")


def test_a_publish_that_is_held_up_holds_up_nothing_else(journal: str) -> None:
    writer = """
with sync.connect(url, producer="stopped") as bus:
    wind = bus.topic("wind", bytes)
    while True:
        wind.publish(bytes(4 << 20))
"""
    with sync.connect(journal) as bus:
        qos = helio.TELEMETRY.replace(retention=helio.Retention(bytes=64 << 20))
        bus.topic("wind", bytes, qos=qos)
    control = Path(journal.removeprefix("journal:"), "topics", "wind", "0", "control")

    async def publish() -> None:
        async with helio.connect(journal, producer="free") as bus:
            wind = bus.topic("wind", bytes)
            await wind.publish(b"first")
            process = start(writer, journal)
            async with wind.subscribe() as samples:
                await samples.next()
                stop_inside_lock(process, control)
            async with wind.subscribe() as samples:
                waiting = [asyncio.create_task(wind.publish(bytes([n]))) for n in range(5)]
                # The loop continues, and other threads run.
                for _ in range(20):
                    await asyncio.sleep(0.001)
                    assert await asyncio.to_thread(lambda: True)
                assert not any(task.done() for task in waiting)
                process.kill()
                receipts = await asyncio.gather(*waiting)
                assert [receipt.sequence for receipt in receipts] == [2, 3, 4, 5, 6]
                got = [s.value async for s in several(samples, 5)]
                assert got == [bytes([n]) for n in range(5)]

    async def several(samples: helio.Subscription[bytes], count: int) -> AsyncIterator[Any]:
        while count:
            sample = await samples.next()
            if sample.producer == "free":
                count -= 1
                yield sample

    asyncio.run(asyncio.wait_for(publish(), TIMEOUT_S))
