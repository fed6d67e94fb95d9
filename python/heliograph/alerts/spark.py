"""Users' filters in Spark: the engine of the filter service in ``mapInArrow``.

::

    packets = (spark.readStream.format("kafka")
               .option("kafka.bootstrap.servers", "broker:9092").option("subscribe", "alerts")
               .load())
    matches = alerts_spark.match(packets, filters)

    def choose(batch, _):
        chosen = alerts_spark.best(batch)
        ...

    matches.writeStream.foreachBatch(choose).start()

Constraints. Spark's SQL is not used to filter: it differs in NaN, division and casts. Importing
this module needs no Spark; its functions need pyspark and pyarrow. Executors need this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heliograph.alerts._filters import FilterSet, WatchList
from heliograph.alerts._filters import best as _best

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph._heliograph import Schema

__all__ = ["CHOSEN", "MATCHES", "best", "match"]

MATCHES = (
    "partition int, offset bigint, visit bigint, user string, alert bigint, rank string, "
    "filter string, error string"
)
"""The columns of :func:`match`. A packet that cannot be read has a row with ``error``, and
without what could not be read."""

CHOSEN = "place int, visit bigint, user string, alert bigint, rank string, filter string"
"""The columns of :func:`best`."""

_KEYS = ("visit", "user", "alert", "rank", "filter")


def match(
    packets: Any,
    filters: Mapping[str, Mapping[str, str]],
    *,
    schemas: Mapping[int, Schema] | None = None,
    watch_lists: Mapping[str, WatchList] | None = None,
    regions: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> Any:
    """Return the matches of a DataFrame of packets, as a DataFrame of :data:`MATCHES`.

    ``packets`` has the columns ``value``, ``partition`` and ``offset``, as Spark's source for Kafka
    gives them; the others are those of :class:`heliograph.alerts.FilterSet`. A packet that cannot
    be read drops only itself: count ``error IS NOT NULL``.

    Set ``spark.sql.execution.arrow.maxRecordsPerBatch`` to some hundred: packets with stamps have
    140 kB. Raises as ``FilterSet``, before anything is run.
    """
    texts = {user: dict(own) for user, own in filters.items()}
    numbered = {number: schema.text for number, schema in (schemas or {}).items()}
    lists: dict[str, Any] = {"watch_lists": watch_lists, "regions": regions}
    FilterSet(texts, schemas=schemas, **lists)
    columns = packets.select("value", "partition", "offset")
    return columns.mapInArrow(matcher(texts, numbered, lists), MATCHES)


def best(matches: Any) -> Any:
    """Return the best 20 alerts of each user and visit, as a DataFrame of :data:`CHOSEN`.

    Each partition sends its own best ones only; these are merged in one. It needs all matches of a
    visit: give it a batch of whole visits, or what was stored of them. Users without ORDER BY are
    refused, see :func:`heliograph.alerts.best`.
    """
    keys = matches.where("error IS NULL").selectExpr("0 AS place", *_KEYS)
    return keys.mapInArrow(_choose, CHOSEN).repartition(1).mapInArrow(_choose, CHOSEN)


def matcher(
    filters: Mapping[str, Mapping[str, str]],
    schemas: Mapping[int, str],
    lists: Mapping[str, Any] | None = None,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what ``mapInArrow`` runs: it can be pickled, and plans the filters where it runs."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from heliograph import Schema

        pa = _pyarrow()
        known = {number: Schema(text) for number, text in schemas.items()}
        planned = FilterSet(filters, schemas=known or None, **(lists or {}))
        for batch in batches:
            found, damaged = planned.run(batch.column("value"))
            found = pa.record_batch(found)
            places = {name: batch.column(name) for name in ("partition", "offset")}
            yield _with_places(pa, places, found.column("row"), found, None)
            rows = pa.array([row for row, _ in damaged], pa.uint32())
            yield _with_places(pa, places, rows, None, [reason for _, reason in damaged])

    return run


def _pyarrow() -> Any:
    # It has no types; Spark needs it, too.
    return import_module("pyarrow")


def _with_places(
    pa: Any, places: Mapping[str, Any], rows: Any, found: Any, errors: list[str] | None
) -> Any:
    """Return rows of :data:`MATCHES`: of matches, or of packets that cannot be read."""
    types = {"visit": pa.int64(), "alert": pa.int64()}
    columns = {name: column.take(rows) for name, column in places.items()}
    for name in _KEYS:
        nulls = pa.nulls(len(rows), types.get(name, pa.string()))
        columns[name] = nulls if found is None else found.column(name)
    columns["error"] = pa.array([None] * len(rows) if errors is None else errors, pa.string())
    return pa.record_batch(columns)


def _choose(batches: Iterable[Any]) -> Iterator[Any]:
    """Choose among one partition's matches; memory is bounded by the choice, not by them."""
    pa = _pyarrow()
    chosen = None
    for batch in batches:
        given = [batch] if chosen is None else [chosen, batch]
        chosen = pa.record_batch(_best(given))
    if chosen is not None:
        place = chosen.column("row").cast(pa.int32())
        columns = {"place": place} | {name: chosen.column(name) for name in _KEYS}
        yield pa.record_batch(columns)
