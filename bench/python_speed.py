#!/usr/bin/env python3
"""What the Python package costs, as one JSON object a line (the keys of `helio bench … --json`).

    bench/python_speed.py [codec] [latency] [throughput] [idle] [--url URL] [--count N]
                          [--rate-hz HZ] [--payload BYTES] [--reader asyncio|sync]

`codec` times encoding and decoding of a record like MTM1M3's forceActuatorData (3,333 bytes): the
best of several rounds, in microseconds. `latency` has a publisher and a subscriber process; a
sample's latency runs from the time that it was *meant* to be sent at to the time that its value is
in the subscriber's hands. `throughput` publishes as fast as it can, one by one and in batches, and
reads while it is written. `idle` takes the CPU time of a process with --count asyncio tasks, each
waiting for a topic of its own, over ten seconds. Without --url a journal in a temporary folder is
used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from typing import Any

import numpy as np

import heliograph as helio
from heliograph import sync

ARRAYS = {
    "primaryCylinderForce": (helio.Float32, 156),
    "secondaryCylinderForce": (helio.Float32, 112),
    "primaryCylinderFollowingError": (helio.Float32, 156),
    "secondaryCylinderFollowingError": (helio.Float32, 112),
    "xForce": (helio.Float32, 12),
    "yForce": (helio.Float32, 100),
    "zForce": (helio.Float32, 156),
}
SCALARS = ("sndStamp", "rcvStamp", "efdStamp", "kafkaStamp", "timestamp")
MOMENTS = ("fx", "fy", "fz", "mx", "my", "mz", "forceMagnitude")
BATCH = 1000
IDLE_S = 10.0
# What subscribing itself leaves to do is over by then.
SETTLE_S = 2.0


def force_actuator_data() -> tuple[Any, Any]:
    """Return a record class with the fields of MTM1M3's largest topic, and a value."""
    kinds: dict[str, Any] = dict.fromkeys(SCALARS, helio.Float64)
    kinds |= {"seqNum": helio.Int32, "origin": helio.Int32}
    kinds |= {"revCode": helio.String, "identity": helio.String}
    kinds |= {name: helio.Array[kind, length] for name, (kind, length) in ARRAYS.items()}
    kinds |= dict.fromkeys(MOMENTS, helio.Float32)
    cls = helio.record(type("forceActuatorData", (), {"__annotations__": kinds}))
    random = np.random.default_rng(1)
    value: dict[str, Any] = dict.fromkeys(SCALARS, 1800000000.0)
    value |= {"seqNum": 100, "origin": 4711, "revCode": "b6107eef", "identity": "M1"}
    value |= {name: random.random(size, dtype="f4") for name, (_, size) in ARRAYS.items()}
    value |= dict.fromkeys(MOMENTS, 1.5)
    return cls, cls(**value)


def payload_class(size: int) -> tuple[Any, Any]:
    """Return a record class whose values take `size` bytes: a time and a block of bytes."""
    cls = helio.record(
        type("Payload", (), {"__annotations__": {"due_ns": helio.Int64, "fill": helio.Bytes}})
    )
    schema = helio.schema(cls)
    fill = max(0, size - len(schema.encode(cls(due_ns=time.monotonic_ns(), fill=b""))))
    fill -= 0 if fill < 64 else 1
    return cls, cls(due_ns=0, fill=bytes(fill))


def codec(_: argparse.Namespace) -> dict[str, Any]:
    """Time the codec alone."""
    cls, value = force_actuator_data()
    schema = helio.schema(cls)
    data = schema.encode(value)

    def best(work: Any, rounds: int = 15, number: int = 5000) -> float:
        return min(timeit.repeat(work, number=number, repeat=rounds)) / number * 1e6

    return {
        "workload": "codec",
        "topic": "forceActuatorData",
        "payload_bytes": len(data),
        "encode_us": round(best(lambda: schema.encode(value)), 3),
        "decode_us": round(best(lambda: schema.decode(data)), 3),
    }


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """Publish at a steady rate from one process, read in another."""
    reader = start("read-latency", options)
    assert reader.stdout is not None
    reader.stdout.readline()
    writer = start("write-latency", options)
    sent, got = outcome(writer), outcome(reader)
    late = sorted(got.pop("late_us"))

    def at(part: float) -> float:
        return round(late[min(len(late) - 1, int(part * len(late)))], 1)

    return summary("latency", options, sent, got) | {
        "rate_hz": options.rate_hz,
        "reader": options.reader,
        "latency_us": {
            "mean": round(statistics.fmean(late), 1),
            "stdev": round(statistics.pstdev(late), 1),
            "min": at(0),
            "p50": at(0.5),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": at(1),
        },
    }


def throughput(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Publish as fast as possible from one process, read in another."""
    lines = []
    for mode in ("one", "batch"):
        reader = start(f"read-{mode}", options)
        assert reader.stdout is not None
        reader.stdout.readline()
        writer = start(f"write-{mode}", options)
        sent, got = outcome(writer), outcome(reader)
        lines.append(
            summary("throughput", options, sent, got)
            | {
                "mode": {"one": "one by one", "batch": f"batches of {BATCH}"}[mode],
                "reader": options.reader,
                "write_per_s": round(options.count / sent["seconds"]),
                "read_per_s": round(options.count / got["seconds"]),
            }
        )
    return lines


def idle(options: argparse.Namespace) -> dict[str, Any]:
    """Wait with many tasks in one process, for what never comes."""
    load = round(os.getloadavg()[0], 2)
    waited = outcome(start("read-idle", options))
    return {
        "workload": "python-idle",
        "url": options.url,
        "count": options.count,
        "seconds": waited["seconds"],
        "cpu_percent": {"subscriber": round(waited["idle_cpu_s"] / waited["seconds"] * 100, 3)},
        "rss_mb": waited["rss_mb"],
        "load": load,
        "version": helio.__version__,
    }


async def wait_idle(options: argparse.Namespace) -> dict[str, Any]:
    """Be the process that waits."""
    cls, _ = payload_class(options.payload)

    async def first(number: int) -> None:
        topic = bus.topic(f"bench/idle/{number}", cls, qos=helio.TELEMETRY)
        async with topic.subscribe() as samples:
            async for _ in samples:
                return

    async with helio.connect(options.url) as bus:
        tasks = [asyncio.create_task(first(number)) for number in range(options.count)]
        await asyncio.sleep(SETTLE_S)
        begun, cpu = time.monotonic(), time.process_time()
        done, _ = await asyncio.wait(tasks, timeout=IDLE_S, return_when="FIRST_COMPLETED")
        seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
        if done:
            raise SystemExit("something came while nothing was published")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {"seconds": round(seconds, 3), "idle_cpu_s": cpu}


def summary(workload: str, options: Any, sent: Any, got: Any) -> dict[str, Any]:
    """Return what all lines have."""
    return {
        "workload": f"python-{workload}",
        "url": options.url,
        "payload_bytes": got["payload_bytes"],
        "count": options.count,
        "received": got["received"],
        "lost": got["lost"],
        "duplicated": got["duplicates"],
        "cpu_s": {"publisher": sent["cpu_s"], "subscriber": got["cpu_s"]},
        "rss_mb": max(sent["rss_mb"], got["rss_mb"]),
        "load": round(os.getloadavg()[0], 2),
        "version": helio.__version__,
        "receipt": "stored",
    }


def start(role: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start this program in one of its roles."""
    arguments = [sys.executable, __file__, "--role", role, "--url", options.url]
    for name in ("count", "rate_hz", "payload", "reader"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the last line that a role printed."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a process of the bench failed with {process.returncode}")
    return dict(json.loads(out.splitlines()[-1]))


def usage() -> dict[str, Any]:
    """Return this process's CPU seconds and peak memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "rss_mb": round(used.ru_maxrss / 1024, 1),
    }


QOS = helio.STREAM.replace(retention=helio.Retention(bytes=4 << 30))


def write(role: str, options: argparse.Namespace) -> None:
    """Be the publisher."""
    cls, value = payload_class(options.payload)
    with sync.connect(options.url, producer="bench") as bus:
        topic = bus.topic(f"bench/{role.partition('-')[2]}", cls, qos=QOS)
        topic.claim()
        begun = time.monotonic_ns()
        if role == "write-latency":
            step = round(1e9 / options.rate_hz)
            for number in range(options.count):
                value.due_ns = begun + step * (number + 1)
                pause(value.due_ns)
                topic.publish(value)
        elif role == "write-one":
            for _ in range(options.count):
                topic.publish(value)
        else:
            batch = [value] * BATCH
            for _ in range(options.count // BATCH):
                topic.publish_many(batch)
        seconds = (time.monotonic_ns() - begun) / 1e9
    print(json.dumps({"seconds": seconds} | usage()))


def pause(due_ns: int) -> None:
    """Sleep, then spin, so that a sleep's overshoot is not taken for latency."""
    left = due_ns - time.monotonic_ns()
    if left > 2_000_000:
        time.sleep((left - 1_000_000) / 1e9)
    while time.monotonic_ns() < due_ns:
        pass


def read(role: str, options: argparse.Namespace) -> None:
    """Be the subscriber."""
    if role == "read-idle":
        print(json.dumps(asyncio.run(wait_idle(options)) | usage()))
        return
    reader = read_async if options.reader == "asyncio" else read_sync
    result = reader(role, options) if reader is read_sync else asyncio.run(reader(role, options))
    print(json.dumps(result | usage()))


def counted(begun: int, late: list[int], count: int, samples: Any, last: Any) -> dict[str, Any]:
    """Return what a subscriber reports."""
    stats = samples.stats
    return {
        "seconds": (time.monotonic_ns() - begun) / 1e9,
        "late_us": [each / 1e3 for each in late],
        "received": count,
        "lost": stats.lost,
        "duplicates": stats.duplicates,
        "payload_bytes": len(last.payload),
    }


async def read_async(role: str, options: argparse.Namespace) -> dict[str, Any]:
    """Read in an event loop."""
    cls, _ = payload_class(options.payload)
    async with helio.connect(options.url) as bus:
        topic = bus.topic(f"bench/{role.partition('-')[2]}", cls, qos=QOS)
        late: list[int] = []
        count, begun = 0, 0
        async with topic.subscribe() as samples:
            print("ready", flush=True)
            if role == "read-batch":
                while count < options.count:
                    for s in await samples.batch(BATCH):
                        begun = begun or time.monotonic_ns()
                        s.value  # noqa: B018 (decoding is part of the work)
                        count += 1
                return counted(begun, late, count, samples, s)
            async for s in samples:
                due = s.value.due_ns
                if role == "read-latency":
                    late.append(time.monotonic_ns() - due)
                begun = begun or time.monotonic_ns()
                count += 1
                if count == options.count:
                    break
            return counted(begun, late, count, samples, s)


def read_sync(role: str, options: argparse.Namespace) -> dict[str, Any]:
    """Read in a thread that blocks."""
    cls, _ = payload_class(options.payload)
    with sync.connect(options.url) as bus:
        topic = bus.topic(f"bench/{role.partition('-')[2]}", cls, qos=QOS)
        late: list[int] = []
        count, begun = 0, 0
        with topic.subscribe() as samples:
            print("ready", flush=True)
            if role == "read-batch":
                while count < options.count:
                    for s in samples.batch(BATCH):
                        begun = begun or time.monotonic_ns()
                        s.value  # noqa: B018 (decoding is part of the work)
                        count += 1
                return counted(begun, late, count, samples, s)
            for s in samples:
                due = s.value.due_ns
                if role == "read-latency":
                    late.append(time.monotonic_ns() - due)
                begun = begun or time.monotonic_ns()
                count += 1
                if count == options.count:
                    break
            return counted(begun, late, count, samples, s)


def main() -> None:
    """Run the workloads that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "workloads", nargs="*", choices=["codec", "latency", "throughput", "idle", []]
    )
    parser.add_argument("--url")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate-hz", type=float, default=20.0)
    parser.add_argument("--payload", type=int, default=256)
    parser.add_argument("--reader", choices=["asyncio", "sync"], default="asyncio")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        (write if options.role.startswith("write") else read)(options.role, options)
        return
    workloads = options.workloads or ["codec", "latency", "throughput", "idle"]
    counts = {"latency": 400, "throughput": 200_000, "idle": 1000, "codec": 0}
    wanted = options.count
    for workload in workloads:
        with tempfile.TemporaryDirectory() as folder:
            given = options.url
            options.url = given or f"journal:{folder}/journal"
            options.count = wanted or counts[workload]
            made = globals()[workload](options)
            for line in made if isinstance(made, list) else [made]:
                print(json.dumps(line), flush=True)
            options.url = given


if __name__ == "__main__":
    main()
