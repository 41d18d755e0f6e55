"""PyIceberg's REST catalog with three rules of ours.

No request waits for ever; the request of a commit is sent once, and how it was answered is known; and metadata comes with every
snapshot. PyIceberg's own sends a commit again after 401 and 419, waits for ever, and leaves snapshots out where a property says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from tenacity import stop_after_attempt


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How long a catalog may take to accept a connection, and to go on with an answer, in seconds."""

    connect_seconds: float = 10
    read_seconds: float = 60

    @property
    def pair(self) -> tuple[float, float]:
        """As `requests` takes them."""
        return (self.connect_seconds, self.read_seconds)


@dataclass
class Sends:
    """How each sending of a request was answered: its HTTP status, None while, or where, no whole answer came."""

    statuses: list[int | None] = field(default_factory=list)


_SENDS: ContextVar[Sends | None] = ContextVar("sends", default=None)


@contextmanager
def counted_sends() -> Iterator[Sends]:
    """Note every request that a REST catalog sends in this block and thread."""
    sends = Sends()
    token = _SENDS.set(sends)
    try:
        yield sends
    finally:
        _SENDS.reset(token)


class BoundedRestCatalog(RestCatalog):
    """A REST catalog that follows the module's rules; raises what PyIceberg's raises."""

    def __init__(self, name: str, limits: RequestLimits, **properties: str) -> None:
        self._limits = limits
        super().__init__(name, **properties)
        # With the referenced ones only, a commit of ours that is history by now would look as if it had never been made.
        self.properties[SNAPSHOT_LOADING_MODE] = "all"

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        once = cast("Any", RestCatalog.commit_table).retry_with(stop=stop_after_attempt(1))
        return cast("CommitTableResponse", once(self, table, requirements, updates))

    def _config_headers(self, session: Session) -> None:
        # The first thing that PyIceberg does with a new session: before it asks for a token.
        for prefix, adapter in list(session.adapters.items()):
            session.mount(prefix, BoundedAdapter(adapter, self._limits))
        super()._config_headers(session)

    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, BoundedAdapter):
                session.mount(prefix, BoundedAdapter(adapter, self._limits))


class BoundedAdapter(BaseAdapter):
    """Sends by another adapter, within limits, reads the answer to its end, and notes it."""

    def __init__(self, inner: BaseAdapter, limits: RequestLimits) -> None:
        super().__init__()
        self._inner = inner
        self._limits = limits
        if isinstance(inner, HTTPAdapter):
            # A connection that cannot be made is tried again; anything else may have reached the server.
            inner.max_retries = inner.max_retries.new(other=0)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: dict[str, str] | None = None,
    ) -> Response:
        sends = _SENDS.get()
        if sends is not None:
            sends.statuses.append(None)
        response = self._inner.send(request, stream, timeout or self._limits.pair, verify, cert, proxies)
        if not stream:
            # An answer that is cut off is none.
            _ = response.content
        if sends is not None:
            sends.statuses[-1] = response.status_code
        return response

    def close(self) -> None:
        self._inner.close()
