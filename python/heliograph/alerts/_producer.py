"""Producers of detectors: what the asynchronous and the synchronous API share, and the former."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from heliograph._heliograph import RawCcdProducer, RawPackets, Schema, Time, rubin_schema
from heliograph._schema import schema as schema_of
from heliograph.alerts import _arrays
from heliograph.alerts._threads import OwnThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from heliograph import sync
    from heliograph._bus import Bus

_R = TypeVar("_R")

Packets = Mapping[str, Any] | Iterable[Any]
"""Columns of arrays, or packets; see :meth:`CcdProducer.publish`."""

LATEST = "11.1"
"""The newest version of Rubin's packets that is built in."""


class Manifest(NamedTuple):
    """What a producer announces of a detector's alerts."""

    producer: str
    """Its name."""
    alerts: str
    """Count and hash of the distinct alerts: ``count:32 hexadecimal digits``."""
    stamps: str | None
    """The same of the topic of stamps, if there is one."""
    published: Time
    """When the last of them was published."""


class CcdOutcome(NamedTuple):
    """What became of a detector's alerts."""

    manifest: Manifest
    """What was announced: all alerts, those that failed included."""
    failed: list[int]
    """Identifiers of alerts that the bus did not accept, or of which it does not say so."""
    is_announced: bool
    """Whether the manifest was published."""
    cause: str | None
    """The last cause of a failure."""
    spilled: Path | None
    """The file with all packets, if anything failed: see :meth:`CcdProducer.replay`."""
    spill_error: str | None
    """Why that file could not be written: the failed alerts are nowhere then."""

    @property
    def is_published(self) -> bool:
        """Whether all is published."""
        return not self.failed and self.is_announced


def schema_of_packets(schema: Any) -> Schema:
    """Return the schema of packets: a version of Rubin's, or any source of a schema."""
    if isinstance(schema, str) and schema[:1].isdigit():
        return rubin_schema(schema)
    return schema_of(schema)


class ProducerBase:
    """A producer of detectors' alerts: the operations that do not wait for the bus."""

    def __init__(
        self,
        bus: Bus | sync.Bus,
        topic: str = "alerts",
        *,
        schema: Any = LATEST,
        stamps: Literal["inline", "split", "packed"] = "inline",
        partitions: int = 16,
        keep_days: int = 7,
        keep_bytes: int | None = None,
        retry_for: float = 30.0,
        spill: str | PathLike[str] | None = None,
    ) -> None:
        self._schema = schema_of_packets(schema)
        folder = None if spill is None else Path(spill)
        keep = (keep_days, keep_bytes)
        self._open = partial(
            RawCcdProducer,
            bus._raw,
            topic,
            self._schema,
            stamps,
            partitions,
            keep,
            retry_for,
            folder,
        )
        self._topic = topic
        self._raw: RawCcdProducer | None = None
        self._lock = threading.Lock()
        self._thread = OwnThread()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topic}>"

    @property
    def schema(self) -> Schema:
        """The schema of the packets."""
        return self._schema

    def encode(self, packets: Packets) -> list[bytes]:
        """Return the datums of packets without publishing them; see :meth:`publish`.

        Raises :class:`heliograph.EncodeError`, which names the field or the column.
        """
        return self._encoded(packets).datums()

    def _encoded(self, packets: Any) -> RawPackets:
        if isinstance(packets, RawPackets):
            return packets
        if isinstance(packets, Mapping):
            return _arrays.encode(self._schema, packets)
        packets = list(packets)
        if all(isinstance(packet, (bytes, bytearray)) for packet in packets):
            return RawPackets.of_datums(packets)
        if any(isinstance(packet, (bytes, bytearray, memoryview)) for packet in packets):
            return RawPackets.of_datums([self._datum(packet) for packet in packets])
        return RawPackets.of_values(self._schema, packets)

    def _datum(self, packet: Any) -> bytes:
        if isinstance(packet, (bytes, bytearray, memoryview)):
            return bytes(packet)
        return self._schema.encode(packet)

    def _opened(self) -> RawCcdProducer:
        """Open the topics at the first use."""
        with self._lock:
            if self._raw is None:
                self._raw = self._open()
            return self._raw

    def _open_visit(
        self, visit: int, detectors: Iterable[int], shutter_close: Time, window: float
    ) -> None:
        window_ns = round(window * 1e9)
        self._opened().open_visit(visit, list(detectors), shutter_close.tai_ns, window_ns)

    def _publish(
        self, visit: int, detector: int, packets: Any, shutter_close: Time | None
    ) -> CcdOutcome:
        encoded = self._encoded(packets)
        closed_ns = None if shutter_close is None else shutter_close.tai_ns
        return _outcome(self._opened().publish(visit, detector, encoded, closed_ns))

    def _replay(self, file: str | PathLike[str]) -> CcdOutcome:
        return _outcome(self._opened().replay(Path(file)))


def _outcome(row: tuple[Any, ...]) -> CcdOutcome:
    (producer, alerts, stamps, published_ns), *rest = row
    return CcdOutcome(Manifest(producer, alerts, stamps, Time(published_ns)), *rest)


class CcdProducer(ProducerBase):
    """Publishes the alerts of detectors: a visit's packets to one partition, and their manifest.

    ::

        producer = alerts.CcdProducer(bus, "alerts", schema="11.1", spill="/var/spool/alerts")
        await producer.open_visit(7, detectors=range(189), shutter_close=helio.Time.now())
        outcome = await producer.publish(visit=7, detector=3, packets=packets)
        assert outcome.is_published, (outcome.failed, outcome.cause)

    The topics are opened, or created, at the first use. Calls of one producer are done one after
    the other, in a thread of its own; the event loop is never blocked. Cancelling the wait does not
    withdraw what is being published.

    :param bus: the bus, connected under the detector's own producer name.
    :param topic: the topic of alerts; ``topic/control`` and ``topic/stamps`` belong to it.
    :param schema: a version of Rubin's packets (``"11.1"``), or any source that
        :func:`heliograph.schema` accepts. It has a field ``diaSourceId`` or ``candid``.
    :param stamps: where stamps are: ``inline`` in the packets, ``split`` in a topic of their own,
        ``packed`` there and compressed without loss.
    :param partitions: of the topics, if they are created.
    :param keep_days: how long packets and stamps are stored, if the topics are created.
    :param keep_bytes: the most bytes of a partition; by default the engine's limit.
    :param retry_for: seconds for which a visit's alerts are tried to be published.
    :param spill: the folder of files with the packets of which some were not accepted.
    """

    async def _in_turn(self, work: Callable[[], _R]) -> _R:
        return await asyncio.wrap_future(self._thread.submit(work))

    async def open_visit(
        self,
        visit: int,
        *,
        detectors: Iterable[int],
        shutter_close: Time,
        window: float = 60.0,
    ) -> None:
        """Publish the opening record of a visit.

        ``detectors`` are those from which a manifest is expected; one without alerts publishes an
        empty list. ``window`` is the time in seconds after which readers may close the visit
        without the others.

        Raises :class:`heliograph.PublishError` if the bus does not accept it.
        """
        work = partial(self._open_visit, visit, detectors, shutter_close, window)
        await self._in_turn(work)

    async def publish(
        self,
        *,
        visit: int,
        detector: int,
        packets: Packets,
        shutter_close: Time | None = None,
    ) -> CcdOutcome:
        """Publish a detector's packets of a visit, and then their manifest.

        ``packets`` are one of

        - a list of ``bytes``: datums of the schema, without a frame;
        - a list of dictionaries, or of objects with the schema's fields;
        - a dictionary of columns, the fastest: numpy arrays by the path of their field, with a
          value for each alert (``diaSource.snr``). A single value stands for all. A list's own
          column has its offsets: alert ``i`` has the elements from ``offsets[i]`` to before
          ``offsets[i + 1]`` of the columns of its members (``prvDiaSources[].psfFlux``). Masked
          values are null, and so are fields without column; NaN stays NaN. The column of a record
          that may be null has booleans. A stamp's column has files, or images of the shape (alerts,
          rows, columns) that become FITS files; ``cutoutScience.variance`` adds their variances and
          ``cutoutScience.psf`` one PSF.

        ``shutter_close`` is carried by the alerts; by default that of :meth:`open_visit`. What the
        bus does not accept is tried again for ``retry_for`` seconds. The outcome names the
        alerts that failed all the same, and the file with all packets if ``spill`` was given.

        Raises :class:`heliograph.EncodeError` or :class:`heliograph.PublishError` if a packet is
        invalid, before anything is published.
        """
        work = partial(self._publish, visit, detector, packets, shutter_close)
        return await self._in_turn(work)

    async def replay(self, file: str | PathLike[str]) -> CcdOutcome:
        """Publish the packets of a spill file and remove it, once all is published.

        Alerts that were published before count once. Raises :class:`OSError` if the file cannot be
        read, :class:`heliograph.StorageError` if it is damaged.
        """
        return await self._in_turn(partial(self._replay, file))
