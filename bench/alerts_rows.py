#!/usr/bin/env python3
"""Measures one row of the table of what alerts must reach, beside its peer or floor, as JSON.

    python bench/alerts_rows.py ROW --helio-alerts PROGRAM --dir DIR [--scale F] [--url kafka://…]

Rows on a bus are cells of `helio-alerts matrix`; rows of processor time are the crates' examples,
built by cargo in release. `--scale` makes volumes smaller, to see that all works; not for figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import mmap
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feed import NOT_THERE

Line = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent


def cell(given: argparse.Namespace, name: str, *options: str) -> Line:
    """The result of a cell of the matrix; a cell that is not whole ends this program."""
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        command = [str(given.helio_alerts), "matrix", "--dir", folder, "--cells", name, "--json"]
        command += [*options, *(["--smoke"] if given.scale < 1 else [])]
        command += ["--url", given.url] if given.url else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"bench/alerts_rows: {' '.join(command)} ended with {done.returncode}")
        (result,) = json.loads(done.stdout)["cells"]
        return dict(result)


def example(name: str, *arguments: str) -> str:
    """What an example prints, in the build of releases; all examples share one build."""
    build = ["cargo", "build", "--quiet", "--locked", "--workspace", "--message-format=json"]
    build += ["--example", name, *([] if os.environ.get("HELIO_BENCH_DEV") else ["--release"])]
    built = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(f"bench/alerts_rows: {' '.join(build)} ended with {built.returncode}")
    made = [json.loads(line).get("executable") for line in built.stdout.splitlines()]
    command = [next(program for program in made if program), *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench/alerts_rows: {' '.join(command)} ended with {done.returncode}")
    return done.stdout


def copy_s(size: int, folder: Path) -> float:
    """The seconds of a copy of so many bytes onto pages of a file that were never touched."""
    part = 1 << 20
    source = memoryview(os.urandom(part))
    with tempfile.TemporaryFile(dir=folder) as target:
        os.posix_fallocate(target.fileno(), 0, size)
        with mmap.mmap(target.fileno(), size) as mapped, memoryview(mapped) as write:
            begin = time.perf_counter()
            for at in range(0, size - part, part):
                write[at : at + part] = source
            return time.perf_counter() - begin


def visit_bytes(result: Line) -> float:
    """The bytes of a visit of a cell."""
    return float(statistics.mean(visit["bytes"] for visit in result["visits"]))


def shared_data() -> Path:
    """Real packets: `$HELIO_SHARED_DATA`, else `../shared/data` beside the repository."""
    return Path(os.environ.get("HELIO_SHARED_DATA", ROOT.parent / "shared" / "data"))


def visits_published(given: argparse.Namespace, url: str, threads: int, *rest: str) -> list[Line]:
    """What one process took for each visit to serialise and publish it, after the first."""
    alerts = str(max(int(10_000 * given.scale), 400))
    text = example("publish_speed", url, alerts, str(threads), *rest)
    return [json.loads(line) for line in text.splitlines()][1:]


def publish(given: argparse.Namespace) -> Line:
    """One process serialises and publishes a visit, beside copies onto fresh pages in turn."""
    lines, copies = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory(dir=given.dir) as folder:
            lines += visits_published(given, f"journal:{folder}", 1)
            copies.append(copy_s(lines[-1]["bytes"], given.dir))
    published = statistics.median(line["seconds"] for line in lines)
    copied = statistics.median(copies)
    return {
        "published_s": published,
        "encode_s": statistics.median(line["encode_s"] for line in lines),
        "copy_s": copied,
        "ratio": copied / published,
        "bytes": lines[-1]["bytes"],
    }


def packets_of(path: Path) -> list[memoryview]:
    """The packets of a file, each behind its length."""
    data, at, packets = memoryview(path.read_bytes()), 0, []
    while at < len(data):
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin], "little")
        packets.append(data[begin:at])
    return packets


def raw_s(url: str, packets: list[memoryview], topic: str) -> float:
    """The seconds of librdkafka to have all packets acknowledged."""
    import confluent_kafka

    servers = url.removeprefix("kafka://").split("?")[0]
    # As the transport sets it: bytes in flight are limited, and a batch is a packet or several.
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": 65_536,
            "message.max.bytes": 10_000_000,
        }
    )
    # The topic is made and its leader found, as ours are.
    producer.produce(topic, b"first")
    producer.flush()
    failed: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    begin = time.perf_counter()
    for packet in packets:
        while True:
            try:
                producer.produce(topic, bytes(packet), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    seconds = time.perf_counter() - begin
    if failed:
        sys.exit(f"bench/alerts_rows: librdkafka lost {len(failed)} packets: {failed[0]}")
    return seconds


def publish_kafka(given: argparse.Namespace) -> Line:
    """The same on a broker, beside librdkafka in turn, which publishes the same packets."""
    lines, raw = [], []
    for number in range(3):
        with tempfile.TemporaryDirectory(dir=given.dir) as folder:
            # Four threads, as librdkafka goes on while requests are under way.
            file = Path(folder) / "packets"
            lines += visits_published(given, given.url, 4, str(file))
            packets = packets_of(file)
            size = sum(len(packet) for packet in packets)
            if size != lines[-1]["bytes"]:
                sys.exit(f"bench/alerts_rows: {size} bytes of packets, {lines[-1]['bytes']} ours")
            raw.append(raw_s(given.url, packets, f"raw-{os.getpid()}-{number}"))
    published, peer = statistics.median(line["seconds"] for line in lines), statistics.median(raw)
    return {
        "published_s": published,
        "raw_s": peer,
        "ratio": peer / published,
        "bytes": lines[-1]["bytes"],
    }


def groups(given: argparse.Namespace) -> Line:
    """Eleven groups verify all, and what they cost producers while they read or stand still.

    The processor time is that between order and manifest: packets are made before.
    """
    reading = cell(given, "journal/groups-11-stamps")
    stalled = cell(given, "journal/groups-11-stalled")
    alone = cell(given, "journal/producers-alone")

    def cpu(result: Line) -> float:
        return float(statistics.median(visit["publish_cpu_s"] for visit in result["visits"]))

    def published(result: Line) -> float:
        return float(statistics.median(visit["published_s"] for visit in result["visits"]))

    return {
        "read_s": statistics.median(visit["read_s"] for visit in reading["visits"]),
        "read_bytes": visit_bytes(reading) * reading["cell"]["groups"],
        "rate_beside_stalled": published(alone) / published(stalled),
        "cpu_beside_reading": cpu(reading) / max(cpu(alone), 1e-9),
    }


def tail(given: argparse.Namespace) -> Line:
    """From the last publish to the last of two groups, over 100 visits of 1,000."""
    visits = "100" if given.scale == 1 else "4"
    result = cell(given, "journal/volume-1000-stamps", "--visits", visits)
    tails = sorted(visit["tail_s"] * 1e3 for visit in result["visits"])
    p99 = tails[math.ceil(len(tails) * 0.99) - 1]
    return {"tail_ms": {"p50": statistics.median(tails), "p99": p99, "max": tails[-1]}}


def decode(_: argparse.Namespace) -> Line:
    """Ten columns of a real packet, and with history of 100 points, beside fastavro."""
    packet = shared_data() / "alerts" / "lsst-v9_0-confluent-framed.bin"
    try:
        found = importlib.util.find_spec("lsst.alert.packet")
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        sys.exit(NOT_THERE)
    schemas = Path(found.origin).parent / "schema" / "9" / "0"
    if not packet.exists() or not schemas.exists():
        sys.exit(NOT_THERE)
    text = example("decode_speed", str(packet), str(schemas), sys.executable)
    figures: Line = {}
    kinds = {"the packet,": "plain", "with history, sized": "sized", "with history, uns": "unsized"}
    kind = ""
    for line in text.splitlines():
        kind = next((name for head, name in kinds.items() if line.startswith(head)), kind)
        for head, name in (
            ("  10 columns to Arrow ", "us"),
            ("  copy of the bytes ", "copy_us"),
            ("  fastavro, 10 columns to dict ", "fastavro_us"),
        ):
            if line.startswith(head):
                figures.setdefault(kind, {})[name] = float(line[len(head) :].split()[0])
    return figures


def encode(_: argparse.Namespace) -> Line:
    """A packet with 200 points without FITS making, in Rust and in Python, beside fastavro."""
    rust = example("encode")
    python = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "alerts_speed.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout

    def median(text: str, head: str) -> float:
        found = re.search(rf"^{re.escape(head)}.*median +([0-9.]+) us", text, re.MULTILINE)
        if found is None:
            sys.exit(f"bench/alerts_rows: no line '{head}' in\n{text}")
        return float(found[1])

    return {
        "rust_us": median(rust, "encode, 100 + 100 points, stamps"),
        "copy_us": median(rust, "  a copy of its bytes"),
        "python_us": median(python, "arrays, files of stamps"),
        "dictionaries_us": median(python, "dictionaries"),
        "fastavro_us": median(python, "fastavro, dictionaries"),
    }


def filters(given: argparse.Namespace) -> Line:
    """100 flat filters and 20 of light curves, and the projection of their columns from packets.

    The kernels alone are beside it: on columns in memory, all 97 of them in use.
    """
    kernels = [json.loads(line) for line in example("filter_speed").splitlines()]
    alone = {line["case"]: line["median_ms"] for line in kernels}
    alerts = str(max(int(10_000 * given.scale), 400))
    text = example("visit_speed", alerts, str(given.dir))
    lines = [json.loads(line) for line in text.splitlines()]

    def of(case: str, *parts: str) -> float:
        these = [line for line in lines if line["case"] == case]
        return float(statistics.median(sum(line[part] for part in parts) for line in these))

    return {
        "flat_ms": of("flat", "filter_ms", "projection_ms"),
        "flat_projection_ms": of("flat", "projection_ms"),
        "light_curves_ms": of("light curves", "filter_ms", "projection_ms"),
        "light_curves_projection_ms": of("light curves", "projection_ms"),
        "kernels_flat_ms": alone["flat"],
        "kernels_light_curves_ms": alone["light curves of 100 points"],
    }


def winners(given: argparse.Namespace) -> Line:
    """2,000 results after the visit's end, and the decoding that 100 flat filters need."""
    alerts = str(max(int(10_000 * given.scale), 400))
    text = example("results_speed", alerts, str(given.dir))
    lines = {line["content"]: line for line in map(json.loads, text.splitlines())}
    return {
        "references_ms": lines["reference"]["ms"],
        "copies_ms": lines["packets with stamps"]["ms"],
        "results": lines["packets with stamps"]["results"],
        "decode_ms": lines["reference"]["decode_ms"],
        "filter_ms": lines["reference"]["filter_ms"],
        "rss_anon_mb": lines["packets with stamps"]["rss_anon_mb"],
    }


def stretch(given: argparse.Namespace) -> Line:
    """A visit of 100,000 alerts to four groups and 100 filters; the disk's rate beside it."""
    result = cell(given, "journal/stretch-100000")
    size = visit_bytes(result)
    return {
        "published_s": result["published_s"]["mean"],
        "read_s": result["read_s"]["mean"],
        "bytes": size,
        "disk_mb_per_s": disk_mb_per_s(given.dir, int(min(size, 2 << 30))),
        "cpu_s": {
            role: used["cpu_s"]["mean"] * used["processes"]
            for role, used in result["processes"].items()
        },
    }


def disk_mb_per_s(folder: Path, size: int) -> float:
    """The rate at which a file of so many bytes is written and synced."""
    part = os.urandom(1 << 24)
    with tempfile.TemporaryFile(dir=folder) as file:
        begin = time.perf_counter()
        for _ in range(max(size // len(part), 1)):
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
        return max(size // len(part), 1) * len(part) * 1e-6 / (time.perf_counter() - begin)


def memory(given: argparse.Namespace) -> Line:
    """The most anonymous memory of any of 100 producers, and of a service with 100 users."""
    result = cell(given, "journal/filters-1")
    used = result["processes"]
    return {
        "producers": used["producers"]["processes"],
        "producer_mb": used["producers"]["anon_mb"]["max"],
        "filters_mb": used["filter service"]["anon_mb"]["max"],
    }


ROWS: dict[str, Callable[[argparse.Namespace], Line]] = {
    "publish": publish,
    "publish-kafka": publish_kafka,
    "groups": groups,
    "tail": tail,
    "decode": decode,
    "encode": encode,
    "filters": filters,
    "winners": winners,
    "stretch": stretch,
    "memory": memory,
}


def main() -> None:
    """Measures a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--helio-alerts", type=Path, default=Path("helio-alerts"))
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--url", help="a broker, for rows on Kafka")
    given = parser.parse_args()
    print(json.dumps(ROWS[given.row](given) | {"load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
