"""The server on a real port, and clients that send it bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compaction_pipeline.api.app import http_app
from compaction_pipeline.api.connections import Connections
from compaction_pipeline.api.patience import Patience
from compaction_pipeline.api.serve import Listening, server_config
from compaction_pipeline.api.slow_refusals import Refusals
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.servers import running

PATIENCE_SECONDS = 60


READY = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def listening(
    served: Served,
    cert: Path | None = None,
    key: Path | None = None,
    *,
    refusals: Refusals | None = None,
    connections: Connections | None = None,
    patience: Patience = Patience(),
) -> Iterator[int]:
    """The server as `serve` sets it up, on a loopback port, with TLS when it gets a certificate. Yields the port."""
    app = http_app(served.house.services, patience=patience)
    with running(server_config(app, Listening("127.0.0.1", 0, cert, key), refusals, connections, patience)) as port:
        yield port


def connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    connection.sendall(sent)
    return connection


def answer_on(connection: socket.socket) -> bytes:
    """The beginning of the next answer; empty when the server has ended the connection."""
    try:
        return connection.recv(4_096)
    except ConnectionResetError:
        return b""


def rest_on(connection: socket.socket) -> bytes:
    """What is left of an answer whose beginning was read, until the server ends the connection. Raises TimeoutError when it does not."""
    return b"".join(iter(lambda: answer_on(connection), b""))
