"""Alerts of a survey telescope: packets in, and Arrow batches, dictionaries or bytes out.

::

    import heliograph as helio
    from heliograph import alerts

    async with helio.connect("journal:site") as bus:
        stream = alerts.open(bus, "alerts")
        columns = ["diaSource.diaSourceId", "diaSource.snr", "prvDiaSources[].psfFlux"]
        async with stream.subscribe(columns=columns, group="mine") as batches:
            async for batch in batches:
                frame = polars.DataFrame(batch)   # or pyarrow.record_batch(batch)
                await batches.commit()

``batches.packets()`` gives dictionaries, ``batches.raw()`` bytes. :class:`CcdProducer` publishes.
:class:`FilterSet` runs users' filters on packets in Arrow arrays, ``heliograph.alerts.spark`` in
Spark. ``heliograph.alerts.sync`` is the same API without ``await``. The page ``docs/alerts.md`` has
what a visit is.
"""

from __future__ import annotations

from types import FunctionType

from heliograph import _heliograph

if not hasattr(_heliograph, "RawAlertReader"):
    raise ImportError("this build of heliograph has no alerts: build it with the feature `alerts`")

from heliograph._heliograph import Alert, Batch, rubin_schema
from heliograph.alerts import sync
from heliograph.alerts._events import (
    Audit,
    DetectorAudit,
    Dropped,
    VisitDecided,
    VisitOpened,
    VisitRejected,
)
from heliograph.alerts._filters import FilterSet, WatchList, best
from heliograph.alerts._producer import CcdOutcome, CcdProducer, Manifest
from heliograph.alerts._subscription import Alerts, AlertSubscription, open  # noqa: A004

__all__ = [
    "Alert",
    "AlertSubscription",
    "Alerts",
    "Audit",
    "Batch",
    "CcdOutcome",
    "CcdProducer",
    "DetectorAudit",
    "Dropped",
    "FilterSet",
    "Manifest",
    "VisitDecided",
    "VisitOpened",
    "VisitRejected",
    "WatchList",
    "best",
    "open",
    "rubin_schema",
    "sync",
]

# A class shows the name that users know it by, not that of the private module it is written in.
for _name in __all__:
    _item = globals()[_name]
    if isinstance(_item, (type, FunctionType)) and _item.__module__.startswith("heliograph."):
        _item.__module__ = __name__
del _item, _name
