"""Connections to a Hive metastore: each call has one of its own, and none waits for ever.

PyIceberg uses one connection for all threads of a catalog, so that their frames mix, and sets no time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlparse

from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg.catalog import URI
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_AUTH_DEFAULT,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    _HiveClient,
)
from pyiceberg.utils.properties import property_as_bool
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport

from compaction_pipeline.formats.file_io.hdfs_clients import login_of
from compaction_pipeline.formats.file_io.kerberos import Login
from compaction_pipeline.iceberg.catalogs.hive_kerberos import KerberosTransport
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits

Connect = Callable[[], "BoundedHiveClient"]
"""Makes a connection to the metastore, for one `with` block."""


def connections(properties: Mapping[str, Any], limits: RequestLimits) -> Connect:
    """What makes connections to the metastore that these properties of a catalog name."""

    def connect() -> BoundedHiveClient:
        return BoundedHiveClient(
            str(properties[URI]),
            properties.get("ugi"),
            property_as_bool(dict(properties), HIVE_KERBEROS_AUTH, HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
            login_of(properties),
            limits,
        )

    return connect


class BoundedHiveClient(_HiveClient):
    """One connection, opened by `with`. 'uri' may name several instances of the metastore; the first that accepts it is asked."""

    def __init__(self, uris: str, ugi: str | None, kerberos: bool, service: str, login: Login | None, limits: RequestLimits) -> None:
        self._login = login
        self._limits = limits
        self._uris = [uri.strip() for uri in uris.split(",") if uri.strip()]
        self._socket: Any = None
        super().__init__(self._uris[0] if self._uris else uris, ugi, kerberos, service)

    def _init_thrift_transport(self) -> Any:
        # As PyIceberg does it, with a time limit, which holds for connecting first.
        parts = urlparse(self._uri)
        self._socket = TSocket.TSocket(parts.hostname, parts.port)
        self._socket.setTimeout(self._limits.connect_seconds * 1000)
        if not self._kerberos_auth:
            return TTransport.TBufferedTransport(self._socket)
        return KerberosTransport(self._socket, str(self._kerberos_service_name), str(parts.hostname), self._login)

    def __enter__(self) -> Client:
        for last, uri in enumerate(self._uris, start=1 - len(self._uris)):
            self._uri = uri
            self._transport = self._init_thrift_transport()
            try:
                self._transport.open()
            except (TException, OSError):
                if last < 0:
                    continue
                raise
            break
        self.patience(self._limits.read_seconds)
        try:
            return self._client()
        except BaseException:
            self._transport.close()
            raise

    def patience(self, seconds: float) -> None:
        """Wait this long for the next part of an answer, from now on."""
        self._socket.setTimeout(seconds * 1000)
