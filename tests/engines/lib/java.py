"""The Java that runs the engines."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from lib.errors import SkippedError

# Where Debian and others put one beside the other.
PLACES = Path("/usr/lib/jvm")


def find_java(oldest: int) -> str:
    """The first `java` that is new enough: that of JAVA_HOME, or else one of those here."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates = [str(Path(home) / "bin" / "java")]
    else:
        candidates = ["java", *(str(java) for java in sorted(PLACES.glob("*/bin/java")))]
    found = [java for java in map(shutil.which, candidates) if java]
    versions: list[str] = []
    for java in found:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        # "1.8.0_402" is Java 8.
        version = re.search(r'version "((?:1\.)?(\d+).*)"', said.stderr)
        if version and int(version[2]) >= oldest:
            return java
        versions.append(f"{java} is {version[1] if version else 'broken'}")
    here = "; ".join(versions) or f"there is none at {', '.join(candidates)}"
    remedy = f"Debian: openjdk-{oldest}-jre-headless, or set JAVA_HOME"
    raise SkippedError(f"Java {oldest} or newer is needed ({remedy}); {here}")
