"""Users' filters over packets in Arrow arrays, for engines that distribute batches themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from heliograph._heliograph import RawFilterSet, best_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from heliograph._heliograph import RawColumns, Schema


class ArrowArray(Protocol):
    """What has Arrow's capsule interface: arrays and batches of pyarrow, polars, nanoarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[Any, Any]:
        """Export the array and its schema."""


class WatchList(NamedTuple):
    """Positions that a filter names by ``in_watchlist('name')``."""

    positions: Sequence[tuple[float, float]]
    """Right ascension and declination, degrees."""
    radius_arcsec: float
    """How near a source must be to one of them."""


class FilterSet:
    """Filters in SQL of many users, checked and planned once, and run on columns of packets.

    ``filters`` has the texts by user and name. ``schemas`` has the schemas of packets by their
    numbers in Confluent's frame; without it they are Rubin's. Packets may also be single objects or
    container files.

    ::

        filters = alerts.FilterSet({"ada": {"bright": "SELECT * FROM alerts WHERE "
                                            "diaSource.snr > 50 ORDER BY diaSource.snr DESC"}})
        matches, damaged = filters.run(packets)         # an array of bytes
        chosen = alerts.best([matches, other_matches])  # at most 20 a user and visit

    What a packet matches depends on nothing but the packet and the filters: matches are the same
    for any split into batches and processes. A set is used by one thread at a time; it is made in
    the process that runs it. ``watch_lists`` and ``regions`` have what filters name beside columns;
    a region is a list of ranges of HEALPix's nested cells of order 29, as MOCs have them, each
    without its end, ascending and apart.

    Raises ValueError, which names the filter, for a text that is not in the language, and where
    filters of one user have different ORDER BYs, and which names the list, for positions and ranges
    that are none; SchemaError if the schemas have no common columns.
    """

    def __init__(
        self,
        filters: Mapping[str, Mapping[str, str]],
        *,
        schemas: Mapping[int, Schema] | None = None,
        watch_lists: Mapping[str, WatchList] | None = None,
        regions: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    ) -> None:
        texts = [(user, name, text) for user, own in filters.items() for name, text in own.items()]
        lists = [
            (name, list(one.positions), one.radius_arcsec)
            for name, one in (watch_lists or {}).items()
        ]
        ranges = [(name, list(one)) for name, one in (regions or {}).items()]
        self._raw = RawFilterSet(list((schemas or {}).items()), texts, lists, ranges)

    def run(self, packets: ArrowArray) -> tuple[RawColumns, list[tuple[int, str]]]:
        """Return the matches of packets, and the packets that cannot be read.

        The matches are a record batch by Arrow's capsule interface, with a row for each alert and
        filter:

        ========== ======= ==========================================================
        column     type
        ========== ======= ==========================================================
        ``row``    uint32  the packet's place in the array
        ``visit``  int64   the visit; 0 where the schema does not name it as Rubin's
        ``user``   string
        ``alert``  int64   the alert's identifier
        ``rank``   string  the alert's place by ORDER BY, for :func:`best`
        ``filter`` string  the filter's name
        ========== ======= ==========================================================

        A packet that cannot be read drops only itself: its place and the reason are in the list.
        Raises TypeError if the array is none of bytes.
        """
        return self._raw.run(packets)


def best(matches: Iterable[ArrowArray]) -> RawColumns:
    """Return the best 20 distinct alerts of each user and visit; ties go to the lower identifier.

    The columns are those of :meth:`FilterSet.run`; ``row`` is the place of an alert among the
    user's, from 0, and an alert of several filters has a row for each. Choices may be given as
    matches again: the best of parts' best are the best of all, whatever the parts.

    Raises ValueError for matches of filters without ORDER BY: which alerts come first is decided by
    the filter service alone.
    """
    return best_matches(list(matches))
