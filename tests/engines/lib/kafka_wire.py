"""The three requests of Kafka's protocol that starting brokers needs (kafka.apache.org/protocol).

All are of versions before the flexible ones (KIP-482), which every Kafka from 2.0 on understands.
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from lib.errors import FailureError
from lib.ports import HOST

TIMEOUT_SECONDS = 5.0
METADATA, DESCRIBE_ACLS, CREATE_ACLS = 3, 29, 30
VERSION = 1
# Codes of access control lists.
TOPIC, GROUP, ANY = 2, 3, 1
LITERAL, READ, ALLOW = 3, 3, 3
ALL_NAMES = "*"


@dataclass
class Writer:
    """A request's body."""

    data: bytearray = field(default_factory=bytearray)

    def number(self, layout: str, *values: int) -> "Writer":
        """Big-endian numbers, as in `struct`: b, h, i for 1, 2, 4 bytes."""
        self.data += struct.pack(f">{layout}", *values)
        return self

    def text(self, text: str | None) -> "Writer":
        """A string, or none."""
        if text is None:
            return self.number("h", -1)
        self.number("h", len(text.encode()))
        self.data += text.encode()
        return self


@dataclass
class Reader:
    """An answer's body."""

    data: bytes
    at: int = 0

    def number(self, layout: str) -> int:
        """A big-endian number, as in `struct`."""
        (value,) = struct.unpack_from(f">{layout}", self.data, self.at)
        self.at += struct.calcsize(f">{layout}")
        return int(value)

    def text(self) -> str:
        """A string; none is the empty one."""
        begin = self.number("h")
        if begin < 0:
            return ""
        self.at += begin
        return self.data[self.at - begin : self.at].decode()


class Connection:
    """A connection to a broker; what goes wrong is an OSError."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), TIMEOUT_SECONDS)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()
        self.socket.close()

    def call(self, request: int, body: Writer) -> Reader:
        """Sends a request and waits for its answer."""
        header = Writer().number("hhi", request, VERSION, 0).text("heliograph-engines")
        message = bytes(header.data + body.data)
        self.socket.sendall(struct.pack(">i", len(message)) + message)
        answer = self._read(*struct.unpack(">i", self._read(4)))
        # The number of the request comes first: there is one only.
        return Reader(answer, at=4)

    def _read(self, length: int) -> bytes:
        data = self.file.read(length)
        if len(data) < length:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def brokers(self) -> set[int]:
        """The numbers of the brokers that this one knows to serve."""
        no_topics = Writer().number("i", 0)
        answer = self.call(METADATA, no_topics)
        found = set()
        for _ in range(answer.number("i")):
            found.add(answer.number("i"))
            answer.text(), answer.number("i"), answer.text()
        return found

    def allow_reading(self, user: str, resources: Sequence[int]) -> None:
        """Lets a user read all topics, or in all groups, from anywhere."""
        body = Writer().number("i", len(resources))
        for resource in resources:
            body.number("b", resource).text(ALL_NAMES).number("b", LITERAL)
            body.text(f"User:{user}").text("*").number("bb", READ, ALLOW)
        answer = self.call(CREATE_ACLS, body)
        answer.number("i")
        for _ in range(answer.number("i")):
            code, message = answer.number("h"), answer.text()
            if code != 0:
                raise FailureError(f"the broker refused an access control list: {code} {message}")

    def has_lists(self) -> bool:
        """Whether the broker has heard of any access control list."""
        everything = Writer().number("b", ANY).text(None).number("b", ANY).text(None).text(None)
        answer = self.call(DESCRIBE_ACLS, everything.number("bb", ANY, ANY))
        answer.number("i"), answer.number("h"), answer.text()
        return answer.number("i") > 0
