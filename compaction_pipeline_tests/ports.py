"""Ports for the servers that tests start."""

from __future__ import annotations

import os
import random
import socket

_FIRST, _PER_WORKER = 20_000, 1_000


def free_port() -> int:
    """A port that is free now, and that nothing else of this run is given before it is used.

    Each worker of pytest has a range of its own. The ranges lie below the ports that systems give to outgoing connections (Linux: from
    32,768 on, macOS: from 49,152 on), because such a connection may take a port between this call and the start of the server.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 12
    ports = range(_FIRST + worker * _PER_WORKER, _FIRST + (worker + 1) * _PER_WORKER)
    # The choice is random, because tests of other checkouts may run on the same machine.
    for port in random.sample(ports, len(ports)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"all ports from {ports.start} to {ports.stop - 1} are in use")
