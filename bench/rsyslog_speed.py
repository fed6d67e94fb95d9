#!/usr/bin/env python3
"""What rsyslog's daemon costs a record: syslog over TCP or a unix socket into a file.

It starts an rsyslogd of its own, with a configuration, a socket and a file in a temporary folder,
sends it records of one size, and waits until they are all in the file. Prints one JSON object, with
the names that `helio bench logging` has.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# One write has so many records; rsyslog's own senders gather as many.
GATHERED = 100
TICK_S = 0.01
# A daemon that takes nothing for so long has failed.
PATIENCE_S = 60.0

CONFIG = """
global(workDirectory="{folder}")
module(load="imtcp" StreamDriver.Name="ptcp" MaxSessions="10")
module(load="imuxsock" SysSock.Use="off")
input(type="imtcp" port="{port}" address="127.0.0.1" ruleset="file")
input(type="imuxsock" Socket="{folder}/socket" RateLimit.Interval="0" ruleset="file")
template(name="line" type="string" string="%rawmsg%\\n")
ruleset(name="file") {{
  action(type="omfile" file="{folder}/records" template="line" ioBufferSize="64k")
}}
"""


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rsyslogd", help="the daemon (default: that of the path, or /usr/sbin)")
    parser.add_argument("--input", choices=("tcp", "unix"), default="tcp")
    parser.add_argument("--size", type=int, default=300, help="bytes of a message")
    parser.add_argument("--rate", default="24000", help="records a second, or max")
    parser.add_argument("--seconds", type=float, default=10.0)
    return parser.parse_args()


def cpu_s(process: int) -> float:
    """CPU seconds of a process so far, in user and system mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(process: int) -> float:
    """Peak memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def connected(given: argparse.Namespace, folder: Path, port: int) -> socket.socket:
    """A connection to the daemon, once it listens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if given.input == "tcp":
                return socket.create_connection(("127.0.0.1", port))
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            unix.connect(str(folder / "socket"))
            return unix
        except OSError:
            if time.monotonic() > until:
                sys.exit("rsyslog_speed: rsyslogd does not listen")
            time.sleep(TICK_S)


def schedule(given: argparse.Namespace) -> Iterator[int]:
    """How many records are due by now; it ends with the time."""
    rate = math.inf if given.rate == "max" else float(given.rate)
    begin = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - begin) < given.seconds:
        due = sent + GATHERED if math.isinf(rate) else int(elapsed * rate)
        if due == sent:
            time.sleep(TICK_S)
            continue
        yield due - sent
        sent = due


def send(connection: socket.socket, message: bytes, records: int, stream: bool) -> None:
    """Sends records: a stream takes several at once, each on a line; a datagram is one."""
    if not stream:
        for _ in range(records):
            connection.send(message)
        return
    while records:
        some = min(records, GATHERED)
        connection.sendall((message + b"\n") * some)
        records -= some


def measured(given: argparse.Namespace, folder: Path, daemon: str) -> dict[str, object]:
    """Runs it."""
    port = free_port()
    config = folder / "rsyslog.conf"
    config.write_text(CONFIG.format(folder=folder, port=port))
    command = [daemon, "-n", "-f", str(config), "-i", str(folder / "pid")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            with connected(given, folder, port) as connection:
                return figures(given, folder, process.pid, connection)
        finally:
            process.terminate()


def figures(
    given: argparse.Namespace, folder: Path, daemon: int, connection: socket.socket
) -> dict[str, object]:
    """Sends, waits, and tells."""
    head = b"<134>1 2026-01-01T00:00:00.000000Z localhost bench 1 - - "
    message = head + b"x" * (given.size - len(head))
    line_bytes = len(message) + 1
    before, ours, begin = cpu_s(daemon), time.process_time(), time.monotonic()
    offered = 0
    for records in schedule(given):
        send(connection, message, records, given.input == "tcp")
        offered += records
    ours = time.process_time() - ours
    kept, heard, end = 0, time.monotonic(), time.monotonic()
    while kept < offered and time.monotonic() - heard < PATIENCE_S:
        time.sleep(TICK_S)
        file = folder / "records"
        now = file.stat().st_size // line_bytes if file.exists() else 0
        if now > kept:
            kept, heard, end = now, time.monotonic(), time.monotonic()
    cpu = cpu_s(daemon) - before
    return {
        "mechanism": "rsyslog",
        "workload": "logging",
        "path": given.input,
        "size_bytes": given.size,
        "rate_hz": None if given.rate == "max" else float(given.rate),
        "seconds": given.seconds,
        "records_per_s": round(kept / (end - begin)),
        "cpu_s": {"producer": round(ours, 4), "path": round(cpu, 4)},
        "cpu_us_per_record": {
            "producer": round(ours * 1e6 / max(offered, 1), 4),
            "path": round(cpu * 1e6 / max(offered, 1), 4),
        },
        "rss_mb": {"path": round(rss_mb(daemon))},
        "offered": offered,
        "delivered": kept,
        "dropped": 0,
        "unaccounted": offered - kept,
    }


def main() -> None:
    """Measures once."""
    given = options()
    daemon = given.rsyslogd or shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin")
    if daemon is None:
        sys.exit("rsyslog_speed: there is no rsyslogd (Debian's package rsyslog)")
    with tempfile.TemporaryDirectory(prefix="rsyslog-") as name:
        print(json.dumps(measured(given, Path(name), daemon)))


if __name__ == "__main__":
    main()
