"""The ways in which a command ends without having done what was asked."""


class FailureError(Exception):
    """The command failed; the message names the cause and the remedy."""


class SkippedError(Exception):
    """The machine lacks what the engine needs, so that tests of it are skipped, not failed."""


class PortTakenError(FailureError):
    """Another program took a port between its choice and its use."""
