#!/usr/bin/env python3
"""Measures the encoding of alert packets in Python, in processor time of one thread.

Packets of Rubin's schema with a history of 200 points (100 earlier detections, 100 forced
measurements) and files of stamps that are made already; the same with images that become FITS
files; fastavro from the same dictionaries. Prints the median of the rounds, a packet.

    python bench/alerts_speed.py [--packets N] [--rounds N]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np

from heliograph import alerts, testing
from heliograph._heliograph import array_columns

if TYPE_CHECKING:
    from collections.abc import Callable


def columns_of(schema: Any, values: list[dict[str, Any]]) -> dict[str, Any]:
    """Take packets apart into columns, as a pipeline has them."""
    kinds = dict(array_columns(schema))
    found: dict[str, list[Any]] = {}

    def take(value: Any, path: str) -> None:
        for name, item in value.items():
            at = f"{path}.{name}" if path else name
            kind = kinds.get(at)
            if kind == "offsets":
                offsets = found.setdefault(at, [0])
                offsets.append(offsets[-1] + len(item or ()))
                for element in item or ():
                    take(element, f"{at}[]")
            elif isinstance(item, dict):
                take(item, at)
            elif kind != "bool" or item is None or isinstance(item, bool):
                found.setdefault(at, []).append(item)

    for value in values:
        take(value, "")
    columns: dict[str, Any] = {}
    for path, items in found.items():
        kind = kinds[path]
        nulls = [item is None for item in items]
        if all(nulls):
            continue
        if kind in ("str", "bytes"):
            columns[path] = items
        elif any(nulls):
            empty = False if kind == "bool" else 0
            filled = np.array([empty if item is None else item for item in items])
            columns[path] = np.ma.array(filled, mask=nulls)
        else:
            columns[path] = np.array(items, dtype=kind if kind != "offsets" else "int64")
    return columns


def measured(what: str, packets: int, rounds: int, call: Callable[[], Any]) -> None:
    """Print the processor time of a packet."""
    times = []
    for _ in range(rounds):
        since = time.thread_time()
        call()
        times.append((time.thread_time() - since) / packets * 1e6)
    least, median = min(times), statistics.median(times)
    print(f"{what:44} least {least:9.1f} us, median {median:9.1f} us")


def main() -> None:
    """Measure, and print the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=53)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    count = options.packets
    _, datums = testing.alert_packets(alerts_per_visit=count, detectors=1, history=100)
    with testing.sync_memory_bus() as bus:
        producer = alerts.sync.CcdProducer(bus)
        schema = producer.schema
        values = [schema.decode(datum) for datum in datums]
        for value in values:
            # The generator knows some as Solar System objects; their columns would be half empty.
            value["ssSource"] = value["mpc_orbits"] = None
        files = columns_of(schema, values)
        plain = producer.encode(values)
        assert producer.encode(files) == plain, "the encodings differ"
        bare = {path: column for path, column in files.items() if not path.startswith("cutout")}
        images = {
            f"cutout{name}": np.ones((count, 30, 30), np.float32)
            for name in ("Difference", "Science", "Template")
        }
        images |= {f"{name}.variance": pixels for name, pixels in images.items()}
        images |= {f"cutout{name}.psf": np.ones((41, 41)) for name in ("Difference", "Science")} | {
            "cutoutTemplate.psf": np.ones((77, 77))
        }
        print(f"{count} packets of {len(plain[0])} bytes; load {os.getloadavg()}")
        encode = producer._encoded
        measured("arrays, files of stamps", count, options.rounds, lambda: encode(files))
        measured("arrays, no stamps", count, options.rounds, lambda: encode(bare))
        with_images = {**bare, **images}
        measured("arrays, images to FITS", count, options.rounds, lambda: encode(with_images))
        measured("dictionaries", count, max(options.rounds // 4, 1), lambda: encode(values))

        parsed = fastavro.parse_schema(json.loads(schema.text))

        def by_fastavro() -> None:
            for value in values:
                fastavro.schemaless_writer(io.BytesIO(), parsed, value)

        measured("fastavro, dictionaries", count, max(options.rounds // 4, 1), by_fastavro)


if __name__ == "__main__":
    main()
