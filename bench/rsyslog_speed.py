#!/usr/bin/env python3
"""What rsyslog's daemon costs a record: syslog over TCP or a unix socket into a file.

It starts an rsyslogd of its own, with a configuration, a socket and a file in a temporary folder,
sends it records of one size, and waits until they are all in the file. Prints one JSON object, with
the names that `helio bench logging` has.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from feed import PATIENCE_S, TICK_S, fed, free_port, not_there, options, schedule, until_kept

# One write has so many records; rsyslog's own senders gather as many.
GATHERED = 100

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


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options(__doc__)
    parser.add_argument("--rsyslogd", help="the daemon (default: that of the path, or /usr/sbin)")
    parser.add_argument("--input", choices=("tcp", "unix"), default="tcp")
    return parser.parse_args()


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


def measured(given: argparse.Namespace, folder: Path, daemon: str) -> dict[str, Any]:
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
) -> dict[str, Any]:
    """Sends, waits, and tells."""
    head = b"<134>1 2026-01-01T00:00:00.000000Z localhost bench 1 - - "
    message = head + b"x" * (given.size - len(head))
    file = folder / "records"

    def send_all() -> int:
        offered = 0
        for records in schedule(given, GATHERED):
            send(connection, message, records, given.input == "tcp")
            offered += records
        return offered

    def kept() -> int:
        return file.stat().st_size // (len(message) + 1) if file.exists() else 0

    line = fed(given, daemon, send_all, lambda offered: until_kept(offered, kept))
    return {"mechanism": "rsyslog", "path": given.input} | line


def main() -> None:
    """Measures once."""
    given = arguments()
    daemon = given.rsyslogd or shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin")
    if daemon is None:
        not_there("rsyslog_speed: there is no rsyslogd (Debian's package rsyslog)")
    with tempfile.TemporaryDirectory(prefix="rsyslog-") as name:
        print(json.dumps(measured(given, Path(name), daemon)))


if __name__ == "__main__":
    main()
