"""Readiness reads facts from a real REST catalog, from Glue (moto) and from a Hive metastore, also those of a table of format v4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.dependencies.facts_reader import IcebergFactsReader
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline_tests.interop.hive_warehouse import HiveWarehouse
from compaction_pipeline_tests.real_services.hive_metastore import HiveMetastore
from compaction_pipeline_tests.real_services.lake import PATIENT, ServedLake
from compaction_pipeline_tests.real_services.servers import GlueServer, RestCatalogServer, S3Server

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("kind", ["rest", "glue"])
def test_a_served_catalog_tells_the_facts(kind: str, tmp_path: Path, s3: S3Server, request: pytest.FixtureRequest) -> None:
    server: RestCatalogServer | GlueServer = request.getfixturevalue("rest_catalog" if kind == "rest" else "glue")
    with ServedLake(tmp_path, s3, server) as lake:
        table = lake.table()
        table.ids(1)
        table.ids(2)
        catalogs = Catalogs(lambda name: CatalogEntry(name, lake.product_properties), PATIENT)
        reader = IcebergFactsReader(catalogs, clock=lambda: 0.0)
        facts = reader.read(table.identifier)
        table.table.refresh()
        [store] = facts.stores
        assert (facts.uuid, store.metadata_location) == (str(table.table.metadata.table_uuid), table.table.metadata_location)
        assert store.history == history_of(table.table.metadata)
        assert store.properties == table.table.metadata.properties
        [commit] = reader.partition_commits(facts, None).commits
        assert (commit.partition, commit.files, commit.added_by) == ((), 2, store.history.refs["main"].snapshot_id)
        with only_counted(lake) as asked:
            again = reader.read(table.identifier)
        assert again.stores[0].history == store.history
        # One question to the catalog. It is answered without metadata where the catalog has ETags, and names its place elsewhere.
        assert len(asked) == 1


@contextmanager
def only_counted(lake: ServedLake) -> Iterator[list[Any]]:
    """The requests to the catalog and to S3 in this block."""
    before = len(lake.catalog_proxy.requests()), len(lake.s3_proxy.requests())
    seen: list[Any] = []
    yield seen
    seen += [*lake.catalog_proxy.requests()[before[0] :], *lake.s3_proxy.requests()[before[1] :]]


def test_a_metastore_names_a_table_that_nobody_can_load(tmp_path: Path, metastore: HiveMetastore) -> None:
    hive = HiveWarehouse(tmp_path, metastore)
    created = hive.catalog.create_table((hive.database, "t"), Schema(NestedField(1, "id", LongType())))
    created.append(pa.table({"id": pa.array([1], pa.int64())}), snapshot_properties={"watermark": "3600000"})
    name = TableIdentifier("lake", (hive.database,), "t")
    reader = IcebergFactsReader(hive.catalogs)
    before = reader.read(name)
    created.refresh()
    assert before.stores[0].history == history_of(created.metadata)
    # Another engine upgrades the table to a format that PyIceberg does not know.
    said = json.loads(Path(urlsplit(created.metadata_location).path).read_text())
    location = created.metadata_location.replace(".metadata.json", "-v4.metadata.json")
    Path(urlsplit(location).path).write_text(json.dumps({**said, "format-version": 4}))
    with hive.asked() as client:
        row = client.get_table(hive.database, "t")
        row.parameters = {**row.parameters, "metadata_location": location}
        client.alter_table(hive.database, "t", row)
    with pytest.raises(CompactionError):
        hive.catalogs.load(name)
    after = reader.read(name)
    assert after.stores[0].metadata_location == location
    assert after.stores[0].history == before.stores[0].history
