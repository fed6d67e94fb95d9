"""Filters on packets in Arrow arrays, and the best of their matches."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import heliograph as helio
from heliograph import alerts, testing
from heliograph.alerts import spark

NUMBER = 1101
HEAD = b"\0" + NUMBER.to_bytes(4, "big")
FILTERS = {
    "ada": {
        "bright": "SELECT * FROM alerts WHERE diaSource.snr > 5 ORDER BY diaSource.snr DESC",
        "red": "SELECT * FROM alerts WHERE diaSource.band IN ('i', 'z') "
        "ORDER BY diaSource.snr DESC",
    },
    "bob": {
        "known": "SELECT * FROM alerts WHERE count_if(prvDiaSources.snr > 1) >= 1 "
        "ORDER BY diaSource.psfFlux",
    },
}
SCHEMA = fastavro.parse_schema(json.loads(alerts.rubin_schema("11.1").text))


def packets(visit: int = 0, detectors: int = 2) -> list[bytes]:
    options: Any = {"alerts_per_visit": 200, "detectors": 2, "stamps": "none"}
    found = [testing.alert_packets(visit, one, **options)[1] for one in range(detectors)]
    return [HEAD + packet for of_ccd in found for packet in of_ccd]


def decoded(packet: bytes) -> dict[str, Any]:
    import io

    value = fastavro.schemaless_reader(io.BytesIO(packet[5:]), SCHEMA, None)
    assert isinstance(value, dict)
    return value


def matched(values: list[dict[str, Any]]) -> dict[tuple[str, str], set[int]]:
    """What the filters must match, in Python."""
    rules: dict[tuple[str, str], Any] = {
        ("ada", "bright"): lambda v: v["diaSource"]["snr"] > 5,
        ("ada", "red"): lambda v: v["diaSource"]["band"] in ("i", "z"),
        ("bob", "known"): lambda v: any(p["snr"] > 1 for p in v["prvDiaSources"] or []),
    }
    ids = {key: {v["diaSourceId"] for v in values if rule(v)} for key, rule in rules.items()}
    return {key: found for key, found in ids.items() if found}


def test_watch_lists_and_regions_can_be_named() -> None:
    given = packets()
    values = [decoded(packet) for packet in given]
    wanted = {v["diaSourceId"]: v["diaSource"] for v in values[::50]}
    positions = [(source["ra"], source["dec"]) for source in wanted.values()]
    sky = [(0, 12 << 58)]
    texts = {
        "listed": "SELECT * FROM alerts WHERE in_watchlist('mine')",
        "everywhere": "SELECT * FROM alerts WHERE in_moc('sky')",
        "nowhere": "SELECT * FROM alerts WHERE in_moc('none')",
    }
    lists: dict[str, Any] = {
        "watch_lists": {"mine": alerts.WatchList(positions, 0.001)},
        "regions": {"sky": sky, "none": []},
    }
    found, _ = alerts.FilterSet({"ada": texts}, **lists).run(pa.array(given, pa.binary()))
    matches: dict[str, set[int]] = {}
    for row in table(found):
        matches.setdefault(row["filter"], set()).add(row["alert"])
    assert matches == {"listed": set(wanted), "everywhere": {v["diaSourceId"] for v in values}}
    # It is sent to executors.
    run = spark.matcher({"ada": texts}, {}, pickle.loads(pickle.dumps(lists)))
    batch = pa.record_batch(
        {
            "value": pa.array(given, pa.binary()),
            "partition": pa.array([0] * len(given), pa.int32()),
            "offset": pa.array(range(len(given)), pa.int64()),
        }
    )
    rows = [row for part in run([batch]) for row in part.to_pylist() if row["filter"] == "listed"]
    assert {row["alert"] for row in rows} == set(wanted)
    with pytest.raises(ValueError, match="nobody"):
        alerts.FilterSet({"ada": {"of": "SELECT * FROM alerts WHERE in_watchlist('nobody')"}})
    with pytest.raises(ValueError, match="region wrong"):
        alerts.FilterSet({"ada": texts}, **{**lists, "regions": {"wrong": [(5, 3)]}})


def table(columns: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.record_batch(columns).to_pylist()
    return rows


def test_matches_are_those_of_python_and_damage_drops_only_itself() -> None:
    given = packets()
    values = [decoded(packet) for packet in given]
    column: list[bytes | None] = [*given]
    column[3:3] = [b"", b"\0\0\0\0\x01abc", None]
    column.append(given[5][:-200])
    column.append(given[6][:40])
    found, damaged = alerts.FilterSet(FILTERS).run(pa.array(column, pa.binary()))
    rows = table(found)
    by_filter: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        by_filter.setdefault((row["user"], row["filter"]), set()).add(row["alert"])
        packet = column[row["row"]]
        assert packet is not None
        value = decoded(packet) if packet in given else None
        assert value is None or value["diaSourceId"] == row["alert"]
        assert value is None or value["diaSource"]["visit"] == row["visit"]
    assert by_filter == matched(values)
    assert {3, 4, 5, len(column) - 1} <= {place for place, _ in damaged}
    reasons = dict(damaged)
    assert "no schema has the registry number 1" in reasons[4]
    assert reasons[5] == "no packet"


def test_the_best_of_any_parts_are_the_best_of_all() -> None:
    given = packets() + packets(visit=1)
    column = pa.array(given, pa.binary())
    whole = alerts.FilterSet(FILTERS)
    expected = table(alerts.best([whole.run(column)[0]]))
    values = [decoded(packet) for packet in given]
    for visit in {value["diaSource"]["visit"] for value in values}:
        of_visit = [value for value in values if value["diaSource"]["visit"] == visit]
        by_alert = {value["diaSourceId"]: value["diaSource"]["snr"] for value in of_visit}
        both = [matched(of_visit).get(("ada", name), set()) for name in ("bright", "red")]
        order = sorted(both[0] | both[1], key=lambda alert: (-by_alert[alert], alert))[:20]
        rows = [row for row in expected if (row["visit"], row["user"]) == (visit, "ada")]
        assert list(dict.fromkeys(row["alert"] for row in rows)) == order
        assert [row["row"] for row in rows] == [order.index(row["alert"]) for row in rows]
    dice = random.Random(7)
    for _ in range(5):
        shuffled = given + dice.sample(given, 40)
        dice.shuffle(shuffled)
        cut = dice.randrange(len(shuffled))
        halves = [pa.array(part, pa.large_binary()) for part in (shuffled[:cut], shuffled[cut:])]
        parts = [alerts.best([alerts.FilterSet(FILTERS).run(half)[0]]) for half in halves]
        assert table(alerts.best(parts)) == expected
        assert table(alerts.best([*parts, parts[0]])) == expected


def test_filters_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"filter wrong of ada: .*nothing"):
        alerts.FilterSet({"ada": {"wrong": "SELECT * FROM alerts WHERE nothing > 1"}})
    first_come = {"any": "SELECT * FROM alerts WHERE diaSource.snr > 5"}
    with pytest.raises(ValueError, match=r"user ada: .*share one ORDER BY"):
        alerts.FilterSet({"ada": first_come | FILTERS["ada"]})
    found, _ = alerts.FilterSet({"ada": first_come}).run(pa.array(packets(), pa.binary()))
    with pytest.raises(ValueError, match="user ada: its filters have no ORDER BY"):
        alerts.best([found])
    with pytest.raises(TypeError, match="packets are a column of bytes, not of Int64"):
        alerts.FilterSet(FILTERS).run(pa.array([1, 2]))
    with pytest.raises(TypeError, match="matches are a record batch"):
        alerts.best([pa.array([1, 2])])
    with pytest.raises(TypeError, match="a column of 64-bit integers visit"):
        alerts.best([pa.record_batch({"user": pa.array(["ada"])})])


def test_packets_of_other_schemas() -> None:
    point = {"type": "record", "name": "candidate", "fields": [{"name": "jd", "type": "double"}]}
    fields = [{"name": "candid", "type": "long"}, {"name": "candidate", "type": point}]
    schema = helio.Schema(json.dumps({"type": "record", "name": "alert", "fields": fields}))
    text = "SELECT * FROM alerts WHERE candidate.jd > 2 ORDER BY candidate.jd"
    filters = alerts.FilterSet({"ada": {"late": text}}, schemas={7: schema})
    given = [b"\0\0\0\0\x07" + schema.encode({"candid": n, "candidate": {"jd": n}}) for n in (1, 5)]
    found, damaged = filters.run(pa.array(given))
    assert ([(row["row"], row["alert"], row["visit"]) for row in table(found)], damaged) == (
        [(1, 5, 0)],
        [],
    )


def test_what_spark_runs_is_pickled_and_gives_every_packet_its_place() -> None:
    given = packets()
    run = spark.matcher(FILTERS, {})
    assert pickle.loads(pickle.dumps(spark._choose)) is spark._choose
    column = pa.array([*given, b"damaged"], pa.binary())
    places = pa.array(range(len(column)), pa.int64())
    partition = pa.array([3] * len(column), pa.int32())
    batch = pa.record_batch({"value": column, "partition": partition, "offset": places})
    batches = list(run([batch.slice(0, 150), batch.slice(150)]))
    rows = [row for one in batches for row in one.to_pylist()]
    names = [field.split()[0] for field in spark.MATCHES.split(", ")]
    assert all(one.schema.names == names for one in batches)
    errors = [row for row in rows if row["error"] is not None]
    assert [(row["offset"], row["alert"]) for row in errors] == [(len(given), None)]
    whole, _ = alerts.FilterSet(FILTERS).run(column)
    key = ("user", "filter", "alert", "rank")
    ours = sorted(tuple(row[name] for name in key) for row in rows if row["error"] is None)
    assert ours == sorted(tuple(row[name] for name in key) for row in table(whole))
    keys = ["visit", "user", "alert", "rank", "filter"]
    matches = [one.select(keys) for one in batches if one.column("error").null_count]
    (chosen,) = spark._choose(matches)
    expected = pa.record_batch(alerts.best([whole]))
    assert chosen.select(keys).to_pylist() == expected.select(keys).to_pylist()
