"""Connections of psycopg2 that wait only a limited time for an answer of PostgreSQL.

libpq has no such limit. A `statement_timeout` is enforced by the server, which may be what hangs. So a timer shuts down the socket of the
connection. libpq then ends its wait with an error, and the connection is never used again.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psycopg2 import OperationalError
from psycopg2.extensions import connection, cursor

from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits


def bounded_connection(limits: RequestLimits) -> Callable[..., connection]:
    """A `connection_factory` of psycopg2. A question may take `read_seconds`, and the end of a transaction `commit_seconds`.

    When the limit has passed, OperationalError is raised. A COMMIT that was sent may still be carried out if the server goes on later.
    """

    class BoundedCursor(cursor):
        def execute(self, *arguments: Any, **named: Any) -> None:
            with _answered_within(limits.read_seconds, self.connection):
                super().execute(*arguments, **named)

        def executemany(self, *arguments: Any, **named: Any) -> None:
            with _answered_within(limits.read_seconds, self.connection):
                super().executemany(*arguments, **named)

    class BoundedConnection(connection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.cursor_factory = BoundedCursor

        def commit(self) -> None:
            with _answered_within(limits.commit_seconds, self):
                super().commit()

        def rollback(self) -> None:
            with _answered_within(limits.read_seconds, self):
                super().rollback()

    return BoundedConnection


@contextmanager
def _answered_within(seconds: float, asked: connection) -> Iterator[None]:
    if asked.closed:
        yield
        return
    # The timer needs a file descriptor of its own: by then, the number of the connection's descriptor may belong to another file.
    try:
        wire = socket.socket(fileno=os.dup(asked.fileno()))
    except OSError as error:
        # No OSError may leave here. Around a COMMIT it would mean that a metadata file could not be written.
        raise OperationalError(f"no file descriptor is left to bound the wait for PostgreSQL: {error}") from error
    passed = threading.Event()

    def shut() -> None:
        passed.set()
        with suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except OperationalError as error:
        if not passed.is_set():
            raise
        raise OperationalError(f"PostgreSQL did not answer within {seconds:g} s") from error
    finally:
        timer.cancel()
        timer.join()
        with suppress(OSError):
            wire.close()
