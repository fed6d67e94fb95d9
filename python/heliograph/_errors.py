"""The one exception tree.

::

    HelioError
    ├── ConnectError             a URL cannot be opened; the message says what to change
    ├── NameRefused              a topic or producer name is not legal (also a ValueError)
    ├── QosRefused               a transport cannot do what a topic asks for; names the policy
    ├── UnknownTopic             a topic does not exist, and nothing says how to make it
    ├── SchemaError              a schema is malformed, or a class cannot be made into one
    │   └── IncompatibleSchema   a reader's and a writer's schema do not resolve; names the field
    ├── CodecError               a value and its schema, or bytes and their schema, disagree
    │   ├── EncodeError          a value does not fit its schema (also a ValueError)
    │   └── DecodeError          bytes are no datum of their schema (also a ValueError)
    ├── PublishError             a sample was not taken; nothing of it will be delivered
    │   ├── Fenced               a newer incarnation of this producer, or another owner, writes
    │   ├── NotLive              a component's lease is lost or given back: it writes no more
    │   ├── OverloadError        the queue is full, and the topic's policy is to refuse
    │   └── StorageError         the engine cannot store: disk full, damaged, no permission
    ├── SubscribeError           a subscription cannot be opened or has failed
    ├── CommandError             a command did not complete; ``ack`` is what was said last
    │   ├── NotPermitted         the caller may not send it, or another one has a lock
    │   ├── NobodyThere          no live component took it (or it went away meanwhile)
    │   ├── CommandFailed        it was refused, or its handler failed
    │   ├── CommandAborted       it was cancelled
    │   └── CommandTimeout       it came too late or took too long (also a TimeoutError)
    ├── ExpectedError            what a handler raises to fail its command without a traceback
    ├── LeaseError                another instance of this component has taken over
    ├── WaitTimeout              a bounded wait ended first (also a TimeoutError)
    └── ClosedError              the bus, topic or subscription is closed

Every error that the Rust layers return becomes one of these; the message names the cause and the
remedy. Catch ``HelioError`` to catch all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliograph._component._codes import Ack


class HelioError(Exception):
    """Base of everything that Heliograph raises on purpose."""


class ConnectError(HelioError):
    """A URL cannot be opened: unknown scheme, bad option, unreachable or unreadable place."""


class NameRefused(HelioError, ValueError):
    """A topic or producer name is empty, too long or has an illegal character."""


class QosRefused(HelioError):
    """The transport cannot do what the topic asks for, or the topic exists with other terms."""


class UnknownTopic(HelioError, LookupError):
    """A topic does not exist, and no quality of service was named to create it with."""


class SchemaError(HelioError):
    """A schema is malformed, or a class cannot be turned into one."""


class IncompatibleSchema(SchemaError):
    """What was written cannot be read as what is asked for; the message names the field."""


class CodecError(HelioError):
    """A value or some bytes disagree with the schema.

    ``path`` is where, as ``field.inner[3]`` (empty at the top), ``expected`` what the schema asks
    for there, and ``found`` what was there instead.
    """

    path: str
    expected: str
    found: str

    def __init__(self, message: str, path: str = "", expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[type[CodecError], tuple[str, str, str, str]]:
        return (type(self), (str(self), self.path, self.expected, self.found))


class EncodeError(CodecError, ValueError):
    """A value does not fit its schema; nothing was published."""


class DecodeError(CodecError, ValueError):
    """Bytes are not a datum of their schema: truncated, damaged or of another schema."""


class PublishError(HelioError):
    """A sample was not taken, and nothing of it will be delivered."""


class Fenced(PublishError):
    """A newer incarnation of this producer, or another owner of the topic, is writing."""


class NotLive(PublishError):
    """A component is not the one live instance of it: what it wrote would be another's word."""


class OverloadError(PublishError):
    """The queue is full, and the topic's policy is to refuse rather than to wait or drop."""


class StorageError(PublishError):
    """The engine cannot store: disk full, read-only, damaged, or no permission."""


class SubscribeError(HelioError):
    """A subscription cannot be opened, or its engine has failed."""


class CommandError(HelioError):
    """A command did not complete; ``ack`` is the final acknowledgement."""

    ack: Ack

    def __init__(self, message: str, ack: Ack) -> None:
        super().__init__(message)
        self.ack = ack

    def __reduce__(self) -> tuple[type[CommandError], tuple[str, Ack]]:
        return (type(self), (str(self), self.ack))


class NotPermitted(CommandError):
    """The caller may not send the command, or another one has locked the component."""


class NobodyThere(CommandError):
    """No live component took the command, or it went away while the command ran."""


class CommandFailed(CommandError):
    """The command was refused, or its handler failed."""


class CommandAborted(CommandError):
    """The command was cancelled."""


class CommandTimeout(CommandError, TimeoutError):
    """The command came too late, or its component did not say enough in time."""


class ExpectedError(HelioError):
    """Raised by a handler to fail its command: no traceback is logged.

    ``code`` is the error code of the acknowledgement, whose meaning is the component's own.
    """

    code: int

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[ExpectedError], tuple[str, int]]:
        return (type(self), (str(self), self.code))


class LeaseError(HelioError):
    """Another instance of this component is running, or has taken over while this one was not."""


class WaitTimeout(HelioError, TimeoutError):
    """A bounded wait ended before what it waited for."""


class ClosedError(HelioError):
    """The bus, topic or subscription has been closed."""
