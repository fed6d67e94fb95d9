"""A weather station publishes wind; a reader gets the newest sample, then each one that comes.

    python examples/python/wind.py [URL]        # journal:site without one

Start it twice: the second one sees what both publish.
"""

import asyncio
import sys

import numpy as np

import heliograph as helio


@helio.record  # a dataclass; Avro schema derived, units kept
class Wind:
    """Wind at the weather mast."""

    speed: helio.Float64 = helio.field(unit="m/s")
    gusts: helio.Array[helio.Float32, 64] = helio.field(unit="m/s")


async def publish(wind: helio.Topic[Wind]) -> None:
    """Publish five samples, one every 100 ms."""
    random = np.random.default_rng()
    for _ in range(5):
        gusts = random.normal(7.5, 1.0, 64).astype(np.float32)
        await wind.publish(Wind(speed=float(gusts.mean()), gusts=gusts))  # numpy in
        await asyncio.sleep(0.1)


async def main(url: str) -> None:
    """Publish and read on one bus."""
    async with helio.connect(url) as bus:  # or kafka://…, dds://0 …
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        await wind.publish(Wind(speed=7.5, gusts=np.full(64, 7.5)))
        async with asyncio.TaskGroup() as tasks, wind.subscribe(start=helio.last(1)) as samples:
            tasks.create_task(publish(wind))
            for _ in range(6):
                s = await samples.next()
                gust = s.value.gusts.max()  # numpy out, no copy where it is large
                print(f"{s.time}  {s.value.speed:5.2f} m/s, gusts to {gust:5.2f} m/s", end="")
                print(f"  from {s.producer}, lost {samples.stats.lost}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "journal:site"))
