"""Publish/subscribe for observatories: one typed log, from shared memory to a cluster.

::

    import heliograph as helio

    @helio.record
    class Wind:
        speed: helio.Float64 = helio.field(unit="m/s")
        gusts: helio.Array[helio.Float32, 64] = helio.field(unit="m/s")

    async with helio.connect("journal:site") as bus:
        wind = bus.topic("weather/wind", Wind, qos=helio.TELEMETRY)
        await wind.publish(Wind(speed=7.5, gusts=gusts))
        async with wind.subscribe(start=helio.last(1)) as samples:
            async for s in samples:
                print(s.time, s.value.speed, samples.stats.lost)

``heliograph.sync`` is the same API without ``await``. ``heliograph.testing`` has an in-memory bus
and pytest fixtures. All errors derive from :class:`HelioError`: see
``heliograph._errors``.
"""

from types import FunctionType

from heliograph import sync
from heliograph._bus import Bus, Subscription, Topic, connect
from heliograph._common import Group, GroupMember, GroupPartition, Writer
from heliograph._component._call import AckError, AckTimeoutError, CommandCall
from heliograph._component._codes import Ack, AckCode, State
from heliograph._component._commands import CommandOptions, Stream, command
from heliograph._component._component import Component
from heliograph._component._data import Enums, TopicData
from heliograph._component._remote import (
    Remote,
    RemoteCommand,
    make_caller_key,
    set_summary_state,
)
from heliograph._component._topics import ReadTopic, SetWriteResult, WriteTopic
from heliograph._errors import (
    ClosedError,
    CodecError,
    CommandAborted,
    CommandError,
    CommandFailed,
    CommandTimeout,
    ConnectError,
    DecodeError,
    EncodeError,
    ExpectedError,
    Fenced,
    HelioError,
    IncompatibleSchema,
    InternalError,
    LeaseError,
    NameRefused,
    NobodyThere,
    NotLive,
    NotPermitted,
    OverloadError,
    PublishError,
    QosRefused,
    SchemaError,
    StorageError,
    SubscribeError,
    TopicGone,
    UnknownTopic,
    WaitTimeout,
)
from heliograph._events import (
    Assigned,
    DeadlineMissed,
    Event,
    Gap,
    Incompatible,
    LivelinessChanged,
    Outage,
    Restored,
    Undecodable,
    WriterFenced,
)
from heliograph._heliograph import NULL, Null, Receipt, Sample, Schema, Stats, Time, __version__
from heliograph._lagging import Lagging, conflate, drop_oldest, lossless, shed_by_level
from heliograph._qos import (
    COMMAND,
    EVENT,
    LOG,
    STATE,
    STREAM,
    TELEMETRY,
    Durability,
    Guarantee,
    History,
    KeepLast,
    Overload,
    Ownership,
    Qos,
    Reliability,
    Retention,
)
from heliograph._record import field, record
from heliograph._sal import FieldInfo, Interfaces, InterfaceTopic, load_interfaces
from heliograph._schema import load_schema, schema
from heliograph._start import Start, earliest, from_offset, last, latest, since
from heliograph._types import (
    Array,
    Boolean,
    Bytes,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    NdArray,
    String,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
)

__all__ = [
    "COMMAND",
    "EVENT",
    "LOG",
    "NULL",
    "STATE",
    "STREAM",
    "TELEMETRY",
    "Ack",
    "AckCode",
    "AckError",
    "AckTimeoutError",
    "Array",
    "Assigned",
    "Boolean",
    "Bus",
    "Bytes",
    "ClosedError",
    "CodecError",
    "CommandAborted",
    "CommandCall",
    "CommandError",
    "CommandFailed",
    "CommandOptions",
    "CommandTimeout",
    "Component",
    "ConnectError",
    "DeadlineMissed",
    "DecodeError",
    "Durability",
    "EncodeError",
    "Enums",
    "Event",
    "ExpectedError",
    "Fenced",
    "FieldInfo",
    "Float32",
    "Float64",
    "Gap",
    "Group",
    "GroupMember",
    "GroupPartition",
    "Guarantee",
    "HelioError",
    "History",
    "Incompatible",
    "IncompatibleSchema",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "InterfaceTopic",
    "Interfaces",
    "InternalError",
    "KeepLast",
    "Lagging",
    "LeaseError",
    "LivelinessChanged",
    "NameRefused",
    "NdArray",
    "NobodyThere",
    "NotLive",
    "NotPermitted",
    "Null",
    "Outage",
    "Overload",
    "OverloadError",
    "Ownership",
    "PublishError",
    "Qos",
    "QosRefused",
    "ReadTopic",
    "Receipt",
    "Reliability",
    "Remote",
    "RemoteCommand",
    "Restored",
    "Retention",
    "Sample",
    "Schema",
    "SchemaError",
    "SetWriteResult",
    "Start",
    "State",
    "Stats",
    "StorageError",
    "Stream",
    "String",
    "SubscribeError",
    "Subscription",
    "Time",
    "Topic",
    "TopicData",
    "TopicGone",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Undecodable",
    "UnknownTopic",
    "WaitTimeout",
    "WriteTopic",
    "Writer",
    "WriterFenced",
    "__version__",
    "command",
    "conflate",
    "connect",
    "drop_oldest",
    "earliest",
    "field",
    "from_offset",
    "last",
    "latest",
    "load_interfaces",
    "load_schema",
    "lossless",
    "make_caller_key",
    "record",
    "schema",
    "set_summary_state",
    "shed_by_level",
    "since",
    "sync",
]

# A class shows the name that users know it by, not that of the private module it is written in.
for _name in __all__:
    _item = globals()[_name]
    if isinstance(_item, (type, FunctionType)) and _item.__module__.startswith("heliograph._"):
        _item.__module__ = __name__
del _item, _name
