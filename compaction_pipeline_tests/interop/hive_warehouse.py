"""A Hive catalog on a real metastore that Spark, PyIceberg and the product share, and raw calls to the metastore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline_tests.interop.warehouse import Warehouse
from compaction_pipeline_tests.real_services.hive_metastore import HiveMetastore


class HiveWarehouse(Warehouse):
    """A database of its own in the metastore. Its name is that of the namespace `db` of other warehouses."""

    def __init__(self, folder: Path, metastore: HiveMetastore, port: int | None = None, root: str = "", **properties: str) -> None:
        """`port` is that of a proxy, which PyIceberg and the product go through, and Spark does not. Tables are below `root`, a URL."""
        self.folder = folder
        self.root = root or f"file://{folder}/wh"
        self.name = f"h{uuid4().hex[:8]}"
        self.database = self.name
        self.metastore = metastore
        self.properties = {**metastore.properties(port), **properties}
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, self.properties), RequestLimits(30, 60, 60))
        self.catalog: Any = self.catalogs.catalog("lake")
        self.catalog.create_namespace(self.database, {"location": self.root})

    def register(self, spark: Any) -> None:
        """Let Spark reach the same metastore, with Iceberg's Java library."""
        self.spark = spark
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "hive",
            ".uri": f"thrift://127.0.0.1:{self.metastore.port}",
            ".warehouse": self.root,
            ".cache-enabled": "false",
            ".hadoop.iceberg.hive.lock-heartbeat-interval-ms": "1000",
        }.items():
            spark.conf.set(f"spark.sql.catalog.{self.name}{key}", value)

    @contextmanager
    def asked(self) -> Iterator[Any]:
        """A raw client of the metastore, past any proxy."""
        from compaction_pipeline.iceberg.catalogs.hive_client import connections

        with connections(self.metastore.properties(), RequestLimits())() as client:
            yield client

    def lock(self, table: str = "t", agent: str = "somebody", host: str = "elsewhere") -> int:
        """Take the lock on a table as another committer does. Nobody sends heartbeats for it."""
        from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType

        component = LockComponent(type=LockType.EXCLUSIVE, level=LockLevel.TABLE, dbname=self.database, tablename=table)
        with self.asked() as client:
            lock_id: int = client.lock(LockRequest(component=[component], user="writer", hostname=host, agentInfo=agent)).lockid
        return lock_id

    def unlock(self, lock_id: int) -> None:
        from hive_metastore.ttypes import UnlockRequest

        with self.asked() as client:
            client.unlock(UnlockRequest(lockid=lock_id))

    def locks(self, table: str = "t") -> list[Any]:
        """All locks on a table."""
        from hive_metastore.ttypes import ShowLocksRequest

        with self.asked() as client:
            found = client.show_locks(ShowLocksRequest(dbname=self.database, tablename=table)).locks or []
        return [one for one in found if one.dbname == self.database and one.tablename == table]
