"""Makes the golden schema of `speed.avsc`, and prints its revision code.

The private fields are those of a schema that the Rubin Observatory's own code made (the shared
data's `sal-golden/v27.1.1/schemas.jsonl.gz`, the first argument, of a component without an index).
Their place, behind the file's own fields, was seen on salobj 8.2.12 with ts_xml 28.0.1.
"""

import gzip
import hashlib
import json
import sys
from pathlib import Path

here = Path(__file__).parent
with gzip.open(sys.argv[1], "rt", encoding="utf-8") as lines:
    single = next(line for line in map(json.loads, lines) if not line["indexed"])
private = [f for f in single["schema"]["fields"] if f["name"].startswith("private_")]
record = json.loads((here / "speed.avsc").read_text())
record["fields"] += private
text = json.dumps(record, indent=4)
(here / "speed.json").write_text(text)
print(hashlib.md5(text.encode()).hexdigest()[:8])
