"""For how long the server waits for its clients and for its database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Patience:
    """What has not come after this time is given up."""

    handshake_seconds: float = 10.0
    """A TLS handshake must have ended so long after the connection was made."""
    header_seconds: float = 10.0
    """The headers of a request must have arrived so long after the connection was made, or after the request began.

    A client that sends them byte by byte gets no more time.
    """
    body_seconds: float = 30.0
    """A body must have arrived so long after its headers."""
    database: timedelta = timedelta(seconds=2)
    """A server is ready when a write transaction of the state database begins within this time."""
