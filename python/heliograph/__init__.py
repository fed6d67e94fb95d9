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

``heliograph.sync`` has the same words without ``await``; ``heliograph.testing`` a bus in memory and
fixtures. All errors are :class:`HelioError`; the tree is drawn in ``heliograph._errors``.
"""

from types import FunctionType

from heliograph._errors import (
    ClosedError,
    CodecError,
    ConnectError,
    DecodeError,
    EncodeError,
    Fenced,
    HelioError,
    IncompatibleSchema,
    NameRefused,
    OverloadError,
    PublishError,
    QosRefused,
    SchemaError,
    StorageError,
    SubscribeError,
    WaitTimeout,
)
from heliograph._heliograph import Schema, Time, __version__
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
from heliograph._schema import schema
from heliograph._start import Start, committed, earliest, from_offset, last, latest, since
from heliograph._types import Array, Boolean, Bytes, Float32, Float64, Int32, Int64, String

__all__ = [
    "COMMAND",
    "EVENT",
    "LOG",
    "STATE",
    "STREAM",
    "TELEMETRY",
    "Array",
    "Boolean",
    "Bytes",
    "ClosedError",
    "CodecError",
    "ConnectError",
    "DecodeError",
    "Durability",
    "EncodeError",
    "Fenced",
    "Float32",
    "Float64",
    "Guarantee",
    "HelioError",
    "History",
    "IncompatibleSchema",
    "Int32",
    "Int64",
    "KeepLast",
    "NameRefused",
    "Overload",
    "OverloadError",
    "Ownership",
    "PublishError",
    "Qos",
    "QosRefused",
    "Reliability",
    "Retention",
    "Schema",
    "SchemaError",
    "Start",
    "StorageError",
    "String",
    "SubscribeError",
    "Time",
    "WaitTimeout",
    "__version__",
    "committed",
    "earliest",
    "field",
    "from_offset",
    "last",
    "latest",
    "record",
    "schema",
    "since",
]

# A class shows the name that users know it by, not that of the private module it is written in.
for _name in __all__:
    _item = globals()[_name]
    if isinstance(_item, (type, FunctionType)) and _item.__module__.startswith("heliograph._"):
        _item.__module__ = __name__
del _item, _name
