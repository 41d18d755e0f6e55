"""HTTP servers in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


@contextmanager
def running(config: uvicorn.Config, port: int = 0) -> Iterator[int]:
    """A server on a loopback port, until the block ends. Yields the port."""
    listener = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
