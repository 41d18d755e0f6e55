"""Connections of psycopg2 that wait for an answer of PostgreSQL for a limited time.

libpq has no such limit, and a `statement_timeout` is kept by the server, which may be what hangs. So a timer shuts the connection's
socket: libpq then ends its wait with an error, and the connection is never used again.
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
    """A `connection_factory` of psycopg2. What is asked has `read_seconds`, the end of a transaction `commit_seconds`.

    A limit that passes is an OperationalError. A COMMIT that was sent may still be carried out by a server that goes on later.
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
    # A descriptor of its own: that of the connection may be another file's by the time that the limit passes.
    try:
        wire = socket.socket(fileno=os.dup(asked.fileno()))
    except OSError as error:
        # No OSError leaves here: one around a COMMIT would be taken for a metadata file that could not be written.
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
