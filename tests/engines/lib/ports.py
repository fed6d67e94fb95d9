"""Free TCP ports of the loopback address."""

import random
import socket
from contextlib import ExitStack

HOST = "127.0.0.1"

# Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections: while
# a broker is down, a client that tries it again and again could be given the broker's own port, and
# the broker could not come back.
CHOICE = range(20_000, 32_768)
TRIES = 1000


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    with ExitStack() as held:
        chosen: list[int] = []
        for port in random.sample(CHOICE, TRIES):
            if len(chosen) == count:
                break
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            chosen.append(port)
        return chosen
