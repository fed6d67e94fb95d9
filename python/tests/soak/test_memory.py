"""A million samples leak no memory."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc

import heliograph as helio
from heliograph import testing


@helio.record
class Wind:
    """The published record."""

    speed: helio.Float64


def _resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def test_a_million_samples_leave_nothing_behind() -> None:
    qos = helio.TELEMETRY.replace(
        retention=helio.Retention(bytes=1 << 20, last_value=True), history=helio.KeepLast(1)
    )

    async def work(rounds: int, bus: helio.Bus) -> None:
        wind = bus.topic("weather/wind", Wind, qos=qos)
        value = Wind(speed=1.0)
        async with wind.subscribe() as samples:
            for _ in range(rounds):
                for _ in range(250):
                    await wind.publish(value)
                await wind.publish_many([value] * 250)
                count = 0
                async for sample in samples:
                    assert sample.value.speed == 1.0
                    count += 1
                    if count == 500:
                        break

    async def main() -> None:
        async with testing.memory_bus() as bus:
            await work(100, bus)
            gc.collect()
            tracemalloc.start()
            await work(10, bus)
            before, resident = tracemalloc.get_traced_memory()[0], _resident_kib()
            tracemalloc.stop()
            await work(1880, bus)
            gc.collect()
            tracemalloc.start()
            await work(10, bus)
            after = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert after - before < 64 * 1024
            assert _resident_kib() - resident < 16 * 1024

    asyncio.run(main())
