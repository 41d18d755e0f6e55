"""Tables in Glue (moto's API of it, with s3proxy beside it): commits, lost races, answers that get lost, and listings without loads.

`core/tables/proofs.py` names these tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.tables.authentication import Authentication, authentication_of, authentication_problems
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal, remove
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.real_services.fault_proxy import FaultProxy, Lost, Status, fault_proxy
from compaction_pipeline_tests.real_services.gates import SigV4Gate, keys_of_this_machine, once
from compaction_pipeline_tests.real_services.lake import PATIENT, ServedLake
from compaction_pipeline_tests.real_services.servers import SECRET_KEY, GlueServer, S3Server
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.interop

UPDATE = "VersionId"
"""What only the body of a commit holds."""


@pytest.fixture
def lake(tmp_path: Path, s3: S3Server, glue: GlueServer) -> Iterator[ServedLake]:
    with ServedLake(tmp_path, s3, glue) as made:
        yield made


def written(lake: ServedLake) -> LakeTable:
    """A table of six small files. Two rows are deleted."""
    table = lake.table()
    inserted = [table.ids(*range(first, first + 3)) for first in range(0, 18, 3)]
    table.delete_positions((inserted[0].path, 1))
    table.delete_ids(10)
    return table


def rows_are(table: LakeTable, before: Any, more: int = 0) -> None:
    assert bag_difference(table.rows(), before) == ""
    assert faults(table.table) == []
    assert len(table.paths(FileContent.DATA)) == 1 + more


def targets(proxy: FaultProxy) -> list[str]:
    """A list that gets the operation of each request from now on."""
    seen: list[str] = []
    proxy.gate = lambda method, path, headers, body: seen.append(str(headers.get("X-Amz-Target")).partition(".")[2])
    return seen


def glue_table(lake: ServedLake, table: LakeTable) -> dict[str, Any]:
    catalog: Any = lake.catalog
    return dict(catalog.glue.get_table(DatabaseName=lake.namespace, Name=table.identifier.name)["Table"])


def test_a_compaction_is_committed(lake: ServedLake) -> None:
    table = written(lake)
    before, asked = table.rows(), targets(lake.catalog_proxy)
    assert authentication_of(lake.product_properties) is Authentication.AKSK
    assert authentication_problems("aksk", lake.product_properties) == ()
    outcome = lake.compact(table, CompactionType.FULL)
    assert outcome.committed, outcome.reason
    rows_are(table, before)
    assert asked.count("UpdateTable") == 1


def test_what_glue_keeps_beside_iceberg_stays(lake: ServedLake) -> None:
    table = written(lake)
    known = glue_table(lake, table)
    own = {"Owner": "ada", "Description": "orders of the shop", "Retention": 7}
    catalog: Any = lake.catalog
    kept = {key: known[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    catalog.glue.update_table(DatabaseName=lake.namespace, TableInput={**kept, **own}, VersionId=known["VersionId"])
    assert lake.compact(table, CompactionType.FULL).committed
    now = glue_table(lake, table)
    assert {key: now[key] for key in own} == own
    assert now["Parameters"]["metadata_location"] != known["Parameters"]["metadata_location"]


def is_update(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
    return (headers.get("X-Amz-Target") or "").endswith(".UpdateTable")


def test_a_lost_race_that_glue_notices_is_tried_again(lake: ServedLake) -> None:
    """Another writer commits after our last look at the version: Glue refuses our update, and nothing is lost."""
    table = written(lake)
    before = table.rows()
    lake.catalog_proxy.gate = once(is_update, lambda: table.ids(100, 101))
    outcome = lake.compact(table, CompactionType.FULL)
    assert outcome.committed, outcome.reason
    assert [request.status for request in lake.catalog_proxy.requests()].count(400) == 1
    assert table.live_ids() == sorted([*[row["id"] for row in before], 100, 101])
    assert faults(table.table) == []
    assert len(table.paths(FileContent.DATA)) == 2


def test_snapshots_are_not_removed_under_a_tag_that_was_made_meanwhile(lake: ServedLake) -> None:
    table = lake.table()
    table.ids(1)
    table.ids(2)
    looked_at = lake.catalogs.load(table.identifier)
    old = looked_at.metadata.snapshots[0].snapshot_id
    table.table.refresh().manage_snapshots().create_tag(old, "kept").commit()
    with pytest.raises(CommitFailedException):
        remove(looked_at, Removal([old], []))
    assert table.table.refresh().metadata.snapshot_by_name("kept") is not None
    table.table.manage_snapshots().remove_tag("kept").commit()
    remove(lake.catalogs.load(table.identifier), Removal([old], []))
    assert table.table.refresh().metadata.snapshot_by_id(old) is None
    assert table.live_ids() == [1, 2]


def is_metadata(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
    return method == "PUT" and ".metadata.json" in path


def test_a_service_that_compares_no_versions_loses_no_commit_to_us(lake: ServedLake, glue: GlueServer) -> None:
    """Another writer commits between PyIceberg's look at the version and our swap. This service would let our update through."""
    table = written(lake)
    before = table.rows()
    lake.s3_proxy.gate = once(is_metadata, lambda: table.ids(100, 101))
    with fault_proxy(glue.unchecked_port) as unchecked:
        lake.product_properties |= glue.properties(unchecked.port)
        asked = targets(unchecked)
        outcome = lake.compact(table, CompactionType.FULL)
    assert outcome.committed, outcome.reason
    assert asked.count("UpdateTable") == 1
    assert table.live_ids() == sorted([*[row["id"] for row in before], 100, 101])
    assert faults(table.table) == []


def test_a_commit_whose_answer_is_lost_is_found_and_not_sent_again(lake: ServedLake) -> None:
    table = written(lake)
    before = table.rows()
    rule = lake.catalog_proxy.add("^POST", Lost(), body=UPDATE)
    outcome = lake.compact(table, CompactionType.FULL)
    assert rule.seen == 1
    assert [record.status for record in outcome.records] == [RecordStatus.COMMITTED]
    rows_are(table, before)


def denied(code: str) -> Status:
    return Status(400, json.dumps({"__type": code, "Message": "the test says so"}), "application/x-amz-json-1.1")


def test_a_refusal_is_certain_and_the_next_attempt_commits(lake: ServedLake) -> None:
    """Keys that end right before the commit: nothing was committed, and the prepared work is committed with new ones."""
    table = written(lake)
    before = table.rows()
    lake.catalog_proxy.add("^POST", denied("ExpiredTokenException"), body=UPDATE, times=1)
    first = lake.compact(table, CompactionType.FULL)
    assert not first.committed
    assert not first.unknown
    assert "nothing was committed" in first.reason
    second = lake.compact(table, CompactionType.FULL)
    assert second.committed, second.reason
    rows_are(table, before)


def test_an_answer_that_proves_nothing_is_settled_later(lake: ServedLake) -> None:
    table = written(lake)
    before = table.rows()
    lake.catalog_proxy.add("^POST", Status(500, "{}", "application/x-amz-json-1.1"), body=UPDATE, times=1)
    first = lake.compact(table, CompactionType.FULL)
    second = first if first.committed else lake.compact(table, CompactionType.FULL)
    assert second.committed, second.reason
    rows_are(table, before)


def test_credentials_of_the_machine_are_renewed_during_a_merge(lake: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys come from where a container gets them, and end: the commit is signed with new ones."""
    table = written(lake)
    before = table.rows()
    for key in ("glue.access-key-id", "glue.secret-access-key"):
        del lake.product_properties[key]
    gate = SigV4Gate({}, "glue")
    lake.catalog_proxy.gate = gate
    with keys_of_this_machine(gate, SECRET_KEY, monkeypatch):
        outcome = lake.compact(table, CompactionType.FULL)
    assert outcome.committed, outcome.reason
    assert len(set(gate.let_in)) >= 2
    rows_are(table, before)


def test_a_listing_has_the_metadata_files_and_loads_no_table(lake: ServedLake) -> None:
    tables = [lake.table(f"t{number}") for number in range(3)]
    for table in tables:
        table.ids(1)
    catalog: Any = lake.catalog
    catalog.glue.create_table(
        DatabaseName=lake.namespace, TableInput={"Name": "orc", "StorageDescriptor": {"Location": "s3://lakehouse/orc"}}
    )
    catalogs = Catalogs(lambda name: CatalogEntry(name, lake.product_properties), PATIENT)
    asked = targets(lake.catalog_proxy)
    locations = catalogs.locations("lake")
    here = {table: location for table, location in locations.items() if table.namespace == (lake.namespace,)}
    assert here == {table.identifier: table.table.refresh().metadata_location for table in tables}
    assert all(isinstance(table, TableIdentifier) for table in locations)
    assert "GetTable" not in asked
    assert lake.s3_proxy.requests() == []
    assert (f"{lake.namespace}.orc", "s3://lakehouse/orc") in catalogs.hidden("lake")
