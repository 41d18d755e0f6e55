"""When a store refuses requests or fails for a moment, the table waits with a reason, no attempt is used up and no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_pipeline.core.errors import AccessDenied
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.insight.compaction import Compaction
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.formats.file_io.object_io import immutable_files
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.object_store import Fault, ObjectStore, object_store
from compaction_pipeline_tests.services.house import House


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def house(tmp_path: Path, store: ObjectStore) -> House:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "init_catalog_tables": "true", "warehouse": store.url("wh")}
    return House(tmp_path, properties={**catalog, **store.properties})


def _compact(house: House, table: LakeTable) -> Compaction:
    return house.services.compact_tables.compact(table.identifier, PlanRequest(force=True))


def _ids(table: LakeTable, store: ObjectStore) -> list[int]:
    """The ids in the data files of the head, read from the store. No delete touches these files."""
    keys = [path.removeprefix(store.url("")) for path in table.paths(FileContent.DATA)]
    return sorted(number for key in keys for number in pq.read_table(pa.BufferReader(store.objects[key]))["id"].to_pylist())


def _overview(house: House, table: LakeTable) -> tuple[HealthStatus, str]:
    overview = house.services.read_tables.table(table.identifier).overview
    return overview.health, overview.reason


def test_refused_writes_are_found_before_the_merge_and_are_over_once_mended(house: House, store: ObjectStore) -> None:
    table = house.fragmented()
    store.counts()
    asked: list[str] = []

    def read_only(method: str, key: str) -> Fault | None:
        asked.append(f"{method} {key}")
        return Fault("status", 403, "AccessDenied") if method == "PUT" else None

    store.fault = read_only
    compaction = _compact(house, table)
    assert compaction.plan.reason.code is PlanReasonCode.NO_ACCESS
    assert "permission denied; the process that merges must be able to read and write the table's files" in compaction.reason
    assert not [request for request in asked if request.startswith("GET") and "/data/" in request]
    assert not house.services.stores.tasks.tasks(table.identifier)
    health, reason = _overview(house, table)
    assert health is HealthStatus.WAITING
    assert "permission denied" in reason
    store.fault = lambda method, key: None
    assert _compact(house, table).committed
    assert _ids(table, store) == list(range(12))
    house.services.one_table.refresh(table.identifier)
    assert "permission denied" not in _overview(house, table)[1]
    assert not [key for key in store.objects if "write-check" in key]


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "ExpiredToken")])
def test_a_refusal_in_the_middle_of_a_merge_uses_up_no_attempt(house: House, store: ObjectStore, status: int, code: str) -> None:
    table = house.fragmented()
    store.fault = lambda method, key: Fault("status", status, code) if method == "GET" and "/data/" in key else None
    compaction = _compact(house, table)
    assert compaction.failed
    [task] = house.services.stores.tasks.tasks(table.identifier)
    assert task.status is TaskStatus.CANCELED
    assert _overview(house, table)[0] is HealthStatus.WAITING
    store.fault = lambda method, key: None
    assert _compact(house, table).committed
    assert _ids(table, store) == list(range(12))


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "AccessDenied", "no permission"),
        (400, "ExpiredToken", "the store does not accept the key or the token"),
        (403, "SignatureDoesNotMatch", "the store does not accept the key or the token"),
        (301, "PermanentRedirect", "set 's3.region'"),
        (404, "NoSuchBucket", "the store has no such bucket"),
    ],
)
def test_a_store_without_access_leaves_the_table_waiting_with_the_reason(
    house: House, store: ObjectStore, status: int, code: str, told: str
) -> None:
    table = house.fragmented()
    immutable_files.clear()
    store.fault = lambda method, key: Fault("status", status, code)
    refresh = house.services.one_table.refresh(table.identifier)
    assert isinstance(refresh.error, AccessDenied)
    assert told in str(refresh.error)
    assert "restore" not in str(refresh.error)
    health, reason = _overview(house, table)
    assert health is HealthStatus.WAITING
    assert told in reason


@pytest.mark.parametrize("fault", [Fault("status", 503, "SlowDown"), Fault("close"), Fault("cut")])
def test_a_store_that_fails_every_third_request_changes_nothing(house: House, store: ObjectStore, fault: Fault) -> None:
    table = house.fragmented()
    immutable_files.clear()
    count = 0

    def stumble(method: str, key: str) -> Fault | None:
        nonlocal count
        count += 1
        # Only an answer with a body can be cut off in its body.
        return fault if count % 3 == 0 and (fault.do != "cut" or method == "GET") else None

    store.fault = stumble
    assert _compact(house, table).committed
    store.fault = lambda method, key: None
    assert _ids(table, store) == list(range(12))


def test_metadata_that_is_not_found_at_first_is_looked_for_again(house: House, store: ObjectStore) -> None:
    table = house.fragmented()
    immutable_files.clear()
    missed: set[str] = set()

    def miss_once(method: str, key: str) -> Fault | None:
        if method != "GET" or "/metadata/" not in key or key in missed:
            return None
        missed.add(key)
        return Fault("status", 404, "NoSuchKey")

    store.fault = miss_once
    assert _compact(house, table).committed
    assert len(missed) >= 3
    assert _ids(table, store) == list(range(12))
