"""What the engines' programs share: artifacts, processes, their folders, the command line."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - whoever has an older one is told so
    version = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"Python 3.11 or newer is needed for engines (Debian: python3); here is {version}")
