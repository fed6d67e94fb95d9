"""Numbers that SAL gives to states and acknowledgements."""

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
    """What an acknowledgement says of a command; the numbers are SAL's.

    ACK, IN_PROGRESS and STALLED say that more will follow, all others are final: this is the one
    definition of it (SAL's own languages disagree about NO_ACK and STALLED).
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

    ``error`` is a code of the component's own, ``result`` a text, ``timeout`` how many more seconds
    the command takes (0: not said), ``progress`` how much of it is done (0 to 1, None: not said),
    ``value`` a result that is more than a text, as JSON has it.
    """

    ack: AckCode
    error: int = 0
    result: str = ""
    timeout: float = 0.0
    progress: float | None = None
    value: Any = None
