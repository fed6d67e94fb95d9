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
    │   ├── OverloadError        the queue is full, and the topic's policy is to refuse
    │   └── StorageError         the engine cannot store: disk full, damaged, no permission
    ├── SubscribeError           a subscription cannot be opened or has failed
    ├── WaitTimeout              a bounded wait ended first (also a TimeoutError)
    └── ClosedError              the bus, topic or subscription is closed

Every error that the Rust layers return becomes one of these; the message names the cause and the
remedy. Catch ``HelioError`` to catch all of them.
"""

from __future__ import annotations


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


class OverloadError(PublishError):
    """The queue is full, and the topic's policy is to refuse rather than to wait or drop."""


class StorageError(PublishError):
    """The engine cannot store: disk full, read-only, damaged, or no permission."""


class SubscribeError(HelioError):
    """A subscription cannot be opened, or its engine has failed."""


class WaitTimeout(HelioError, TimeoutError):
    """A bounded wait ended before what it waited for."""


class ClosedError(HelioError):
    """The bus, topic or subscription has been closed."""
