"""The one exception tree.

::

    HelioError
    ├── ConnectError             a URL cannot be opened; the message names the remedy
    ├── NameRefused              invalid topic or producer name (also a ValueError)
    ├── QosRefused               a transport does not support a policy; names the policy
    ├── UnknownTopic             a topic does not exist, and no QoS was given to create it
    ├── SchemaError              malformed schema, or no schema can be derived from a class
    │   └── IncompatibleSchema   a reader's and a writer's schema do not resolve; names the field
    ├── CodecError               a value and its schema, or bytes and their schema, disagree
    │   ├── EncodeError          a value does not fit its schema (also a ValueError)
    │   └── DecodeError          bytes are not a datum of their schema (also a ValueError)
    ├── PublishError             a sample was rejected and will not be delivered
    │   ├── Fenced               a newer incarnation of this producer, or another owner, writes
    │   ├── NotLive              a component's lease is lost or released: it must not write
    │   ├── OverloadError        the queue is full, and the overload policy is *refuse*
    │   ├── StorageError         the engine cannot store: disk full, damaged, no permission
    │   └── TopicGone            the topic was deleted or recreated (also a SubscribeError)
    ├── SubscribeError           a subscription cannot be opened or has failed
    ├── CommandError             a command did not complete; ``ack`` is the last ack
    │   ├── NotPermitted         the caller lacks permission, or another caller has a lock
    │   ├── NobodyThere          no live component accepted it, or it ended meanwhile
    │   ├── CommandFailed        it was rejected, or its handler failed
    │   ├── CommandAborted       it was cancelled
    │   └── CommandTimeout       it was late or took too long (also a TimeoutError)
    ├── ExpectedError            a handler raises it to fail its command without traceback
    ├── LeaseError                another instance of this component has taken over
    ├── WaitTimeout              a bounded wait ended first (also a TimeoutError)
    ├── ClosedError              the bus, topic or subscription is closed
    └── InternalError            a bug of Heliograph: a panic of its Rust layers

Errors of the Rust layers are converted to these classes. Each message names cause and remedy. Catch
``HelioError`` to catch all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph import _heliograph

if TYPE_CHECKING:
    from heliograph._component._codes import Ack


class HelioError(Exception):
    """Base class of all errors that Heliograph raises."""

    # The memory layout of a plain exception, which InternalError needs.
    __slots__ = ()


class ConnectError(HelioError):
    """A URL cannot be opened: unknown scheme, bad option, unreachable or unreadable place."""


class NameRefused(HelioError, ValueError):
    """A topic or producer name is empty, too long or has an invalid character."""


class QosRefused(HelioError):
    """The transport does not support a policy, or the topic exists with other policies."""


class UnknownTopic(HelioError, LookupError):
    """A topic does not exist, and no quality of service was given to create it."""


class SchemaError(HelioError):
    """A schema is malformed, or no schema can be derived from a class."""


class IncompatibleSchema(SchemaError):
    """The writer's and the reader's schema do not resolve; the message names the field."""


class CodecError(HelioError):
    """A value or some bytes disagree with the schema.

    ``path`` is the place, such as ``field.inner[3]`` (empty at the top). ``expected`` is the
    expectation of the schema there, and ``found`` the actual value.
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
    """A sample was rejected and will not be delivered."""


class Fenced(PublishError):
    """A newer incarnation of this producer, or another owner of the topic, is writing."""


class NotLive(PublishError):
    """A component is not the live instance of its name, so it must not write."""


class OverloadError(PublishError):
    """The queue is full, and the topic's overload policy is *refuse*."""


class StorageError(PublishError):
    """The engine cannot store: disk full, read-only, damaged, or no permission."""


class SubscribeError(HelioError):
    """A subscription cannot be opened, or its engine has failed."""


class TopicGone(PublishError, SubscribeError):
    """The topic was deleted, or deleted and recreated, under this handle: open it again."""


class CommandError(HelioError):
    """A command did not complete; ``ack`` is the final acknowledgement."""

    ack: Ack

    def __init__(self, message: str, ack: Ack) -> None:
        super().__init__(message)
        self.ack = ack

    def __reduce__(self) -> tuple[type[CommandError], tuple[str, Ack]]:
        return (type(self), (str(self), self.ack))


class NotPermitted(CommandError):
    """The caller lacks permission for the command, or another caller has locked the component."""


class NobodyThere(CommandError):
    """No live component accepted the command, or it ended while the command ran."""


class CommandFailed(CommandError):
    """The command was rejected, or its handler failed."""


class CommandAborted(CommandError):
    """The command was cancelled."""


class CommandTimeout(CommandError, TimeoutError):
    """The command arrived too late, or its component did not acknowledge it in time."""


class ExpectedError(HelioError):
    """Raised by a handler to fail its command: no traceback is logged.

    ``code`` is the error code of the acknowledgement. The component defines its meaning.
    """

    code: int

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[ExpectedError], tuple[str, int]]:
        return (type(self), (str(self), self.code))


class LeaseError(HelioError):
    """Another instance of this component is running, or took over from this one."""


class WaitTimeout(HelioError, TimeoutError):
    """A wait reached its timeout."""


class ClosedError(HelioError):
    """The bus, topic or subscription has been closed."""


class InternalError(HelioError):
    """A bug of Heliograph: its Rust layers panicked, and the object of the call may be unusable.

    Close the bus, connect again, and report the message, with the lines on stderr before it.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"a bug of Heliograph, please report it: {super().__str__()}"


# The bindings raise this class, which is a BaseException elsewhere: `except Exception` misses it.
_heliograph.PanicException.__bases__ = (InternalError,)
