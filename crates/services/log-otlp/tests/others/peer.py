"""OpenTelemetry's own software at the other end: its Python SDK with its exporters, and a receiver.

    peer.py send grpc|http ENDPOINT    records of the SDK and of Python's logging, by its exporter
    peer.py receive                    OTLP/gRPC and OTLP/HTTP on free ports; prints them as JSON,
                                       and each request as a line of JSON, decoded by the classes
                                       of opentelemetry-proto

`receive` reads answers for the requests to come from standard input, one a line: `ok`, `busy`
(to be tried again), `partial N`, `bad`, `large N` (more than N records are too large, from then
on) or `denied`; `forget` takes back what was said. Without one a request is answered `ok`.
"""

from __future__ import annotations

import gzip
import http.server
import json
import logging
import sys
import threading
from collections import deque
from concurrent import futures

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as service
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as service_grpc
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

TIME = 1_790_000_000_123_456_789


def provider(kind: str, endpoint: str) -> LoggerProvider:
    """The SDK with its exporter, as programs set it up."""
    resource = Resource(
        {
            "service.name": "correlator",
            "service.version": "2.1",
            "host.name": "cob-cc",
            "process.executable.name": "corr",
            "process.pid": 4711,
        },
        "https://opentelemetry.io/schemas/1.38.0",
    )
    if kind == "grpc":
        exporter = GrpcExporter(endpoint=endpoint, insecure=True, compression=grpc.Compression.Gzip)
    else:
        exporter = HttpExporter(endpoint=f"{endpoint}/v1/logs", compression=Compression.Gzip)
    made = LoggerProvider(resource=resource, shutdown_on_exit=False)
    made.add_log_record_processor(BatchLogRecordProcessor(exporter))
    return made


def send(kind: str, endpoint: str) -> None:
    """Sends one record with all that the API has, one for each severity, and one of `logging`."""
    made = provider(kind, endpoint)
    logger = made.get_logger("CORR/Baseline", "0.9", "https://example.org/schema", {"scoped": True})
    span = SpanContext(0x0102030405060708090A0B0C0D0E0F10, 0x1112131415161718, False, TraceFlags(1))
    logger.emit(
        timestamp=TIME,
        observed_timestamp=TIME + 5,
        context=set_span_in_context(NonRecordingSpan(span)),
        severity_number=SeverityNumber.WARN2,
        severity_text="careful",
        body="baseline ångström",
        attributes={
            "text": "x",
            "int": -3,
            "double": 0.1,
            "flag": False,
            "texts": ["a", "b"],
            "bytes": b"\x00\xff",
            "map": {"inner": [1, 2]},
            "code.file.path": "baseline.py",
            "code.line.number": 12,
            "code.function.name": "correlate",
            "thread.name": "worker",
        },
        event_name="corr.baseline",
    )
    logger.emit(timestamp=TIME, body={"a": 1, "b": [None, "x"]})
    for number in SeverityNumber:
        logger.emit(timestamp=TIME, severity_number=number, body=number.name)
    root = logging.getLogger("corr.python")
    root.setLevel(logging.DEBUG)
    root.addHandler(LoggingHandler(level=logging.DEBUG, logger_provider=made))
    root.error("of %s %d", "logging", 7, extra={"antenna": "DV11"})
    assert made.force_flush(60_000)
    made.shutdown()


answers: deque[str] = deque()
said = threading.Lock()


def received(kind: str, request: service.ExportLogsServiceRequest, answer: str) -> None:
    """Says what has come."""
    with said:
        print(json.dumps({kind: MessageToDict(request), "answer": answer}), flush=True)


def verdict(request: service.ExportLogsServiceRequest) -> str:
    """What is answered to this request."""
    answer = answers.popleft() if answers else "ok"
    if not answer.startswith("large"):
        return answer
    # It holds of all that come.
    answers.appendleft(answer)
    scopes = [scope for logs in request.resource_logs for scope in logs.scope_logs]
    count = sum(len(scope.log_records) for scope in scopes)
    return "large" if count > int(answer.split()[1]) else "ok"


def response(answer: str) -> service.ExportLogsServiceResponse:
    """The answer to a request that was taken."""
    made = service.ExportLogsServiceResponse()
    if answer.startswith("partial"):
        made.partial_success.rejected_log_records = int(answer.split()[1])
        made.partial_success.error_message = "some are not wanted"
    return made


class Grpc(service_grpc.LogsServiceServicer):
    """A receiver."""

    def Export(  # noqa: N802
        self, request: service.ExportLogsServiceRequest, context: grpc.ServicerContext
    ) -> service.ExportLogsServiceResponse:
        """The call of OTLP."""
        answer = verdict(request)
        received("grpc", request, answer)
        codes = {
            "busy": grpc.StatusCode.UNAVAILABLE,
            "bad": grpc.StatusCode.INVALID_ARGUMENT,
            "large": grpc.StatusCode.RESOURCE_EXHAUSTED,
            "denied": grpc.StatusCode.UNAUTHENTICATED,
        }
        if answer in codes:
            context.abort(codes[answer], f"told to say {answer}")
        return response(answer)


class Http(http.server.BaseHTTPRequestHandler):
    """The same."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """The call of OTLP."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.headers["content-type"] == "application/x-protobuf"
        assert self.path == "/v1/logs", self.path
        request = service.ExportLogsServiceRequest.FromString(body)
        answer = verdict(request)
        received("http", request, answer)
        status = {"busy": 503, "bad": 400, "large": 413, "denied": 401}.get(answer, 200)
        self.send_response(status)
        if answer == "busy":
            self.send_header("retry-after", "0")
        told = response(answer).SerializeToString()
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def receive() -> None:
    """Receives until standard input ends."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    service_grpc.add_LogsServiceServicer_to_server(Grpc(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    print(json.dumps({"grpc": port, "http": web.server_address[1]}), flush=True)
    for line in sys.stdin:
        if line.strip() == "forget":
            answers.clear()
        else:
            answers.append(line.strip())
        with said:
            print(json.dumps({"told": line.strip()}), flush=True)
    server.stop(None)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(*sys.argv[2:])
    else:
        receive()
