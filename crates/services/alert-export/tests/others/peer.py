"""An export as others read it: pyarrow the Parquet files, fastavro the Avro files.

`peer.py PARQUET AVRO` takes the folders of two exports of the same alerts, checks that their values
are equal, and prints what they hold as JSON.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset as ds
from astropy.table import Table

STAMPS = ("cutoutDifference", "cutoutScience", "cutoutTemplate")


def packets(folder: Path) -> dict[int, dict[str, Any]]:
    """The packets of all Avro files, by the alert's identifier."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.avro")):
        with path.open("rb") as file:
            for packet in fastavro.reader(file):
                assert isinstance(packet, dict)
                found[packet["diaSourceId"]] = packet
    return found


def flat(packet: dict[str, Any]) -> dict[str, Any]:
    """A packet as columns: fields of records are named by their path."""
    columns: dict[str, Any] = {}
    for name, value in packet.items():
        if isinstance(value, dict):
            columns.update({f"{name}.{field}": part for field, part in value.items()})
        else:
            columns[name] = value
    return columns


def equal(one: Any, other: Any) -> bool:
    """Whether values are equal, NaN included."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        # A schema that lacks a field has null in the column.
        return all(equal(one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def main() -> None:
    """Compares two exports."""
    parquet, avro = (Path(name) for name in sys.argv[1:])
    expected = packets(avro)
    table = ds.dataset(sorted(str(path) for path in parquet.glob("*.parquet"))).to_table()
    points = 0
    for row in table.to_pylist():
        packet = flat(expected.pop(row["diaSourceId"]))
        for column, value in row.items():
            assert equal(value, packet.get(column)), (column, value, packet.get(column))
        left = {name for name, value in packet.items() if name not in row and value is not None}
        assert left <= set(STAMPS), left
        points += len(row["prvDiaSources"] or [])
    assert not expected, "alerts are missing"
    first = min(parquet.glob("*.parquet"))
    astropy = Table.read(first, format="parquet", include_names=["diaSourceId", "diaSource.ra"])
    field = table.schema.field("diaSource.psfFlux")
    history = table.schema.field("prvDiaSources").type.value_type
    print(
        json.dumps(
            {
                "rows": table.num_rows,
                "points": points,
                "astropy": len(astropy),
                "right_ascensions": [float(value) for value in astropy["diaSource.ra"][:3]],
                "flux": str(field.type),
                "units": (field.metadata or {}).get(b"units", b"").decode(),
                "history": str(history.field("snr").type),
            }
        )
    )


if __name__ == "__main__":
    main()
