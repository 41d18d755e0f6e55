"""A lake on a real catalog (REST or Glue) and a real S3. The product reaches both through proxies that inject faults.

Tests write and check tables without the proxies. So the proxies count only the product's requests, and their faults hit nobody else.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.real_services.fault_proxy import fault_proxy
from compaction_pipeline_tests.real_services.servers import GlueServer, RestCatalogServer, S3Server

PATIENT = RequestLimits(connect_seconds=600, read_seconds=600, commit_seconds=600)
"""Generous limits, which only end a hang. On a busy machine a server may take long for its first answers."""


class ServedLake(Lake):
    """A lake with its own namespace. The product uses `catalog_proxy` and `s3_proxy`, and its catalog is called `lake`."""

    def __init__(self, folder: Path, s3: S3Server, rest: RestCatalogServer | GlueServer) -> None:
        super().__init__(folder, properties={**rest.properties(), **s3.properties()}, namespace=f"db{uuid4().hex[:8]}", limits=PATIENT)
        self._open = ExitStack()
        self.s3_proxy = self._open.enter_context(fault_proxy(s3.port))
        self.catalog_proxy = self._open.enter_context(fault_proxy(rest.port))
        self.product_properties = {**rest.properties(self.catalog_proxy.port), **s3.properties(self.s3_proxy.port)}
        self.home = folder / f"state-{uuid4().hex[:8]}"
        self._services: OpenedServices | None = None

    def __enter__(self) -> ServedLake:
        return self

    def __exit__(self, *failure: object) -> None:
        # Requests that hang must end before the threads that wait for them.
        self._open.close()
        if self._services is not None:
            self._services.stores.close()

    @property
    def services(self) -> OpenedServices:
        """The product's services in this process, with their own state database. They merge in this process."""
        if self._services is None:
            self._services = made = OpenedServices(Settings(home=self.home, merge_engine="in-process"))
            made.__dict__["_catalogs"] = Catalogs(lambda name: made.stores.catalogs.entry(name), PATIENT)
            self._services.stores.catalogs.add(CatalogEntry("lake", self.product_properties))
        return self._services

    def compact(self, table: LakeTable, kind: CompactionType) -> Compaction:
        """Force a compaction of this type."""
        return self.services.compact_tables.compact(table.identifier, PlanRequest(types=(kind,), force=True))

    def java_table(self, spark: Any, table: LakeTable) -> str:
        """The table's name in Spark. Spark reads it from the same servers, with Iceberg's Java library."""
        name = table.identifier.catalog + self.namespace
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": self.properties["uri"],
            ".warehouse": self.properties["warehouse"],
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".s3.endpoint": self.properties["s3.endpoint"],
            ".s3.path-style-access": "true",
            ".s3.access-key-id": self.properties["s3.access-key-id"],
            ".s3.secret-access-key": self.properties["s3.secret-access-key"],
            ".client.region": self.properties["s3.region"],
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        return f"{name}.{self.namespace}.{table.identifier.name}"
