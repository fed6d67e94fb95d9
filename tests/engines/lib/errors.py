"""The ways in which a command ends without having done what was asked."""

import os
import sys
from pathlib import Path

# What whoever starts this program is called, where people call that.
CALLER = os.environ.get("HELIO_ENGINE_PROGRAM", "")


class FailureError(Exception):
    """The command failed; the message names the cause and the remedy."""


class SkippedError(Exception):
    """The machine lacks what the engine needs, so that tests of it are skipped, not failed."""


class RefusedError(FailureError):
    """What the command would do is done already, or is being done."""


class PortTakenError(FailureError):
    """Another program took a port between its choice and its use."""


def advice(command: str, folder: Path) -> str:
    """A command for that folder, as the one who reads the message types it."""
    return f"`{CALLER or sys.argv[0]} {command} --dir {folder}`"
