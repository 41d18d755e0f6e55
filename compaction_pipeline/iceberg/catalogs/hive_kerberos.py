"""A connection to a Hive metastore on which both sides prove by Kerberos who they are (SASL, as Thrift's Java library frames it).

PyIceberg needs two packages for this, one of which must be compiled, and takes the ticket of its process.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

from thrift.transport.TTransport import TTransportBase, TTransportException

from compaction_pipeline.formats.file_io.kerberos import Login, service_ticket
from compaction_pipeline.iceberg.catalogs.gssapi import KerberosLogin

_START, _GO_ON, _COMPLETE = 1, 2, 5
_LARGEST_TOKEN = 2**20
_LARGEST_ANSWER = 2**30


class KerberosTransport(TTransportBase):  # type: ignore[misc]
    """A transport of Thrift over a socket. `open` raises TTransportException, and PermissionError where Kerberos refuses."""

    def __init__(self, socket: Any, service: str, host: str, login: Login | None) -> None:
        """The ticket is that of the process where there is no `login`."""
        self._socket = socket
        self._service = service
        self._host = host
        self._login = login
        self._security: KerberosLogin | None = None
        self._written = BytesIO()
        self._read = BytesIO()

    def isOpen(self) -> bool:
        return bool(self._socket.isOpen())

    def open(self) -> None:
        ticket, principal = (None, None) if self._login is None else service_ticket(self._login, self._service, self._host)
        self._socket.open()
        try:
            self._security = KerberosLogin(self._service, self._host, ticket, principal)
            self._say(_START, b"GSSAPI")
            self._say(_GO_ON, self._security.answer(b""))
            while (challenge := self._heard()) is not None:
                self._say(_GO_ON, self._security.answer(challenge))
            if not self._security.complete:
                raise TTransportException(TTransportException.NOT_OPEN, "the metastore ended the login before it had proved who it is")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._security is not None:
            self._security.end()
            self._security = None
        self._socket.close()

    def read(self, size: int) -> bytes:
        found = self._read.read(size)
        if not found:
            (length,) = struct.unpack("!i", self._socket.readAll(4))
            self._read = BytesIO(self._opened().opened(self._part(length, _LARGEST_ANSWER)))
            found = self._read.read(size)
        return found

    def write(self, data: bytes) -> None:
        self._written.write(data)

    def flush(self) -> None:
        message = self._opened().closed(self._written.getvalue())
        self._written = BytesIO()
        self._socket.write(struct.pack("!i", len(message)) + message)
        self._socket.flush()

    def _opened(self) -> KerberosLogin:
        if self._security is None:
            raise TTransportException(TTransportException.NOT_OPEN, "the connection to the metastore is closed")
        return self._security

    def _say(self, status: int, token: bytes) -> None:
        self._socket.write(struct.pack(">BI", status, len(token)) + token)
        self._socket.flush()

    def _heard(self) -> bytes | None:
        """What the metastore says next; None when it has let the client in."""
        status, length = struct.unpack(">BI", self._socket.readAll(5))
        said = self._part(length, _LARGEST_TOKEN)
        if status not in (_GO_ON, _COMPLETE):
            # It repeats what its own library says, which is written by nobody for readers.
            text = said.decode(errors="replace")[:200]
            raise PermissionError(f"the metastore does not let {self._who()} in by Kerberos: {text}; see its log")
        return said if status == _GO_ON else None

    def _who(self) -> str:
        return "the owner of the ticket" if self._login is None else self._login.principal

    def _part(self, length: int, most: int) -> bytes:
        if not 0 <= length <= most:
            raise TTransportException(TTransportException.SIZE_LIMIT, f"the metastore announced {length} bytes; does it want Kerberos?")
        return bytes(self._socket.readAll(length)) if length else b""
