#!/usr/bin/env python3
"""What a record that comes by OTLP/HTTP costs `helio log serve`, or OpenTelemetry's collector.

The collector has its batches and writes a file, ours a journal. The same requests of 512 records go
to either one over one connection, each when the one before is answered. Prints one JSON object,
with the names that `helio bench logging` has.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

try:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
    )
except ImportError:
    sys.exit("otlp_speed: there is no package opentelemetry-proto")

from feed import PATIENCE_S, TICK_S, fed, free_port, not_there, options, schedule, until_kept

# The SDKs' own exporters send as many at most.
GATHERED = 512
# How long after its answer a record is written: the collector's batches and its file's buffer.
SETTLING_S = 2.0

CONFIG = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
processors: {{batch: {{}}}}
exporters: {{file: {{path: "{folder}/records"}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines: {{logs: {{receivers: [otlp], processors: [batch], exporters: [file]}}}}
"""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = options(__doc__)
    parser.add_argument("--server", choices=("helio", "collector"), default="helio")
    parser.add_argument("--helio", default="helio", help="the program `helio`")
    return parser.parse_args()


def collector() -> str:
    """The collector, built from the Go module beside this, where Go is there."""
    go = shutil.which("go")
    if go is None:
        not_there("otlp_speed: there is no Go to build OpenTelemetry's collector with")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    program = cache / "heliograph" / "otelcol"
    build = [go, "build", "-C", str(Path(__file__).parent / "otelcol"), "-o", str(program), "."]
    subprocess.run(build, check=True, stdout=sys.stderr)
    return str(program)


def command(given: argparse.Namespace, folder: Path, port: int) -> list[str]:
    """The service's command line."""
    if given.server == "helio":
        place = ["--otlp-http", f"127.0.0.1:{port}", "--url", f"journal:{folder}/journal"]
        return [given.helio, "log", "serve", *place, "--rate", "1e9", "--json"]
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder=folder, port=port))
    return [collector(), f"--config=file:{config}"]


def request(given: argparse.Namespace, records: int) -> bytes:
    """So many records, as OpenTelemetry's classes write them."""
    message = ExportLogsServiceRequest()
    resource = message.resource_logs.add()
    name = resource.resource.attributes.add(key="service.name")
    name.value.string_value = "bench"
    scope = resource.scope_logs.add()
    for _ in range(records):
        record = scope.log_records.add(time_unix_nano=time.time_ns(), severity_number=9)
        record.body.string_value = "x" * given.size
    written: bytes = message.SerializeToString()
    return written


def connected(service: subprocess.Popen[bytes], port: int) -> http.client.HTTPConnection:
    """A connection to the service, once it listens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.connect()
        except OSError:
            if service.poll() is not None or time.monotonic() > until:
                sys.exit("otlp_speed: the service does not listen")
            time.sleep(TICK_S)
        else:
            return connection


def post(connection: http.client.HTTPConnection, body: bytes) -> None:
    """Sends a request, again where the service says that it has no room at the moment."""
    while True:
        connection.request("POST", "/v1/logs", body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status == http.HTTPStatus.OK:
            if ExportLogsServiceResponse.FromString(said).partial_success.rejected_log_records:
                sys.exit(f"otlp_speed: {said!r}")
            return
        if answer.status not in (
            http.HTTPStatus.TOO_MANY_REQUESTS,
            http.HTTPStatus.SERVICE_UNAVAILABLE,
        ):
            sys.exit(f"otlp_speed: {answer.status} {said!r}")
        time.sleep(TICK_S)


def kept(given: argparse.Namespace, folder: Path) -> int:
    """How many records are in the journal, or in the collector's file."""
    if given.server == "helio":
        command = [given.helio, "log", "tail", "--url", f"journal:{folder}/journal"]
        command += ["--no-follow", "--from", "earliest", "--json"]
        tail = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return tail.stdout.count(b'"xxx')
    file = folder / "records"
    return file.read_bytes().count(b'"xxx') if file.exists() else 0


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs it."""
    port = free_port()
    body = request(given, GATHERED)
    service = subprocess.Popen(command(given, folder, port), stdout=subprocess.DEVNULL)
    try:
        connection = connected(service, port)

        def send() -> int:
            offered = waiting = 0
            for records in schedule(given, GATHERED):
                waiting += records
                for _ in range(waiting // GATHERED):
                    post(connection, body)
                    offered += GATHERED
                waiting %= GATHERED
            return offered

        def settle(offered: int) -> tuple[int, float]:
            end = time.monotonic()
            time.sleep(SETTLING_S)
            found, _ = until_kept(offered, lambda: kept(given, folder))
            return found, end

        return fed(given, service.pid, send, settle)
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(PATIENCE_S)


def main() -> None:
    """Measures once."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="otlp-") as name:
        line = measured(given, Path(name))
    print(json.dumps({"mechanism": given.server, "path": "otlp"} | line))


if __name__ == "__main__":
    main()
