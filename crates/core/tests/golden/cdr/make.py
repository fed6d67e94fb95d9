"""Makes the golden CDR of `every.avsc`: what Eclipse Cyclone DDS's Python package writes.

Prints JSON. Arguments: the schema, the folder of what idlc made of the IDL that `helio schema idl`
prints of it, with `--foreign` or without.
"""

import importlib
import io
import json
import sys
from pathlib import Path

import fastavro
from cyclonedds.idl._support import Endianness

schema = fastavro.parse_schema(json.loads(Path(sys.argv[1]).read_text()))


def inner(x, small, note):
    """A value of the record Inner."""
    return {"x": x, "small": small, "note": note}


VALUE = dict(  # noqa: C408, field names without quotes
    salIndex=7,
    flag=True,
    byte=200,
    short=-12345,
    ushort=54321,
    int=-2000000000,
    uint=4000000000,
    longlong=-(2**62),
    float=1.5,
    double=-2.25,
    string="Größe 🔭",
    name="twelve bytes",
    bytes=b"\x00\x01\xff",
    digest=b"abcde",
    colour="BLUE",
    flags=[True, False, True],
    octets=[0, 1, 255],
    shorts=[-1, 2, -32768],
    ints=[2147483647, -5],
    longs=[1, -(2**63)],
    floats=[0.5, -1.5, 2.5],
    doubles=[1e300, -1e-300],
    texts=["", "two"],
    colours=["GREEN", "RED"],
    many=[1.0, 2.0, 3.0],
    few=[],
    words=["a", "", "ccc"],
    odd=[True, False],
    inner=inner(0.1, 9, "note"),
    inners=[inner(1.0, 1, None), inner(2.0, 2, "b")],
    list=[inner(3.0, 3, None), inner(4.0, 4, "four"), inner(5.0, 5, "")],
    nothing=None,
    something=6.5,
    swapped=-9,
    inside=inner(7.0, 7, None),
    three=[1.0, 2.0, 3.0],
    blob=b"xyz",
    native=11,
    last=True,
)
out = io.BytesIO()
fastavro.schemaless_writer(out, schema, VALUE)
result = {"avro": out.getvalue().hex(), "cdr": {}}


def value(types, given):
    """A field's value as the package has it."""
    if isinstance(given, dict):
        return types.Inner(**given)
    if isinstance(given, bytes):
        return list(given)
    if isinstance(given, list):
        return [value(types, one) for one in given]
    return types.Colour[given] if given in ("RED", "GREEN", "BLUE") else given


sys.path.insert(0, sys.argv[2])
types = importlib.import_module("obs.sky")
fields = {name: value(types, given) for name, given in VALUE.items()}
if "helio" in types.Every.__annotations__:
    helio = importlib.import_module("helio")
    fields["helio"] = helio.Header(
        3,
        17,
        15,
        1_800_000_000_000_000_001,
        2**63 + 5,
        2,
        6,
        1,
        "mount1",
        list(range(16)),
        [14],
        [1, 97, 1, 0, 98],
    )
sample = types.Every(**fields)
for version in (1, 2):
    for order in (Endianness.Little, Endianness.Big):
        cdr = sample.serialize(use_version_2=version == 2, endianness=order)
        result["cdr"][f"XCDR{version} {order.name.lower()}"] = cdr.hex()
json.dump(result, sys.stdout, indent=1)
print()
