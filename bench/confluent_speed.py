#!/usr/bin/env python3
"""What Confluent's Python client makes of Kafka, by the method of bench/compare, as a JSON line.

    bench/confluent_speed.py latency|throughput --url kafka://HOST:PORT [--payload BYTES]
                             [--count N] [--rate HZ] [--window N] [--set NAME=VALUE]…

A publisher and a subscriber process, bytes as they are, a topic of one partition; a message's
latency runs from the time that it was *meant* to be sent at, and rates end with the last report or
message.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

STAMP = struct.Struct("<QQ")
# Longest waits: for the brokers, and for a message before the rest counts as lost.
PATIENCE_S = 60.0
SILENCE_S = 5.0
# Senders sleep, then spin for so long, so that a sleep's overshoot is not taken for latency.
SPIN_NS = 200_000
LEAD_NS = 150_000_000


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["latency", "throughput"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--payload", type=int, default=256)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--window", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--replication", type=int, default=1)
    parser.add_argument("--role", choices=["publisher", "subscriber"])
    parser.add_argument("--topic", default=f"confluent_speed_{os.getpid()}")
    return parser.parse_args()


def config(given: argparse.Namespace) -> dict[str, Any]:
    """The client's settings."""
    settings = dict(setting.split("=", 1) for setting in given.set)
    # Errors only: settings that are not for this kind of client are no news.
    own = {"bootstrap.servers": given.url.removeprefix("kafka://"), "log_level": 3}
    return own | settings


def used() -> dict[str, float]:
    """What this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "rss_mb": usage.ru_maxrss / 1024}


def publisher(given: argparse.Namespace) -> None:
    """Publishes what is asked for, and waits for the reports."""
    reported = 0

    def report(error: Any, _: Any) -> None:
        nonlocal reported
        if error is not None:
            raise SystemExit(f"a message was not delivered: {error}")
        reported += 1

    producer = Producer(config(given))
    producer.list_topics(given.topic, PATIENCE_S)
    fill = bytes(max(0, given.payload - STAMP.size))
    window = given.window or 100_000
    before, start = used(), time.monotonic_ns() + LEAD_NS
    wait_until(start)
    for number in range(given.count):
        due = time.monotonic_ns()
        if given.workload == "latency":
            due = start + round(number * 1e9 / given.rate)
            wait_until(due)
        producer.produce(given.topic, STAMP.pack(due, number) + fill, on_delivery=report)
        producer.poll(0)
        while number + 1 - reported >= window:
            producer.poll(0.001)
    producer.flush(PATIENCE_S)
    seconds = (time.monotonic_ns() - start) * 1e-9
    print(json.dumps(sums(before) | {"count": reported, "seconds": seconds}))


def sums(before: dict[str, float]) -> dict[str, float]:
    """What was used since."""
    now = used()
    return now | {"cpu_s": now["cpu_s"] - before["cpu_s"]}


def wait_until(due_ns: int) -> None:
    """Sleeps, then spins."""
    left = due_ns - SPIN_NS - time.monotonic_ns()
    if left > 0:
        time.sleep(left * 1e-9)
    while time.monotonic_ns() < due_ns:
        pass


def subscriber(given: argparse.Namespace) -> None:
    """Makes the topic, says so, and reads until all has come or nothing comes any more."""
    topic = NewTopic(given.topic, num_partitions=1, replication_factor=given.replication)
    admin = AdminClient(config(given))
    for made in admin.create_topics([topic]).values():
        made.result(PATIENCE_S)
    own = {"group.id": given.topic, "enable.auto.commit": False}
    consumer = Consumer(config(given) | own)
    consumer.assign([TopicPartition(given.topic, 0, OFFSET_BEGINNING)])
    consumer.consume(1, timeout=0.5)
    print("ready", flush=True)
    late_us: list[float] = []
    before, first, last, quiet = used(), 0, 0, time.monotonic()
    while len(late_us) < given.count and time.monotonic() - quiet < SILENCE_S:
        # One by one where it is about time, in batches where it is about rates.
        messages = consumer.consume(1 if given.workload == "latency" else 500, timeout=0.5)
        now = time.monotonic_ns()
        for message in messages:
            if message.error() is None:
                due, _ = STAMP.unpack_from(message.value() or b"")
                first, last, quiet = first or due, now, time.monotonic()
                late_us.append((now - due) / 1e3)
    seconds = (last - first) * 1e-9
    print(json.dumps(sums(before) | {"late_us": late_us, "seconds": seconds}))


def start(role: str, given: argparse.Namespace) -> subprocess.Popen[str]:
    """One of the two processes."""
    command = [sys.executable, __file__, *sys.argv[1:], "--topic", given.topic, "--role", role]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The figures of a process that has ended."""
    output, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"bench/confluent_speed.py: a process ended with {process.returncode}")
    figures: dict[str, Any] = json.loads(output)
    return figures


def main() -> None:
    """Runs a role, or both in processes of their own."""
    given = options()
    if given.role == "publisher":
        publisher(given)
    elif given.role == "subscriber":
        subscriber(given)
    else:
        print(json.dumps(both(given)))


def both(given: argparse.Namespace) -> dict[str, Any]:
    """Runs the two, and joins their figures."""
    reader = start("subscriber", given)
    assert reader.stdout is not None
    reader.stdout.readline()
    writer = start("publisher", given)
    sent, got = outcome(writer), outcome(reader)
    late = sorted(got["late_us"]) or [0.0]
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0, "min": 0.0}
    latency = {name: late[min(len(late) - 1, int(part * len(late)))] for name, part in at.items()}
    latency |= {"mean": statistics.fmean(late), "stdev": statistics.pstdev(late)}
    received = len(got["late_us"])
    return {
        "mechanism": "confluent-kafka",
        "workload": given.workload,
        "payload_bytes": given.payload,
        "rate_hz": given.rate if given.workload == "latency" else None,
        "count": sent["count"],
        "received": received,
        "lost": given.count - received,
        "latency_us": latency,
        "write_per_s": sent["count"] / sent["seconds"],
        "read_per_s": received / max(got["seconds"], 1e-9),
        "cpu_s": {"publisher": sent["cpu_s"], "subscriber": got["cpu_s"]},
        "rss_mb": max(sent["rss_mb"], got["rss_mb"]),
        "window": given.window,
    }


if __name__ == "__main__":
    main()
