"""SAL's numbers of states and acknowledgements."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class State(enum.IntEnum):
    """The summary state of a component; the numbers are SAL's."""

    DISABLED = 1
    ENABLED = 2
    FAULT = 3
    OFFLINE = 4
    STANDBY = 5


class AckCode(enum.IntEnum):
    """The code of an acknowledgement; the numbers are SAL's.

    ACK, IN_PROGRESS and STALLED are followed by others; all other codes are final. This is the only
    definition of it: SAL's own languages disagree about NO_ACK and STALLED.
    """

    ACK = 300
    IN_PROGRESS = 301
    STALLED = 302
    COMPLETE = 303
    NO_PERM = -300
    NO_ACK = -301
    FAILED = -302
    ABORTED = -303
    TIMEOUT = -304

    @property
    def final(self) -> bool:
        """Whether no other acknowledgement of the command follows."""
        return self not in (AckCode.ACK, AckCode.IN_PROGRESS, AckCode.STALLED)


@dataclass(frozen=True)
class Ack:
    """An acknowledgement of a command.

    ``error`` is a code of the component, ``result`` a text. ``timeout`` is the remaining time of
    the command in seconds (0: unknown), ``progress`` the completed fraction (0 to 1, None:
    unknown). ``value`` is a typed result, as JSON represents it.
    """

    ack: AckCode
    error: int = 0
    result: str = ""
    timeout: float = 0.0
    progress: float | None = None
    value: Any = None
