"""Bounds the connections of people who have shown no valid token, so that they leave room for all others.

A connection is in one of two groups, or in none:

- Its headers are not complete: it has sent nothing yet, a part of a TLS handshake (`handshakes.py`), or a part of a request.
- Its headers are complete, and nobody has shown a valid token in them. Connections that wait for their next request are here too.
- A request with a valid token is being answered. Such requests are bounded by their token (`security.py`).

When a group is full, its oldest connection is closed, so that a new one always gets in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Protocol

MOST_UNFINISHED = 256
MOST_UNFINISHED_OF_ONE = 32
"""So many connections with incomplete headers may come from one address, or from one IPv6 network of 64 bits."""
MOST_UNKNOWN = 512

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Connection(Protocol):
    """A connection that can be closed."""

    def close_for_others(self) -> None:
        """Close the connection now, because another one needs its place."""


class _Group:
    """Connections, the oldest first, each with its address."""

    def __init__(self, most: int, most_of_one: int | None, is_proxy: Callable[[str], bool]) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._is_proxy = is_proxy
        self._all: dict[Connection, str] = {}
        self._of: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection, address: str) -> None:
        self._all[connection] = address
        own = self._of.setdefault(address, {})
        own[connection] = None
        if self._most_of_one is not None and len(own) > self._most_of_one and not self._is_proxy(address):
            self._close(next(iter(own)))
        elif len(self._all) > self._most:
            self._close(next(iter(self._all)))

    def discard(self, connection: Connection) -> None:
        address = self._all.pop(connection, None)
        if address is None:
            return
        del self._of[address][connection]
        if not self._of[address]:
            del self._of[address]

    def _close(self, connection: Connection) -> None:
        self.discard(connection)
        connection.close_for_others()


class Connections:
    """The connections of one server. Only its event loop uses them."""

    def __init__(
        self, proxy: Network | None = None, most_unfinished_of_one: int = MOST_UNFINISHED_OF_ONE, most_unknown: int = MOST_UNKNOWN
    ) -> None:
        """`proxy` is where all connections come from one address, so that the limit for each address says nothing about people."""

        def is_proxy(address: str) -> bool:
            return proxy is not None and ipaddress.ip_address(address) in proxy

        self._unfinished = _Group(MOST_UNFINISHED, most_unfinished_of_one, is_proxy)
        self._unknown = _Group(most_unknown, None, is_proxy)

    def unfinished(self, connection: Connection, host: str) -> None:
        """Note that the headers of a connection's request are not complete. `host` is the address that it comes from."""
        self.gone(connection)
        self._unfinished.add(connection, _address(host))

    def unknown(self, connection: Connection, host: str) -> None:
        """Note that a connection has complete headers, or waits for its next request."""
        self.gone(connection)
        self._unknown.add(connection, _address(host))

    def gone(self, connection: Connection) -> None:
        """Note that a connection has ended, or that a request with a valid token is being answered on it."""
        self._unfinished.discard(connection)
        self._unknown.discard(connection)


def _address(host: str) -> str:
    """What is counted as one address. Whoever has an IPv6 address mostly has its whole network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "0.0.0.0"
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)
    return str(getattr(address, "ipv4_mapped", None) or address)
