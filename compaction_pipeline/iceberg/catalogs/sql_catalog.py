"""PyIceberg's SQL catalog with limits of time on PostgreSQL: no question of ours waits for ever, whatever the server does.

libpq limits how long a connection is made, and notices a network or machine that is gone. A server that is there and silent (stopped,
hung on its disk) it waits for without end, so `iceberg/catalogs/bounded_psycopg2.py` limits every answer too. The driver psycopg 3 gets the
limits of libpq only.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, event

from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits


def use_bounded_sql_catalogs(limits: RequestLimits) -> None:
    """From now on PyIceberg opens ours for `type=sql`, and wherever only the form of 'uri' tells the type."""
    AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, properties: BoundedSqlCatalog(name, limits, **properties)


class BoundedSqlCatalog(SqlCatalog):
    """A SQL catalog that follows the module's rule; raises what PyIceberg's raises."""

    def __init__(self, name: str, limits: RequestLimits, **properties: str) -> None:
        self._limits = limits
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        # The first thing that PyIceberg does with a new engine: before it asks anything.
        if self.engine.dialect.name == "postgresql":
            _limit_postgres(self.engine, self._limits)
        super()._init_catalog()


def _limit_postgres(engine: Engine, limits: RequestLimits) -> None:
    """Give every connection that the engine opens limits, where 'uri' sets none."""
    if engine.dialect.driver not in ("psycopg2", "psycopg"):
        return

    @event.listens_for(engine, "do_connect")
    def limit(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
        # libpq takes whole seconds, and reads 1 as 2.
        seconds = max(2, int(limits.connect_seconds))
        options.setdefault("connect_timeout", seconds)
        options.setdefault("keepalives_idle", seconds)
        options.setdefault("tcp_user_timeout", int(limits.read_seconds * 1000))
        if dialect.driver == "psycopg2":
            from compaction_pipeline.iceberg.catalogs.bounded_psycopg2 import bounded_connection

            options.setdefault("connection_factory", bounded_connection(limits))
