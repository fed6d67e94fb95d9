"""Users' filters in a real Spark with three executors, from a real broker: as in one process."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from engines import url

import heliograph
from heliograph import alerts, testing

ENGINES = Path(__file__).resolve().parents[3] / "tests" / "engines"
PYSPARK = ["pyspark==4.2.0", "py4j==0.10.9.9"]
PARTITIONS = 6
HEAD = b"\0" + (1101).to_bytes(4, "big")
JOB_TIMEOUT_S = 800.0
"""When a job has failed: the soak ends a unit after 900 s."""


def filters() -> dict[str, dict[str, str]]:
    """Filters whose results differ where NaN, null, division and casts are treated otherwise."""
    select, snr = "SELECT * FROM alerts WHERE ", " ORDER BY diaSource.snr DESC"
    found = {
        f"flat-{n}": {
            "bright": f"{select}diaSource.snr > {4 + n}{snr}",
            "ratio": f"{select}diaSource.psfFlux / diaSource.psfFluxErr > {5 + n}{snr}",
        }
        for n in range(8)
    }
    found["zero"] = {
        "integer": f"{select}diaSource.detector / (diaSource.detector % 2) > 0{snr}",
        "float": f"{select}diaSource.psfFlux / 0.0 > 1e30{snr}",
        "cast": f"{select}CAST(diaSource.snr AS BIGINT) % 3 = 0{snr}",
    }
    found["null"] = {
        "order": f"{select}diaSource.snr > 3 ORDER BY ssSource.eclLambda, diaSource.ra DESC",
    }
    curves = " ORDER BY slope(prvDiaSources.psfFlux), diaSource.ra"
    found["curves"] = {
        "seen": f"{select}count_if(prvDiaSources.snr > 3) >= 2{curves}",
        "last": f"{select}last(prvDiaSources.psfFlux) < diaSource.psfFlux{curves}",
    }
    return found


def pyspark() -> Path:
    """The folder of PySpark: that of these tests, or one of its own, filled once."""
    try:
        import pyspark as installed
    except ImportError:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "heliograph" / "pyspark-4.2.0"
        if not (folder / "complete").exists():
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            subprocess.run([*install, "--upgrade", "--target", folder, *PYSPARK], check=True)
            (folder / "complete").touch()
        return folder
    return Path(str(installed.__file__)).parents[1]


def jars() -> list[str]:
    """Spark's source for Kafka, with what it needs, as its lock file has them."""
    code = "from lib.maven import Lock\nlock = Lock('spark')\nwith lock.cache() as folder:\n"
    code += "    print(*lock.fetch(folder), sep='\\n')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ENGINES, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def packets() -> list[bytes]:
    """Two visits, some packets with stamps, copies of some, and damaged ones."""
    found = []
    for visit in range(2):
        for detector in range(8):
            options: Any = {"alerts_per_visit": 2_000, "detectors": 8, "stamps": "none"}
            found += testing.alert_packets(visit, detector, **options)[1]
    found += testing.alert_packets(5, alerts_per_visit=100, detectors=1)[1]
    found = [HEAD + packet for packet in found]
    dice = random.Random(44)
    found += dice.sample(found, 200)
    whole = dice.sample(found, 40)
    found += [packet[: dice.randrange(len(packet) // 2)] for packet in whole]
    found += [b"", b"\0\0\0\0\x07abc", b"Obj\x01damaged", secrets.token_bytes(5_000)]
    dice.shuffle(found)
    return found


@pytest.fixture(scope="module")
def broker() -> str:
    """The address of a broker."""
    return url("kafka").removeprefix("kafka://").partition("?")[0]


@pytest.fixture(scope="module")
def stored(broker: str) -> tuple[str, dict[tuple[int, int], bytes]]:
    """A topic, and its packets by partition and offset."""
    topic = f"alerts-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": broker})
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    made.result(60)
    found: dict[tuple[int, int], bytes] = {}
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)
        else:
            found[message.partition(), message.offset()] = message.value() or b""

    producer = confluent_kafka.Producer({"bootstrap.servers": broker})
    for n, packet in enumerate(packets()):
        producer.produce(topic, packet, partition=n % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed
    return topic, found


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job, with PySpark and this package on the path of all its processes."""
    folder = Path(job["folder"])
    places = [Path(str(heliograph.__file__)).parents[1], pyspark()]
    path = os.pathsep.join(str(place) for place in places)
    described = folder / "job.json"
    described.write_text(json.dumps(job | {"python_path": path}))
    environment = os.environ | {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(places[1] / "pyspark"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    log = folder / "log"
    with log.open("wb") as output:
        command = [sys.executable, Path(__file__).parent / "spark_job.py", described]
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdout=output,
            stderr=output,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-8_000:]
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_three_executors_match_and_choose_as_one_process(
    broker: str, stored: tuple[str, dict[tuple[int, int], bytes]], tmp_path: Path
) -> None:
    topic, by_place = stored
    described = {"broker": broker, "topic": topic, "filters": filters(), "jars": jars()}
    report = run(described | {"folder": str(tmp_path), "packets_per_batch": 1_500})

    places = sorted(by_place)
    column = pa.array([by_place[place] for place in places], pa.binary())
    found, damaged = alerts.FilterSet(filters()).run(column)
    whole = pa.record_batch(found)
    names = ("visit", "user", "alert", "rank", "filter")
    expected = sorted(
        (*places[row["row"]], *(row[name] for name in names)) for row in whole.to_pylist()
    )
    good = [row for row in report["matches"] if row["error"] is None]
    ours = sorted((row["partition"], row["offset"], *(row[name] for name in names)) for row in good)
    assert ours == expected
    bad = {
        (row["partition"], row["offset"]): row["error"]
        for row in report["matches"]
        if row["error"] is not None
    }
    assert bad == {places[row]: reason for row, reason in damaged}
    assert len(bad) >= 30

    best = pa.record_batch(alerts.best([whole])).to_pylist()
    chosen = [{"row": row.pop("place")} | row for row in report["best"]]
    assert chosen == best
    users = {(row["visit"], row["user"]) for row in best}
    assert len({user for _, user in users}) >= 10
    assert sum(row["row"] == 19 for row in best) >= 10, "the cap is reached by many"

    tasks = report["executors"]
    assert len(tasks) == 3, tasks
    assert all(count > 0 for count in tasks.values()), tasks
    assert report["batches"] >= 3
    # What the report of a soak quotes.
    sys.stderr.write(
        f"spark: {len(places)} packets, {len(good)} matches, {len(best)} chosen, {len(bad)} "
        f"damaged, {report['batches']} batches, tasks {tasks}\n"
    )
