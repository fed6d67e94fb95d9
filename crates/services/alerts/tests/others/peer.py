"""A packet as others read it: fastavro the datum, astropy the stamps.

`peer.py SCHEMA DATUM` takes files of the schema's text and of a datum, and prints what they hold as
JSON.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
from astropy.io import fits

STAMPS = ("cutoutDifference", "cutoutScience", "cutoutTemplate")


def hdu(found: Any) -> dict[str, Any]:
    """What an HDU holds: its shape, its type, its sum, and its cards' values."""
    data = found.data
    return {
        "shape": list(data.shape),
        "type": data.dtype.str,
        "sum": float(np.sum(data, dtype=np.float64)),
        "corner": float(data[0, 1]),
        "cards": {card.keyword: card.value for card in found.header.cards},
    }


def stamp(file: bytes) -> list[dict[str, Any]]:
    """The HDUs of a file that keeps to the standard."""
    with fits.open(io.BytesIO(file)) as found:
        found.verify("exception")
        return [hdu(one) for one in found]


def main() -> None:
    """Reads a packet."""
    schema, datum = (Path(name) for name in sys.argv[1:])
    parsed = fastavro.parse_schema(json.loads(schema.read_text()))
    packet = io.BytesIO(datum.read_bytes())
    alert: Any = fastavro.schemaless_reader(packet, parsed, None)
    assert not packet.read(), "bytes are left"
    print(
        json.dumps(
            {
                "id": alert["diaSourceId"],
                "flux": alert["diaSource"]["psfFlux"],
                "ra": alert["diaSource"]["ra"],
                "previous": [one["diaSourceId"] for one in alert["prvDiaSources"] or []],
                "forced": len(alert["prvDiaForcedSources"]),
                "detections": alert["diaObject"]["nDiaSources"],
                "stamps": {name: stamp(alert[name]) for name in STAMPS},
            }
        )
    )


if __name__ == "__main__":
    main()
